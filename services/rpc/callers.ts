// Who may call what. One table, default deny; a test walks every caller through every method.
import type { DescMethod } from '@bufbuild/protobuf'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'

/**
 * Roles of callers. A door establishes the role (composition, socket permission, certificate); nobody claims one.
 * `local` is a process of this machine behind a Unix socket that only our own user can open, or plaintext loopback: it
 * could open the databases as well, so it may call everything. `survey_provider` is a platform's server, which we call: it may
 * call nothing.
 */
export const CALLERS = [
  'gateway',
  'survey',
  'verifier',
  'survey_writer',
  'survey_provider',
  'sign_in',
  'operator',
  'local',
] as const
export type Caller = (typeof CALLERS)[number]

type Row<S extends { method: object }> = Record<keyof S['method'], readonly Exclude<Caller, 'local'>[]>

const token: Row<typeof TokenService> = {
  checkAuthorizationRequest: ['gateway'],
  issueCode: ['gateway'],
  exchangeCode: ['gateway'],
  refreshAccessToken: ['gateway'],
  verifyAccessToken: ['survey', 'verifier'],
  getAuthorizedUser: ['gateway', 'verifier'],
}

const account: Row<typeof AccountService> = {
  signIn: ['gateway'],
  listSignInMethods: ['gateway'],
  beginSignIn: ['gateway'],
  completeSignIn: ['gateway'],
  beginLink: ['gateway'],
  unlink: ['gateway'],
  signOut: ['gateway'],
  getSession: ['gateway'],
  getAccount: ['gateway'],
  endSessions: ['gateway'],
  changePassword: ['gateway'],
  endProviderSessions: ['gateway'],
  listConnectedApps: ['gateway'],
  getAppLogo: ['gateway'],
  disconnectApp: ['gateway'],
}

/** Whoever may call these decides who is signed in: never a gateway. */
const signIn: Row<typeof SignInService> = {
  getSignInRequest: ['sign_in'],
  acceptSignIn: ['sign_in'],
  rejectSignIn: ['sign_in'],
}

const admin: Row<typeof AdminService> = {
  createApp: ['operator'],
  listApps: ['operator'],
  getApp: ['operator'],
  updateApp: ['operator'],
  setAppDisabled: ['operator'],
  deleteApp: ['operator'],
  addAppSecret: ['operator'],
  revokeAppSecret: ['operator'],
  createUser: ['operator'],
  importUsers: ['operator'],
  listPasswordHashes: ['operator'],
  listUsers: ['operator'],
  getUser: ['operator', 'sign_in'],
  updateUser: ['operator', 'sign_in'],
  setUserDisabled: ['operator', 'sign_in'],
  setUserPassword: ['operator'],
  deleteUser: ['operator', 'sign_in'],
  endUserSessions: ['operator', 'sign_in'],
  listUserApps: ['operator', 'sign_in'],
  disconnectUserApp: ['operator', 'sign_in'],
  linkIdentity: ['operator'],
  unlinkIdentity: ['operator'],
  listIdentities: ['operator'],
  listGrants: ['operator'],
  revokeGrant: ['operator'],
  listAuditEvents: ['operator'],
}

const limit: Row<typeof LimitService> = {
  countRequests: ['gateway'],
}

const survey: Row<typeof SurveyService> = {
  getSurvey: ['gateway', 'verifier'],
  listSurveys: ['gateway', 'verifier'],
  importSurveys: ['survey_writer', 'operator'],
  deleteSurveys: ['survey_writer', 'operator'],
  exportSurveys: ['survey_writer', 'operator'],
  listAnswers: ['gateway', 'verifier'],
  getAnswer: ['gateway', 'verifier'],
  importAnswers: ['survey_writer', 'operator'],
  exportAnswers: ['survey_writer', 'operator'],
  deleteAnswers: ['survey_writer', 'operator'],
  listSurveyEvents: ['operator'],
}

/** What we call at a platform's provider, we serve to ourselves, and to operators who want to know how ours answers. */
const provider: Row<typeof SurveyProvider> = {
  getProviderInfo: ['survey', 'operator'],
  listSurveys: ['survey', 'operator'],
  getSurvey: ['survey', 'operator'],
  listAnswers: ['survey', 'operator'],
  getAnswer: ['survey', 'operator'],
}

const table: Record<string, Record<string, readonly Caller[]>> = {
  [TokenService.typeName]: token,
  [AccountService.typeName]: account,
  [AdminService.typeName]: admin,
  [SignInService.typeName]: signIn,
  [LimitService.typeName]: limit,
  [SurveyService.typeName]: survey,
  [SurveyProvider.typeName]: provider,
}

/** Whether the table allows it; a method without a row is denied. */
export function mayCall(caller: Caller, method: DescMethod): boolean {
  const row = table[method.parent.typeName]?.[method.localName]
  return row !== undefined && (caller === 'local' || row.includes(caller))
}
