import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { create, type DescMethod } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import { describe, expect, onTestFinished, test } from 'vitest'
import { LimitService } from '../gen/surveyauth/internal/v1/limit_service_pb.js'
import { SurveyProvider } from '../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { AccountService } from '../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../gen/surveyauth/v1/error_pb.js'
import { SignInService } from '../gen/surveyauth/v1/sign_in_service_pb.js'
import { SurveyService } from '../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../gen/surveyauth/v1/token_service_pb.js'
import { parseAddress } from '../services/rpc/address.js'
import { CALLERS, type Caller, mayCall } from '../services/rpc/callers.js'
import { clientOf, createDirectDoor } from '../services/rpc/client.js'
import { Dispatcher } from '../services/rpc/dispatcher.js'
import { identifyByName, ownName, parseCallers } from '../services/rpc/identity.js'
import { reasonIn } from '../services/rpc/service-error.js'
import { createReadRecorder } from '../services/survey/read-recorder.js'
import { createRespondents } from '../services/survey/respondents.js'
import { openSqliteSurveyStore } from '../services/survey/store/sqlite/sqlite-survey-store.js'
import { createSurveyHandlers } from '../services/survey/survey-service.js'

/** Who may call which method: repeated here, because a slip in the product's table is a security hole. */
const allowed: Readonly<Record<string, readonly Caller[]>> = {
  'TokenService.CheckAuthorizationRequest': ['gateway'],
  'TokenService.IssueCode': ['gateway'],
  'TokenService.ExchangeCode': ['gateway'],
  'TokenService.RefreshAccessToken': ['gateway'],
  'TokenService.VerifyAccessToken': ['survey', 'verifier'],
  'TokenService.GetAuthorizedUser': ['gateway', 'verifier'],
  'AccountService.SignIn': ['gateway'],
  'AccountService.ListSignInMethods': ['gateway'],
  'AccountService.BeginSignIn': ['gateway'],
  'AccountService.CompleteSignIn': ['gateway'],
  'SignInService.GetSignInRequest': ['sign_in'],
  'SignInService.AcceptSignIn': ['sign_in'],
  'SignInService.RejectSignIn': ['sign_in'],
  'AccountService.BeginLink': ['gateway'],
  'AccountService.Unlink': ['gateway'],
  'AccountService.SignOut': ['gateway'],
  'AccountService.GetSession': ['gateway'],
  'AccountService.GetAccount': ['gateway'],
  'AccountService.EndSessions': ['gateway'],
  'AccountService.ChangePassword': ['gateway'],
  'AccountService.EndProviderSessions': ['gateway'],
  'AccountService.ListConnectedApps': ['gateway'],
  'AccountService.GetAppLogo': ['gateway'],
  'AccountService.DisconnectApp': ['gateway'],
  'SurveyService.GetSurvey': ['gateway', 'verifier'],
  'SurveyService.ListSurveys': ['gateway', 'verifier'],
  'LimitService.CountRequests': ['gateway'],
  'SurveyService.ImportSurveys': ['survey_writer', 'operator'],
  'SurveyService.DeleteSurveys': ['survey_writer', 'operator'],
  'SurveyService.ExportSurveys': ['survey_writer', 'operator'],
  'SurveyService.ListAnswers': ['gateway', 'verifier'],
  'SurveyService.GetAnswer': ['gateway', 'verifier'],
  'SurveyService.ImportAnswers': ['survey_writer', 'operator'],
  'SurveyService.ExportAnswers': ['survey_writer', 'operator'],
  'SurveyService.DeleteAnswers': ['survey_writer', 'operator'],
  'SurveyService.ListSurveyEvents': ['operator'],
  'SurveyProvider.GetProviderInfo': ['survey', 'operator'],
  'SurveyProvider.ListSurveys': ['survey', 'operator'],
  'SurveyProvider.GetSurvey': ['survey', 'operator'],
  'SurveyProvider.ListAnswers': ['survey', 'operator'],
  'SurveyProvider.GetAnswer': ['survey', 'operator'],
}
const OPERATOR_ONLY: readonly Caller[] = ['operator']
/** Of AdminService: what a platform does about its own users. */
const OF_PLATFORM = [
  'GetUser',
  'UpdateUser',
  'SetUserDisabled',
  'DeleteUser',
  'EndUserSessions',
  'ListUserApps',
  'DisconnectUserApp',
]
const PLATFORM_TOO: readonly Caller[] = ['operator', 'sign_in']

/** `local` could open the databases itself, so it may call everything. */
function isAllowed(caller: Caller, method: DescMethod): boolean {
  if (caller === 'local') return true
  const isAdmin = method.parent.typeName === AdminService.typeName
  const ofAdmin = OF_PLATFORM.includes(method.name) ? PLATFORM_TOO : OPERATOR_ONLY
  const row = isAdmin ? ofAdmin : allowed[`${method.parent.name}.${method.name}`]
  return row?.includes(caller) ?? false
}

const methods: readonly DescMethod[] = [
  TokenService,
  AccountService,
  AdminService,
  SignInService,
  LimitService,
  SurveyService,
  SurveyProvider,
].flatMap((service) => service.methods)
const matrix = CALLERS.flatMap((caller) =>
  methods.map((method) => ({
    caller,
    name: `${method.parent.name}.${method.name}`,
    method,
    may: isAllowed(caller, method),
  })),
)

/** A dispatcher with the real table; its handlers answer anything, so that only authorization is tested. */
async function knock(caller: Caller, method: DescMethod): Promise<'let in' | 'turned away'> {
  const dispatcher = new Dispatcher({ mayCall, onCall: () => {}, onUnexpected: () => {}, maxDeadlineMs: 1_000 })
  const handlers = Object.fromEntries(method.parent.methods.map(({ localName }) => [localName, async () => ({})]))
  dispatcher.register(method.parent, handlers as never)
  try {
    const call = {
      caller,
      callerName: 'DNS:a.test',
      requestId: '00000000-0000-4000-8000-000000000000',
      signal: undefined,
      traceparent: '',
    }
    await dispatcher.call(method, create(method.input), call)
    return 'let in'
  } catch (error) {
    const failure = ConnectError.from(error)
    if (reasonIn(failure) !== ErrorReason.CALLER_NOT_ALLOWED) return 'let in'
    expect(failure.code).toBe(Code.PermissionDenied)
    return 'turned away'
  }
}

describe('callers', () => {
  test.each(matrix)('$caller calls $name: allowed $may', async ({ caller, method, may }) => {
    expect(mayCall(caller, method)).toBe(may)
    expect(await knock(caller, method)).toBe(may ? 'let in' : 'turned away')
  })

  test('a caller without a row may call nothing', () => {
    for (const method of methods) expect(mayCall('stranger' as Caller, method)).toBe(false)
  })
})

test.each([
  ['survey_writer', 'survey_writer'],
  ['operator', 'operator'],
  ['local', 'operator'],
] as const)('what %s stores and deletes is attributed to %s in the audit trail', async (caller, actor) => {
  const dispatcher = new Dispatcher({ mayCall, onCall: () => {}, onUnexpected: () => {}, maxDeadlineMs: 1_000 })
  const token = clientOf(TokenService, createDirectDoor(dispatcher, 'survey'))
  const store = openSqliteSurveyStore({ file: ':memory:' })
  onTestFinished(() => store.close())
  dispatcher.register(
    SurveyService,
    createSurveyHandlers({
      store,
      token,
      respondents: createRespondents(store, randomBytes),
      reads: createReadRecorder(store),
      now: Date.now,
    }),
  )
  const survey = clientOf(SurveyService, createDirectDoor(dispatcher, caller))
  await survey.importSurveys({ ownerUserId: 'user_ann', surveys: [{ id: 7n, title: 'a' }] })
  await survey.deleteSurveys({ surveyIds: [7n] })
  const { events } = await clientOf(SurveyService, createDirectDoor(dispatcher, 'operator')).listSurveyEvents({})
  expect(events.map((event) => [event.kind, event.actor, event.actorId, event.actorSource])).toEqual([
    ['survey.deleted', actor, ownName(), 'local'],
    ['survey.created', actor, ownName(), 'local'],
  ])
})

describe('the role of a certificate', () => {
  test('is that of the first of its names with a role in RPC_CALLERS', () => {
    const identify = identifyByName(parseCallers('gateway=DNS:gw.test, DNS:gw2.test; verifier=URI:spiffe://test/a'))
    const gateway = { caller: 'gateway', callerName: 'DNS:gw2.test' }
    expect(identify('DNS:other.test, DNS:gw2.test, URI:spiffe://test/a')).toEqual(gateway)
    expect(identify('URI:spiffe://test/a')).toEqual({ caller: 'verifier', callerName: 'URI:spiffe://test/a' })
    for (const nobody of [undefined, '', 'DNS:other.test', 'URI:"x, DNS:gw.test, y"']) {
      expect(identify(nobody)).toBeUndefined()
    }
  })

  test('may be given to a name with an equals sign in it, and a last entry may be empty', () => {
    const identify = identifyByName(parseCallers('verifier=URI:https://a.test/?team=b=c; ;gateway=DNS:gw.test;'))
    const named = ['URI:https://a.test/?team=b=c', 'DNS:gw.test'].map((name) => identify(name)?.caller)
    expect(named).toEqual(['verifier', 'gateway'])
  })

  test.each([
    ['local=DNS:a.test', 'local is not a role'],
    ['admin=DNS:a.test', 'admin is not a role'],
    ['gateway=a.test', 'a.test is not a name'],
    ['gateway=DNS:', 'DNS: is not a name'],
    ['gateway=DNS:a.test b.test', 'DNS:a.test b.test is not a name'],
    ['gateway=', 'nothing is not a name'],
    ['gateway=DNS:a.test;operator=DNS:a.test', 'DNS:a.test has two roles'],
  ])('cannot be given by %s', (text, problem) => {
    expect(() => parseCallers(text)).toThrow(problem)
  })

  test.each([
    ['http://10.0.0.1:8080', 'plaintext is for loopback only'],
    ['tcp://db.test:1', 'plaintext is for loopback only'],
    ['https://a.test/path', 'without path, query or user'],
    ['https://a.test?x', 'without path, query or user'],
    ['https://a.test#x', 'without path, query or user'],
    ['https://user@a.test', 'without path, query or user'],
    ['ftp://a.test', 'must start with'],
    ['unix:', 'needs a path'],
  ])('is not asked for at %s, which is not a valid address', (text, problem) => {
    expect(() => parseAddress(text)).toThrow(problem)
  })
})

/** What only our own processes call is not in docs/rpc.md. */
const forOthers = methods.filter((method) => !method.parent.typeName.startsWith('surveyauth.internal.'))

test('docs/rpc.md has a row for every RPC, with its callers', () => {
  const text = readFileSync(new URL('../docs/rpc.md', import.meta.url), 'utf8')
  const rows = [...text.matchAll(/^\| ((?:\w+Service|SurveyProvider)\.\w+) +\| ([^|]*?) *\|/gm)]
  const documented = new Map(rows.map(([, name = '', callers = '']) => [name, callers.split(/,\s*/)]))
  for (const method of forOthers) {
    const name = `${method.parent.name}.${method.name}`
    const expected = CALLERS.filter((caller) => caller !== 'local' && mayCall(caller, method))
    const written = documented.get(name)
    const named = expected.length > 0 ? expected.toSorted() : ['`local`'] // who may call everything, and nobody else
    expect({ name, callers: written?.toSorted() }).toEqual({ name, callers: named })
  }
})

test('no RPC is without side effects: Connect would serve it by GET, with its secrets in the URL', () => {
  for (const method of methods) {
    expect({ method: method.name, idempotency: method.idempotency }).not.toEqual({
      method: method.name,
      idempotency: MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS,
    })
  }
})

test('docs/rpc.md and the protos agree on which RPCs may be retried', () => {
  const text = readFileSync(new URL('../docs/rpc.md', import.meta.url), 'utf8')
  const rows = [...text.matchAll(/^\| ((?:\w+Service|SurveyProvider)\.\w+) +\|[^|]*\|[^|]*\| ([^|]*?) *\|$/gm)]
  const documented = new Map(rows.map(([, name = '', retry = '']) => [name, /^yes$|^yes: one request_id/.test(retry)]))
  for (const method of forOthers) {
    const name = `${method.parent.name}.${method.name}`
    const isIdempotent = method.idempotency === MethodOptions_IdempotencyLevel.IDEMPOTENT
    expect({ name, isRepeated: documented.get(name) }).toEqual({ name, isRepeated: isIdempotent })
  }
  expect(documented.get('TokenService.ExchangeCode')).toBe(false)
  expect(documented.get('TokenService.RefreshAccessToken')).toBe(false)
})
