// The sequence of a sign-in at a platform's own page: the gateway begins and ends it, the platform says who it is.
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import { expect, onTestFinished, test } from 'vitest'
import { readConfig } from '../../bin/config.js'
import { ErrorInfoSchema } from '../../gen/google/rpc/error_details_pb.js'
import {
  AccountService,
  CompleteSignInResponse_Outcome as Outcome,
} from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { SignInRejection, SignInService, SignInState } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, createDirectDoor } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { ownName } from '../../services/rpc/identity.js'
import { reasonIn } from '../../services/rpc/service-error.js'
import { createPasswordHasher } from '../../services/token/password/hasher.js'
import { createTimeFloor } from '../../services/token/password/time-floor.js'
import { noSignInLimiter } from '../../services/token/sign-in-limiter.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { createTokenHandlers } from '../../services/token/token-service.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'

const MINUTE = 60_000
const BROWSER = 'b'.repeat(43)
const CALLBACK = 'https://app.example:8443/callback'
const PLATFORM = 'https://platform.example/login?tenant=a'
const RESTART = 'https://here.example/connect/oauth2/authorize?appid=app'

async function start() {
  let now = 1_767_225_600_000
  let bytes = 0
  const store = openSqliteTokenStore({ file: ':memory:' })
  onTestFinished(() => store.close())
  const passwords = createPasswordHasher({ concurrency: 1, queueLimit: 1 })
  const handlers = createTokenHandlers({
    store,
    rules: readConfig({}),
    now: () => now,
    randomBytes: (size) => new Uint8Array(size).fill(++bytes),
    passwords,
    timeFloor: createTimeFloor(store, passwords),
    signInLimiter: noSignInLimiter,
    signInMethods: { password: true, platform: new URL(PLATFORM), providers: new Map() },
    uses: createUseRecorder(store),
  })
  const dispatcher = new Dispatcher({ mayCall, onCall: () => {}, onUnexpected: () => {}, maxDeadlineMs: 5_000 })
    .register(AccountService, handlers.account)
    .register(AdminService, handlers.admin)
    .register(SignInService, handlers.signIn)
  const account = clientOf(AccountService, createDirectDoor(dispatcher, 'gateway'))
  const platform = clientOf(SignInService, createDirectDoor(dispatcher, 'sign_in'))
  const operator = clientOf(AdminService, createDirectDoor(dispatcher, 'operator'))
  const lifecycle = clientOf(AdminService, createDirectDoor(dispatcher, 'sign_in'))
  const { app } = await operator.createApp({ name: 'Reader', redirectUris: [CALLBACK] })
  const asked = { appid: app?.appid ?? '', redirectUri: CALLBACK, restartUri: RESTART, language: 'zh' }
  return {
    account,
    platform,
    operator,
    lifecycle,
    advance: (ms: number) => {
      now += ms
    },
    now: () => now,
    async begin(more: { reauthenticate?: boolean; appid?: string; returnUri?: string } = {}) {
      const returnUri = 'https://here.example/connect/sign-in/return'
      const begun = await account.beginSignIn({ browserKey: BROWSER, source: '', returnUri, ...asked, ...more })
      const address = new URL(begun.redirectTo)
      expect(address.href).toMatch(/^https:\/\/platform\.example\/login\?tenant=a&sign_in_challenge=[\w-]{43}&lang=zh$/)
      return address.searchParams.get('sign_in_challenge') ?? ''
    },
    async complete(redirectTo: string, browserKey = BROWSER, previousSessionToken = '') {
      const verifier = new URL(redirectTo).searchParams.get('verifier') ?? ''
      expect(redirectTo).toBe(`https://here.example/connect/sign-in/return?verifier=${verifier}`)
      expect(verifier).toMatch(/^[\w-]{43}$/)
      return account.completeSignIn({ verifier, browserKey, previousSessionToken })
    },
  }
}

/** The reason of a failure and its restart_uri. */
async function failureOf(call: Promise<unknown>) {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof ConnectError)) throw new Error('the call did not fail')
  const [info] = error.findDetails(ErrorInfoSchema)
  return [reasonIn(error), info?.metadata.restart_uri]
}

test('a person accepted by the platform is signed in when the browser comes back, and is a user from then on', async () => {
  const { account, platform, operator, begin, complete, now } = await start()
  const signInChallenge = await begin()
  expect(signInChallenge).toMatch(/^[\w-]{43}$/)
  expect(await platform.getSignInRequest({ signInChallenge })).toMatchObject({
    state: SignInState.PENDING,
    appName: 'Reader',
    callbackHost: 'app.example:8443',
    language: 'zh',
    reauthenticate: false,
    restartUri: RESTART,
    expireTime: timestampFromMs(now() + 30 * MINUTE),
  })
  const accepting = { signInChallenge, externalId: '4711', nickname: '安' }
  const { redirectTo } = await platform.acceptSignIn(accepting)
  expect(await complete(redirectTo, 'o'.repeat(43))).toMatchObject({ outcome: Outcome.OTHER_BROWSER, restartUri: '' })
  const returned = await complete(redirectTo)
  expect(returned).toMatchObject({
    outcome: Outcome.SIGNED_IN,
    restartUri: RESTART,
    expireTime: timestampFromMs(now() + 10 * MINUTE),
  })
  expect(await account.getSession({ sessionToken: returned.sessionToken })).toMatchObject({
    nickname: '安',
    username: expect.stringMatching(/^~user_/),
  })
  expect(await operator.getUser({ externalId: '4711' })).toMatchObject({ user: { hasPassword: false, nickname: '安' } })
  expect(await platform.getSignInRequest({ signInChallenge })).toMatchObject({ state: SignInState.DONE })
  expect(await complete(redirectTo)).toMatchObject({ outcome: Outcome.UNKNOWN, restartUri: RESTART, sessionToken: '' })
  expect(await complete(redirectTo, 'o'.repeat(43))).toMatchObject({ outcome: Outcome.OTHER_BROWSER, restartUri: '' })
  expect(await failureOf(platform.acceptSignIn(accepting))).toEqual([ErrorReason.SIGN_IN_DECIDED, RESTART])
})

test('a decision may be repeated and not changed, and one that comes too late says where to begin anew', async () => {
  const { platform, begin, complete, advance } = await start()
  const signInChallenge = await begin()
  const first = await platform.acceptSignIn({ signInChallenge, externalId: '4711', sessionSeconds: 3_600 })
  const second = await platform.acceptSignIn({ signInChallenge, externalId: '4711' })
  expect(await failureOf(platform.acceptSignIn({ signInChallenge, externalId: '4712' }))).toEqual([
    ErrorReason.SIGN_IN_DECIDED,
    RESTART,
  ])
  expect(await failureOf(platform.rejectSignIn({ signInChallenge }))).toEqual([ErrorReason.SIGN_IN_DECIDED, RESTART])
  expect(await complete(first.redirectTo)).toMatchObject({ outcome: Outcome.UNKNOWN })
  expect(await complete(second.redirectTo)).toMatchObject({ outcome: Outcome.SIGNED_IN })

  const late = await begin()
  advance(30 * MINUTE)
  expect(await failureOf(platform.acceptSignIn({ signInChallenge: late, externalId: '4711' }))).toEqual([
    ErrorReason.SIGN_IN_EXPIRED,
    RESTART,
  ])
  expect(await platform.getSignInRequest({ signInChallenge: late })).toMatchObject({
    state: SignInState.EXPIRED,
    restartUri: RESTART,
  })
  for (const unknown of [late.slice(1), 'x'.repeat(43)]) {
    expect(await failureOf(platform.getSignInRequest({ signInChallenge: unknown }))).toEqual([
      ErrorReason.NOT_FOUND,
      undefined,
    ])
  }
})

test.each([
  [SignInRejection.CANCELLED, Outcome.CANCELLED],
  [SignInRejection.UNSPECIFIED, Outcome.CANCELLED],
  [SignInRejection.NOT_ALLOWED, Outcome.NOT_ALLOWED],
])('a rejection for reason %i comes back as outcome %i', async (reason, outcome) => {
  const { platform, begin, complete } = await start()
  const { redirectTo } = await platform.rejectSignIn({ signInChallenge: await begin(), reason })
  expect(await complete(redirectTo)).toMatchObject({ outcome, restartUri: RESTART, sessionToken: '' })
})

test('where the person must sign in anew, one who signed in more than 5 minutes ago is not accepted', async () => {
  const { platform, begin, now } = await start()
  const signInChallenge = await begin({ reauthenticate: true })
  const accept = (ageMs: number) =>
    platform.acceptSignIn({ signInChallenge, externalId: '4711', authenticateTime: timestampFromMs(now() - ageMs) })
  expect(await failureOf(accept(5 * MINUTE + 1))).toEqual([ErrorReason.INVALID_ARGUMENT, undefined])
  expect(await accept(5 * MINUTE)).toMatchObject({ redirectTo: expect.stringContaining('verifier=') })
})

test('a sign-in begins only for an app that may be sent codes there', async () => {
  const { begin, account } = await start()
  expect((await failureOf(begin({ appid: 'app_none' })))[0]).toBe(ErrorReason.INVALID_APPID)
  const stray = { browserKey: BROWSER, returnUri: 'r', restartUri: 'r', appid: '', redirectUri: 'https://evil.example' }
  expect(await account.beginSignIn(stray)).toMatchObject({ redirectTo: expect.stringContaining('sign_in_challenge=') })
  const elsewhere = account.beginSignIn({ ...stray, provider: 'nowhere' })
  expect((await failureOf(elsewhere))[0]).toBe(ErrorReason.NOT_FOUND)
})

test('a platform ends sessions, disables and deletes its users by external_id, and nobody else', async () => {
  const { platform, operator, lifecycle, begin, complete, account } = await start()
  const enter = async () => {
    const { redirectTo } = await platform.acceptSignIn({ signInChallenge: await begin(), externalId: '4711' })
    return complete(redirectTo)
  }
  const which = { externalId: '4711' }
  const { sessionToken } = await enter()
  expect(await lifecycle.endUserSessions(which)).toMatchObject({ sessions: 1 })
  expect((await failureOf(account.getSession({ sessionToken })))[0]).toBe(ErrorReason.INVALID_SESSION)
  const signInChallenge = await begin()
  const { redirectTo } = await platform.acceptSignIn({ signInChallenge, ...which })
  await lifecycle.setUserDisabled({ ...which, disabled: true })
  expect(await complete(redirectTo)).toMatchObject({ outcome: Outcome.USER_DISABLED, restartUri: RESTART })
  expect(await failureOf(enter())).toEqual([ErrorReason.USER_DISABLED, undefined])
  await lifecycle.deleteUser(which)
  expect((await failureOf(enter()))[0]).toBe(ErrorReason.USER_DISABLED)
  await operator.createUser({ username: 'ann', password: 'correct horse' })
  for (const other of [{ username: 'ann' }, { userId: 'user_x' }]) {
    expect((await failureOf(lifecycle.getUser(other)))[0]).toBe(ErrorReason.INVALID_ARGUMENT)
  }
  const { events } = await operator.listAuditEvents({})
  expect(events.filter(({ kind }) => kind === 'user.deleted')).toMatchObject([
    { actor: 'sign_in', actorId: ownName(), actorSource: 'local' },
  ])
  const started = events.filter(({ kind }) => kind === 'session.started')
  for (const { actorId, userId } of started) expect(actorId).toBe(userId)
  expect(new Set(started.map(({ actorSource }) => actorSource))).toEqual(new Set(['platform']))
  await operator.createUser(which)
  expect(await enter()).toMatchObject({ outcome: Outcome.SIGNED_IN })
})

test('a gateway cannot accept a sign-in, however it is compromised', async () => {
  const dispatcher = new Dispatcher({ mayCall, onCall: () => {}, onUnexpected: () => {}, maxDeadlineMs: 5_000 })
  dispatcher.register(SignInService, {} as never)
  const gateway = clientOf(SignInService, createDirectDoor(dispatcher, 'gateway'))
  await expect(gateway.acceptSignIn({ signInChallenge: 'x', externalId: 'y' })).rejects.toMatchObject({
    code: Code.PermissionDenied,
  })
})
