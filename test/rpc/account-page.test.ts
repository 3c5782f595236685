// What the account page stands on: a user's sessions, password and identities, and a provider that ends sessions.
import { randomBytes } from 'node:crypto'
import { OAuth2Server } from 'oauth2-mock-server'
import { expect, onTestFinished, test, vi } from 'vitest'
import { readConfig } from '../../bin/config.js'
import {
  AccountService,
  CompleteSignInResponse_Outcome as Outcome,
} from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, createDirectDoor } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { reasonIn } from '../../services/rpc/service-error.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { createProvider } from '../../services/token/oidc/provider.js'
import { createPasswordHasher } from '../../services/token/password/hasher.js'
import { createTimeFloor } from '../../services/token/password/time-floor.js'
import { createSignInLimiter } from '../../services/token/sign-in-limiter.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { createTokenHandlers } from '../../services/token/token-service.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'

const MINUTE = 60_000
const BROWSER = 'b'.repeat(43)
const RESTART = 'https://here.example/connect/account'
const PASSWORD = 'correct horse'
const CALLBACK = 'https://here.example/connect/oidc/corp/callback'

/** A provider that signs everybody in as `subject`, with a session of this `sid`. */
async function startProvider() {
  const server = new OAuth2Server()
  await server.issuer.keys.generate('RS256')
  await server.start(0, '127.0.0.1')
  onTestFinished(() => (server.listening ? server.stop() : undefined))
  const issuer = `http://127.0.0.1:${server.address().port}`
  server.issuer.url = issuer
  const signsIn = { sub: 'u-1', name: 'Ann', sid: 's-1' }
  server.service.on('beforeTokenSigning', ({ payload }) => Object.assign(payload, signsIn))
  const logoutToken = (claims: Record<string, unknown>) =>
    server.issuer.buildToken({
      scopesOrTransform: (_, payload) => {
        const events = { 'http://schemas.openid.net/event/backchannel-logout': {} }
        Object.assign(payload, { aud: 'surveys', jti: randomBytes(8).toString('hex'), events, ...claims })
      },
    })
  return { server, issuer, signsIn, logoutToken }
}

async function start(change: (store: TokenStore) => TokenStore = (store) => store) {
  let now = 1_767_225_600_000
  const provider = await startProvider()
  const store = change(openSqliteTokenStore({ file: ':memory:' }))
  onTestFinished(() => store.close())
  const passwords = createPasswordHasher({ concurrency: 1, queueLimit: 9, cost: { memoryCost: 8, timeCost: 1 } })
  const corp = createProvider(
    {
      id: 'corp',
      label: { en: 'Corp', zh: '企业' },
      issuer: provider.issuer,
      clientId: 'surveys',
      clientSecret: 'a-secret',
      tokenAuth: 'client_secret_basic',
      scopes: ['openid'],
      claims: { nickname: 'name', avatar: 'picture' },
      provision: 'create',
      require: {},
      switchAccountPrompt: 'select_account',
      timeoutMs: 2_000,
    },
    Date.now,
  )
  const limits = { perAccountAndSource: 3, perSource: 99, windowSeconds: 600 }
  const handlers = createTokenHandlers({
    store,
    rules: readConfig({}),
    now: () => now,
    randomBytes,
    passwords,
    timeFloor: createTimeFloor(store, passwords),
    signInLimiter: createSignInLimiter(limits, store, () => now),
    signInMethods: { password: true, platform: undefined, providers: new Map([['corp', corp]]) },
    uses: createUseRecorder(store),
  })
  const dispatcher = new Dispatcher({ mayCall, onCall: () => {}, onUnexpected: () => {}, maxDeadlineMs: 5_000 })
    .register(AccountService, handlers.account)
    .register(AdminService, handlers.admin)
  const account = clientOf(AccountService, createDirectDoor(dispatcher, 'gateway'))
  const operator = clientOf(AdminService, createDirectDoor(dispatcher, 'operator'))
  await operator.createUser({ username: 'ann', password: PASSWORD })
  const begin = { browserKey: BROWSER, source: '', returnUri: CALLBACK, restartUri: RESTART, language: 'en' }

  /** Goes where the provider sends the browser; answers what it brings back. */
  async function visit({ redirectTo }: { redirectTo: string }) {
    const answer = await fetch(redirectTo, { redirect: 'manual' })
    return new URL(answer.headers.get('location') ?? '').search.slice(1)
  }

  return {
    ...provider,
    account,
    operator,
    store,
    advance(ms: number) {
      now += ms
    },
    async signIn(browser = 'Firefox, Linux', password = PASSWORD) {
      return (await account.signIn({ username: 'ann', password, browser })).sessionToken
    },
    async signInAtProvider() {
      const parameters = await visit(await account.beginSignIn({ ...begin, provider: 'corp' }))
      const back = { provider: 'corp', parameters, browserKey: BROWSER, browser: 'Safari, iOS' }
      const { outcome, sessionToken } = await account.completeSignIn(back)
      expect(outcome).toBe(Outcome.SIGNED_IN)
      return sessionToken
    },
    beginLink: (sessionToken: string, password = '') =>
      account.beginLink({ ...begin, sessionToken, password, provider: 'corp' }),
    async completeLink(begun: { redirectTo: string }, previousSessionToken: string) {
      const back = { provider: 'corp', parameters: await visit(begun), browserKey: BROWSER, previousSessionToken }
      return account.completeSignIn(back)
    },
  }
}

async function reasonOf(call: Promise<unknown>) {
  return call.then(
    () => undefined,
    (error) => reasonIn(error),
  )
}

test('an account has its ways to sign in and its sessions, this one first, each with its browser and its way', async () => {
  const { account, signIn, signInAtProvider, operator, advance } = await start()
  await operator.linkIdentity({ username: 'ann', provider: 'corp', subject: 'u-1' })
  await signInAtProvider()
  advance(MINUTE)
  const sessionToken = await signIn()
  advance(1)
  await signIn('Edge, Windows')
  const corp = { provider: 'corp', labelEn: 'Corp', labelZh: '企业' }
  expect(await account.getAccount({ sessionToken })).toMatchObject({
    username: 'ann',
    hasPassword: true,
    way: { password: true },
    justBegan: true,
    identities: [{ provider: corp, subject: 'u-1', canUnlink: true }],
    sessions: [
      { isThis: true, browser: 'Firefox, Linux', way: { password: true } },
      { isThis: false, browser: 'Edge, Windows', way: { password: true } },
      { isThis: false, browser: 'Safari, iOS', way: { password: false, provider: corp } },
    ],
  })
  advance(5 * MINUTE + 1)
  expect(await account.getAccount({ sessionToken })).toMatchObject({ justBegan: false })
})

test('a user who came from a provider has neither name nor password, and one way to sign in, which stays', async () => {
  const { account, signInAtProvider } = await start()
  const sessionToken = await signInAtProvider()
  expect(await account.getAccount({ sessionToken })).toMatchObject({
    username: '',
    hasPassword: false,
    identities: [{ subject: 'u-1', canUnlink: false }],
  })
  const identity = { sessionToken, provider: 'corp', subject: 'u-1' }
  expect(await reasonOf(account.unlink(identity))).toBe(ErrorReason.INVALID_ARGUMENT)
  const change = { sessionToken, currentPassword: PASSWORD, newPassword: 'battery staple' }
  expect(await reasonOf(account.changePassword(change))).toBe(ErrorReason.INVALID_CREDENTIALS)
})

test('whoever is signed in is so too while the database takes no writes, and activity cannot be recorded', async () => {
  const refused = vi.fn(() => Promise.reject(new StoreUnavailable(new Error('no space'))))
  const { account, signIn, advance } = await start((store) => ({ ...store, touchSession: refused }))
  const sessionToken = await signIn()
  advance(MINUTE)
  expect(await account.getAccount({ sessionToken })).toMatchObject({ username: 'ann' })
  expect(refused).toHaveBeenCalledOnce()
})

test('a user ends one session or all others, and not those of anybody else', async () => {
  const { account, operator, signIn } = await start()
  await operator.createUser({ username: 'bob', password: PASSWORD })
  const bob = (await account.signIn({ username: 'bob', password: PASSWORD })).sessionToken
  const [one, two, three] = [await signIn(), await signIn('two'), await signIn('three')]
  const idOf = async (sessionToken: string) => (await account.getAccount({ sessionToken })).sessions[0]?.sessionId ?? ''
  expect(await account.endSessions({ sessionToken: one, sessionId: await idOf(bob) })).toMatchObject({ sessions: 0 })
  expect(await account.endSessions({ sessionToken: one, sessionId: await idOf(two) })).toMatchObject({ sessions: 1 })
  expect(await reasonOf(account.getSession({ sessionToken: two }))).toBe(ErrorReason.INVALID_SESSION)
  expect(await account.endSessions({ sessionToken: one })).toMatchObject({ sessions: 1 })
  expect(await reasonOf(account.getSession({ sessionToken: three }))).toBe(ErrorReason.INVALID_SESSION)
  for (const sessionToken of [one, bob]) expect(await account.getSession({ sessionToken })).toBeDefined()
})

test('a password is changed by whoever knows the current one, which ends all other sessions', async () => {
  const { account, signIn } = await start()
  const [here, elsewhere] = [await signIn(), await signIn()]
  const change = { sessionToken: here, currentPassword: PASSWORD, newPassword: 'battery staple' }
  expect(await reasonOf(account.changePassword({ ...change, newPassword: 'short' }))).toBe(ErrorReason.INVALID_ARGUMENT)
  expect(await reasonOf(account.changePassword({ ...change, currentPassword: 'wrong' }))).toBe(
    ErrorReason.INVALID_CREDENTIALS,
  )
  expect(await account.getSession({ sessionToken: elsewhere })).toBeDefined()
  await account.changePassword(change)
  expect(await account.getSession({ sessionToken: here })).toBeDefined()
  expect(await reasonOf(account.getSession({ sessionToken: elsewhere }))).toBe(ErrorReason.INVALID_SESSION)
  expect(await reasonOf(signIn())).toBe(ErrorReason.INVALID_CREDENTIALS)
  await signIn('', 'battery staple')
})

test('guessing the current password is slowed down as at a sign-in', async () => {
  const { account, signIn } = await start()
  const change = { sessionToken: await signIn(), currentPassword: 'wrong', newPassword: 'battery staple' }
  for (let i = 0; i < 3; i += 1)
    expect(await reasonOf(account.changePassword(change))).toBe(ErrorReason.INVALID_CREDENTIALS)
  const right = { ...change, currentPassword: PASSWORD }
  expect(await reasonOf(account.changePassword(right))).toBe(ErrorReason.RATE_LIMITED)
})

test('an identity is linked by a user who has just signed in, or types the password again, and then signs in by it', async () => {
  const { account, signIn, signInAtProvider, advance, beginLink, completeLink } = await start()
  const sessionToken = await signIn()
  advance(5 * MINUTE)
  await beginLink(sessionToken)
  advance(1)
  expect(await reasonOf(beginLink(sessionToken))).toBe(ErrorReason.INVALID_CREDENTIALS)
  expect(await reasonOf(beginLink(sessionToken, 'wrong'))).toBe(ErrorReason.INVALID_CREDENTIALS)
  const begun = await beginLink(sessionToken, PASSWORD)
  const linked = { outcome: Outcome.LINKED, restartUri: RESTART, sessionToken: '' }
  expect(await completeLink(begun, sessionToken)).toMatchObject(linked)
  const { username } = await account.getSession({ sessionToken: await signInAtProvider() })
  expect(username).toBe('ann')
  await account.unlink({ sessionToken, provider: 'corp', subject: 'u-1' })
  const again = account.unlink({ sessionToken, provider: 'corp', subject: 'u-1' })
  expect(await reasonOf(again)).toBe(ErrorReason.NOT_FOUND)
})

test('whoever signs in at the provider after the user has signed out here is not linked to that user', async () => {
  const { account, operator, signIn, beginLink, completeLink } = await start()
  const sessionToken = await signIn()
  const begun = await beginLink(sessionToken)
  await account.signOut({ sessionToken })
  expect(await completeLink(begun, sessionToken)).toMatchObject({ outcome: Outcome.EXPIRED })
  expect((await operator.listIdentities({ username: 'ann' })).identities).toEqual([])
})

test('whoever comes back from the provider after the session has expired is not linked to its user', async () => {
  const { account, operator, signIn, advance, beginLink, completeLink } = await start()
  const sessionToken = await signIn()
  for (let quarters = 0; quarters < 47; quarters += 1) {
    advance(15 * MINUTE)
    await account.getSession({ sessionToken })
  }
  const begun = await beginLink(sessionToken, PASSWORD)
  advance(15 * MINUTE)
  expect(await completeLink(begun, sessionToken)).toMatchObject({ outcome: Outcome.EXPIRED })
  expect((await operator.listIdentities({ username: 'ann' })).identities).toEqual([])
})

test('signing out says how the session began, where its user may still be signed in', async () => {
  const { account, signIn, signInAtProvider } = await start()
  expect(await account.signOut({ sessionToken: await signIn() })).toMatchObject({ way: { password: true } })
  const sessionToken = await signInAtProvider()
  const { way } = await account.signOut({ sessionToken })
  expect(way).toMatchObject({ password: false, provider: { labelEn: 'Corp' } })
  expect((await account.signOut({ sessionToken })).way).toBeUndefined()
})

test('a provider ends the sessions that began with its own, else all of its user, and the operator sees who did', async () => {
  const { account, operator, signIn, signInAtProvider, signsIn, logoutToken } = await start()
  await operator.linkIdentity({ username: 'ann', provider: 'corp', subject: 'u-1' })
  const here = await signIn()
  const first = await signInAtProvider()
  signsIn.sid = 's-2'
  const [second, third] = [await signInAtProvider(), await signInAtProvider()]
  const end = async (claims: Record<string, unknown>) =>
    account.endProviderSessions({ provider: 'corp', logoutToken: await logoutToken(claims) })
  const open = async () => {
    const tokens = { here, first, second, third }
    const reasons = Object.entries(tokens).map(async ([name, sessionToken]) =>
      (await reasonOf(account.getSession({ sessionToken }))) === undefined ? [name] : [],
    )
    return (await Promise.all(reasons)).flat()
  }
  await end({ sub: undefined, sid: 's-1' })
  expect(await open()).toEqual(['here', 'second', 'third'])
  await end({ sub: 'u-1', sid: undefined })
  expect(await open()).toEqual(['here'])
  const { events } = await operator.listAuditEvents({ username: 'ann' })
  const ended = events.filter(({ kind }) => kind === 'session.ended')
  expect(ended).toHaveLength(3)
  for (const event of ended) expect(event).toMatchObject({ actorSource: 'corp', note: 'signed out at corp' })
})

test('a logout token is taken once, and again when it could not be obeyed', async () => {
  let fails = true
  const { account, signInAtProvider, logoutToken } = await start((store) => ({
    ...store,
    endProviderSessions: async (...end) => {
      if (fails) throw new StoreUnavailable('out of order')
      return store.endProviderSessions(...end)
    },
  }))
  await signInAtProvider()
  const taken = { provider: 'corp', logoutToken: await logoutToken({ sub: 'u-1', sid: undefined }) }
  expect(await reasonOf(account.endProviderSessions(taken))).toBe(ErrorReason.UNAVAILABLE)
  fails = false
  await account.endProviderSessions(taken)
  const sessionToken = await signInAtProvider()
  expect(await reasonOf(account.endProviderSessions(taken))).toBe(ErrorReason.INVALID_TOKEN)
  expect(await account.getSession({ sessionToken })).toBeDefined()
})

test('a logout token of nobody we know, or that is not to be believed, ends nothing', async () => {
  const { account, server, signInAtProvider, logoutToken } = await start()
  const sessionToken = await signInAtProvider()
  const good = await logoutToken({ sub: 'u-1' })
  const end = (logoutToken: string, provider = 'corp') =>
    reasonOf(account.endProviderSessions({ provider, logoutToken }))
  expect(await end(good, 'elsewhere')).toBe(ErrorReason.NOT_FOUND)
  for (const claims of [{ aud: 'others' }, { events: {} }, { nonce: 'n' }, { iat: 1_000_000_000, exp: undefined }])
    expect(await end(await logoutToken({ sub: 'u-1', ...claims }))).toBe(ErrorReason.INVALID_TOKEN)
  expect(await end(`${good.slice(0, -8)}AAAAAAAA`)).toBe(ErrorReason.INVALID_TOKEN)
  expect(await end('')).toBe(ErrorReason.INVALID_TOKEN)
  expect(await account.getSession({ sessionToken })).toBeDefined()
  await server.stop()
  expect(await end(good)).toBeUndefined() // its keys are known
})
