import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { toMs } from '../harness/clock.js'
import { expectError } from '../harness/envelope.js'
import { authorizePath, tokensOf, type Verbs, whenAnswered } from '../harness/verbs.js'
import { openService, startService } from '../harness.js'

/** Of all tests that need none of their own: each makes its own apps and users. */
let service: Verbs
beforeAll(async () => {
  service = await openService()
})
afterAll(() => service.backend.close())

async function withCode(service: Verbs) {
  const app = await service.createApp()
  const user = await service.createUser()
  return { app, user, code: await service.issueCode(app, user) }
}

/** RFC 7636, appendix B. */
const PKCE = {
  verifier: 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk',
  challenge: { code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM', code_challenge_method: 'S256' },
}

describe('a code that was asked for with a code_challenge', () => {
  async function withChallenge() {
    const [app, user] = [await service.createApp(), await service.createUser()]
    const code = await service.issueCode(app, user, { changed: PKCE.challenge })
    return {
      app,
      user,
      code,
      exchange: (verifier?: string) => service.exchange(app, code, { code_verifier: verifier }),
    }
  }

  test('needs its code_verifier, through sign-in and consent, and survives every try without', async () => {
    const { app, code, exchange } = await withChallenge()
    for (const wrong of [undefined, '', PKCE.verifier.toLowerCase(), PKCE.challenge.code_challenge, 'a'.repeat(128)])
      expectError(await exchange(wrong), 'invalid_code')
    const garbage = await service.exchange(app, 'garbage', { code_verifier: PKCE.verifier })
    expect((await exchange()).message).toBe(garbage.message)
    expectError(await service.exchange({ ...app, secret: 'wrong' }, code), 'invalid_secret')
    expect((await exchange(PKCE.verifier)).code).toBe('OK')
    expectError(await exchange(PKCE.verifier), 'invalid_code')
  })

  test.each([
    { what: 'of 42 characters', verifier: 'a'.repeat(42) },
    { what: 'of 129 characters', verifier: 'a'.repeat(129) },
    { what: 'with a character that is reserved', verifier: `${'a'.repeat(43)}+` },
    { what: 'with a line break at the end', verifier: `${'a'.repeat(43)}\n` },
  ])('is not exchanged with a code_verifier $what, which is malformed', async ({ verifier }) => {
    const { exchange } = await withChallenge()
    const answer = await exchange(verifier)
    expectError(answer, 'invalid_argument')
    expect(answer.message).toMatch(/^code_verifier/)
    expect((await exchange(PKCE.verifier)).code).toBe('OK')
  })

  test('keeps it out of the log, and its code_verifier too', async () => {
    const { exchange } = await withChallenge()
    await exchange('a-code-verifier-that-is-not-the-right-one-at-all')
    await exchange(PKCE.verifier)
    for (const canary of ['a-code-verifier', PKCE.verifier, PKCE.challenge.code_challenge])
      expect(service.backend.log()).not.toContain(canary)
  })

  test('is another one than that of the same form with another or none', async () => {
    const { appid, redirectUri } = await service.createApp()
    const { account, token } = service.backend.asGateway
    const { sessionToken } = await account.signIn({ ...(await service.createUser()), source: '192.0.2.1' })
    const asked = { sessionToken, requestId: 'the first of the forms', appid, redirectUri, scope: 'snsapi_user' }
    const codes = ['', PKCE.challenge.code_challenge, 'a'.repeat(43)].map((codeChallenge) =>
      token.issueCode({ ...asked, codeChallenge }),
    )
    expect(new Set((await Promise.all(codes)).map(({ code }) => code)).size).toBe(3)
    await expect(token.issueCode({ ...asked, codeChallenge: 'short' })).rejects.toThrow('code_challenge must be 43')
  })
})

describe('a code that was asked for without a code_challenge', () => {
  test('is not exchanged with a code_verifier: somebody may have taken the challenge away', async () => {
    const { app, code } = await withCode(service)
    expectError(await service.exchange(app, code, { code_verifier: PKCE.verifier }), 'invalid_code')
    expect((await service.exchange(app, code)).code).toBe('OK')
  })

  test('is not to be had for an app that requires PKCE, on our page or by RPC', async () => {
    const app = await service.createApp()
    const user = await service.createUser()
    const before = await service.issueCode(app, user)
    await service.admin.updateApp({ appid: app.appid, requiresPkce: true })
    const reply = await service.visitor('en').request(authorizePath(app))
    expect([reply.status, reply.headers.has('location')]).toEqual([400, false])
    expect(reply.text).toContain('code_challenge')
    const { account, token } = service.backend.asGateway
    const { sessionToken } = await account.signIn({ ...user, source: '192.0.2.1' })
    const asked = { sessionToken, requestId: 'the first of the forms', scope: 'snsapi_user', ...app }
    await expect(token.issueCode(asked)).rejects.toThrow('code_challenge must be 43')
    const code = await service.issueCode(app, user, { changed: PKCE.challenge })
    expect((await service.exchange(app, code, { code_verifier: PKCE.verifier })).code).toBe('OK')
    expect((await service.exchange(app, before)).code, 'issued before').toBe('OK')
    await service.admin.updateApp({ appid: app.appid, requiresPkce: false })
    expect((await service.exchange(app, await service.issueCode(app, user))).code).toBe('OK')
  })
})

describe('a code', () => {
  test('is redeemed at most once', async () => {
    const { app, code } = await withCode(service)
    expect((await service.exchange(app, code)).code).toBe('OK')
    expectError(await service.exchange(app, code), 'invalid_code')
  })

  test('belongs to one form, app and redirect_uri: with any other of them another code is issued', async () => {
    const user = await service.createUser()
    const { account, token } = service.backend.asGateway
    const { sessionToken } = await account.signIn({ ...user, source: '192.0.2.1' })
    const redirectUris = ['https://app.example/one', 'https://app.example/two']
    const create = async (name: string) => (await service.admin.createApp({ name, redirectUris })).app?.appid ?? ''
    const codes: string[] = []
    for (const appid of [await create('One'), await create('Two')]) {
      for (const redirectUri of redirectUris) {
        for (const requestId of ['the first of the forms', 'the other of the forms']) {
          const asked = { sessionToken, requestId, appid, redirectUri, scope: 'snsapi_user' }
          codes.push((await token.issueCode(asked)).code)
          expect((await token.issueCode(asked)).code).toBe(codes.at(-1))
        }
      }
    }
    expect(new Set(codes).size).toBe(8)
  })

  test('is issued only for a registered redirect_uri and the one scope, even to callers of the RPC', async () => {
    const { appid, redirectUri } = await service.createApp()
    const { account, token } = service.backend.asGateway
    const { sessionToken } = await account.signIn({ ...(await service.createUser()), source: '192.0.2.1' })
    const good = { sessionToken, requestId: 'the first of the forms', appid, redirectUri, scope: 'snsapi_user' }
    const unregistered = { ...good, redirectUri: `${redirectUri}/` }
    await expect(token.issueCode(unregistered)).rejects.toThrow('the redirect_uri is not registered for this app')
    await expect(token.issueCode({ ...good, scope: 'snsapi_base' })).rejects.toThrow('scope must be snsapi_user')
    expect((await token.issueCode(good)).code).not.toBe('')
    const { events } = await service.admin.listAuditEvents({ appid })
    expect(events.filter(({ kind }) => kind === 'code.issued')).toHaveLength(1)
  })

  test('stays good when the deadline of its exchange passed before the exchange could begin', async () => {
    const { app, code } = await withCode(service)
    const { appid, secret, redirectUri } = app
    const exchange = { appid, secret, code, redirectUri }
    const late = service.backend.asGateway.token.exchangeCode(exchange, { timeoutMs: 1 }).then(
      () => 'exchanged',
      () => 'failed',
    )
    const until = performance.now() + 50
    while (performance.now() < until); // blocks the process
    expect(await late).toBe('failed')
    expect((await service.exchange(app, code)).code).toBe('OK')
  })

  test('exchanged 200 times in parallel yields one OK and 199 invalid_code, and one grant', async () => {
    const { app, code } = await withCode(service)
    const exchange = () => whenAnswered(() => service.exchange(app, code))
    const answers = await Promise.all(Array.from({ length: 200 }, exchange))
    const winners = answers.filter(({ code: status }) => status === 'OK')
    expect(winners).toHaveLength(1)
    expect(answers.filter(({ type }) => type === 'invalid_code')).toHaveLength(199)
    expect(await service.grantIds({ appid: app.appid })).toHaveLength(1)
    const [winner] = winners
    if (winner === undefined) throw new Error('nobody won')
    expectError(await service.user({ app, tokens: tokensOf(winner) }, { openid: 'other' }), 'claim_error')
  })

  test('survives every failed try: wrong secret, wrong grant_type, another app, wrong redirect_uri', async () => {
    const { app, code } = await withCode(service)
    const stranger = await service.createApp()
    expectError(await service.exchange({ ...app, secret: 'wrong' }, code), 'invalid_secret')
    expectError(await service.exchange(app, code, { grant_type: 'wrong' }), 'invalid_grant_type')
    expectError(await service.exchange(stranger, code), 'invalid_code')
    const elsewhere = await service.exchange(app, code, { redirect_uri: 'https://app.example/other' })
    expectError(elsewhere, 'invalid_code')
    expect(elsewhere.message).toContain('redirect_uri')
    expectError(await service.exchange(app, code, { appid: '' }), 'invalid_argument')
    expect((await service.exchange(app, code)).code).toBe('OK')
  })

  test('of another app gets the same answer as garbage, word for word', async () => {
    const { app, code } = await withCode(service)
    const stranger = await service.createApp()
    const texts = await Promise.all(
      [code, 'garbage', `${code.slice(0, -1)}_`].map(async (text) => {
        const { status, code: name, type, message, action } = await service.exchange(stranger, text)
        return JSON.stringify({ status, name, type, message, action })
      }),
    )
    await service.exchange(app, code)
    expect(new Set(texts).size).toBe(1)
  })

  test.each([
    { at: '1 ms before', ms: -1, code: 'OK', type: '' },
    { at: 'at', ms: 0, code: 'InvalidArgument', type: 'invalid_code' },
    { at: '1 ms after', ms: 1, code: 'InvalidArgument', type: 'invalid_code' },
  ])('$at its 300 s answers "$type"', async ({ ms, code: expected, type }) => {
    const { app, code } = await withCode(service)
    service.clock.advance({ seconds: 300, ms })
    const answer = await service.exchange(app, code)
    expect({ code: answer.code, type: answer.type }).toEqual({ code: expected, type })
  })

  test('lives as long as CODE_TTL_SECONDS says', async () => {
    const own = await startService({ env: { CODE_TTL_SECONDS: '2' } })
    const first = await withCode(own)
    own.clock.advance({ seconds: 2, ms: -1 })
    expect((await own.exchange(first.app, first.code)).code).toBe('OK')
    const second = await own.issueCode(first.app, first.user)
    own.clock.advance({ seconds: 2 })
    expectError(await own.exchange(first.app, second), 'invalid_code')
  })

  test('accepts the redirect_uri it was issued for', async () => {
    const { app, code } = await withCode(service)
    expect((await service.exchange(app, code, { redirect_uri: app.redirectUri })).code).toBe('OK')
  })

  test('is not an access token, a refresh token or a secret', async () => {
    const { app, user, code } = await withCode(service)
    const { tokens } = await service.grantAccess({ app, user })
    expectError(await service.user({ app, tokens }, { access_token: code }), 'invalid_token')
    expectError(await service.refresh(app, code), 'invalid_refresh_token')
    expectError(await service.exchange({ ...app, secret: code }, code), 'invalid_secret')
    expect((await service.exchange(app, code)).code).toBe('OK')
  })

  test.each([
    {
      event: 'the app is disabled',
      type: 'invalid_appid',
      cause: (s: Verbs, appid: string) => s.admin.setAppDisabled({ appid, disabled: true }),
    },
    {
      event: 'the user is disabled',
      type: 'invalid_code',
      cause: (s: Verbs, _: string, username: string) => s.admin.setUserDisabled({ username, disabled: true }),
    },
    {
      event: 'the user is given a new password',
      type: 'invalid_code',
      cause: (s: Verbs, _: string, username: string) =>
        s.admin.setUserPassword({ username, password: 'a new password' }),
    },
  ] as const)('is refused when $event before the exchange', async ({ type, cause }) => {
    const { app, user, code } = await withCode(service)
    await cause(service, app.appid, user.username)
    expectError(await service.exchange(app, code), type)
  })

  test('stays dead when its disabled app is enabled again', async () => {
    const { app, code } = await withCode(service)
    await service.admin.setAppDisabled({ appid: app.appid, disabled: true })
    await service.admin.setAppDisabled({ appid: app.appid, disabled: false })
    expectError(await service.exchange(app, code), 'invalid_code')
  })

  test('dies when its redirect_uri is removed from its app, for good, and codes of other redirect_uris do not', async () => {
    const [app, user] = [await service.createApp(), await service.createUser()]
    const { appid, redirectUri } = app
    const other = { ...app, redirectUri: 'https://app.example/v2' }
    const register = (redirectUris: string[]) => service.admin.updateApp({ appid, redirectUris })
    await register([redirectUri, other.redirectUri])
    const [dead, deadToo, good] = [
      await service.issueCode(app, user),
      await service.issueCode(app, await service.createUser()),
      await service.issueCode(other, user),
    ]
    const unrelated = await withCode(service)
    await register([other.redirectUri])
    expectError(await service.exchange(app, dead), 'invalid_code')
    expectError(await service.exchange(app, dead, { redirect_uri: redirectUri }), 'invalid_code')
    await register([redirectUri, other.redirectUri])
    expectError(await service.exchange(app, deadToo), 'invalid_code')
    expect((await service.exchange(app, good)).code).toBe('OK')
    expect((await service.exchange(unrelated.app, unrelated.code)).code).toBe('OK')
    expect((await service.exchange(app, await service.issueCode(app, user))).code).toBe('OK')
  })

  test('dies with the revocation of a grant of its app and user', async () => {
    const { app, user } = await service.grantAccess()
    const code = await service.issueCode(app, user)
    const [grantId = ''] = await service.grantIds({ username: user.username })
    await service.admin.revokeGrant({ grantId })
    expectError(await service.exchange(app, code), 'invalid_code')
  })
})

describe('a replay of a used code', () => {
  async function used(service: Verbs) {
    const { app, user, code } = await withCode(service)
    const tokens = tokensOf(await service.exchange(app, code))
    return { app, user, code, tokens }
  }
  const GRACE = toMs({ seconds: 10 })

  test.each([
    { when: 'within the grace of 10 s', ms: GRACE - 1, survives: true },
    { when: 'at the end of the grace', ms: GRACE, survives: false },
    { when: '1 ms after the grace', ms: GRACE + 1, survives: false },
    { when: '1 ms before the expiry of the code', ms: toMs({ seconds: 300 }) - 1, survives: false },
    { when: 'at the expiry of the code', ms: toMs({ seconds: 300 }), survives: true },
  ])('$when is refused; the grant survives: $survives', async ({ ms, survives }) => {
    const { app, code, tokens } = await used(service)
    service.clock.advance({ ms })
    expectError(await service.exchange(app, code), 'invalid_code')
    expect((await service.user({ app, tokens })).type).toBe(survives ? '' : 'invalid_token')
    expect((await service.refresh(app, tokens.refresh_token)).type).toBe(survives ? '' : 'invalid_refresh_token')
  })

  test('without the right secret never revokes', async () => {
    const { app, code, tokens } = await used(service)
    const stranger = await service.createApp()
    service.clock.advance({ seconds: 60 })
    expectError(await service.exchange({ ...app, secret: 'wrong' }, code), 'invalid_secret')
    expectError(await service.exchange({ ...app, secret: stranger.secret }, code), 'invalid_secret')
    expectError(await service.exchange(stranger, code), 'invalid_code')
    expect((await service.user({ app, tokens })).code).toBe('OK')
  })

  test('revokes its own grant and no other', async () => {
    const { app, user, code, tokens } = await used(service)
    const later = await service.grantAccess({ app, user })
    service.clock.advance({ seconds: 60 })
    await service.exchange(app, code)
    expectError(await service.user({ app, tokens }), 'invalid_token')
    expect((await service.user(later)).code).toBe('OK')
  })

  test('is audited, within the grace and after it', async () => {
    const { app, code } = await used(service)
    await service.exchange(app, code)
    service.clock.advance({ seconds: 60 })
    const { requestId } = await service.exchange(app, code)
    const { events } = await service.admin.listAuditEvents({ appid: app.appid })
    const replays = events.filter(({ kind }) => kind === 'code.replayed')
    expect(replays.map((event) => event.requestId)).toContain(requestId)
    expect(replays).toHaveLength(2)
  })

  test('revokes at once when CODE_REPLAY_GRACE_SECONDS is 0', async () => {
    const own = await startService({ env: { CODE_REPLAY_GRACE_SECONDS: '0' } })
    const { app, code, tokens } = await used(own)
    await own.exchange(app, code) // in the very millisecond of the exchange
    expectError(await own.user({ app, tokens }), 'invalid_token')
  })
})
