// TokenService, AccountService, AdminService and SignInService: the owners of apps, users, sessions, codes, grants, tokens and audit events
// behind the RPC boundary. They know nothing of HTTP. bin/ composes them; gateway/ reaches them by RPC only.
import type { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import type { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import type { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Handlers } from '../rpc/dispatcher.js'
import { createAccountHandlers } from './account/account-service.js'
import { createAdminHandlers } from './admin/admin-service.js'
import { secretRecaller } from './app-authentication.js'
import { checkAuthorizationRequest } from './check-authorization-request.js'
import type { TokenDeps } from './deps.js'
import { exchangeCode } from './exchange-code.js'
import { getAuthorizedUser } from './get-authorized-user.js'
import { issueCode } from './issue-code.js'
import { refreshAccessToken } from './refresh-access-token.js'
import { createSignInHandlers } from './sign-in-service.js'
import { verifyAccessToken } from './verify-access-token.js'

export function createTokenHandlers(deps: TokenDeps): {
  readonly token: Handlers<typeof TokenService>
  readonly account: Handlers<typeof AccountService>
  readonly admin: Handlers<typeof AdminService>
  readonly signIn: Handlers<typeof SignInService>
} {
  const recallSecret = secretRecaller(deps)
  return {
    token: {
      checkAuthorizationRequest: checkAuthorizationRequest(deps),
      issueCode: issueCode(deps),
      exchangeCode: exchangeCode(deps, recallSecret),
      refreshAccessToken: refreshAccessToken(deps, recallSecret),
      verifyAccessToken: verifyAccessToken(deps),
      getAuthorizedUser: getAuthorizedUser(deps),
    },
    account: createAccountHandlers(deps),
    admin: createAdminHandlers(deps),
    signIn: createSignInHandlers(deps),
  }
}
