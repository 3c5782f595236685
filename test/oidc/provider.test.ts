// What is believed of an OpenID Provider, against a hostile one: it sends what no provider should.
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { OAuth2Server } from 'oauth2-mock-server'
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { createProvider, type Provider, type ProviderSettings } from '../../services/token/oidc/provider.js'

const SECRETS = { state: 'a-state', nonce: 'a-nonce', codeVerifier: 'v'.repeat(43) }
const CALLBACK = 'http://127.0.0.1:9/connect/oidc/corp/callback'

let server: OAuth2Server
let issuer = ''
let timeMs = 0

beforeEach(async () => {
  server = new OAuth2Server()
  await server.issuer.keys.generate('RS256')
  await server.start(0, '127.0.0.1')
  issuer = `http://127.0.0.1:${server.address().port}`
  server.issuer.url = issuer
  timeMs = 0
})

afterEach(() => (server.listening ? server.stop() : undefined))

function provider(settings: Partial<ProviderSettings> = {}): Provider {
  const corp = {
    id: 'corp',
    label: { en: 'Corp', zh: '企业' },
    issuer,
    clientId: 'surveys',
    clientSecret: 'a-secret',
    tokenAuth: 'client_secret_basic',
    scopes: ['openid', 'profile'],
    claims: { nickname: 'name', avatar: 'picture' },
    provision: 'create',
    require: {},
    switchAccountPrompt: 'select_account',
    timeoutMs: 1_000,
    ...settings,
  } as const
  return createProvider(corp, () => timeMs)
}

/** Follows the browser's way to the provider, which signs everybody in at once. Answers the query of the callback. */
async function visit(of: Provider, secrets = SECRETS): Promise<string> {
  const answer = await fetch(await of.authorizationUrl(CALLBACK, secrets), { redirect: 'manual' })
  return new URL(answer.headers.get('location') ?? '').search.slice(1)
}

const signIn = async (of: Provider) => of.redeem(CALLBACK, await visit(of), SECRETS)

/** A provider that answers as `listener` does. Answers its issuer. */
async function serving(listener: RequestListener, port = 0): Promise<string> {
  const odd = createServer(listener).listen(port, '127.0.0.1')
  onTestFinished(() => odd.close().closeAllConnections())
  await once(odd, 'listening')
  return `http://127.0.0.1:${(odd.address() as AddressInfo).port}`
}

/** Changes what ID tokens claim. */
function claim(claims: Record<string, unknown>): void {
  server.service.on('beforeTokenSigning', ({ payload }) => Object.assign(payload, claims))
}

/** The next answer of the token endpoint. */
function answer(status: number, body: Record<string, string>): void {
  server.service.once('beforeResponse', (response) => Object.assign(response, { statusCode: status, body }))
}

test('a user who has signed in there is told by subject, name and picture', async () => {
  claim({
    sub: 'u-1',
    name: '  Li\u0000 Wei ',
    picture: 'https://cdn.example/li.png',
    sid: 's-1',
    auth_time: 1_700_000_000,
  })
  expect(await signIn(provider())).toEqual({
    subject: 'u-1',
    nickname: 'Li Wei',
    avatar: 'https://cdn.example/li.png',
    sid: 's-1',
    authenticatedAtMs: 1_700_000_000_000,
  })
})

test('the address of the sign-in has PKCE, state and nonce, and none of the secrets that prove it', async () => {
  const { searchParams } = await provider().authorizationUrl(CALLBACK, SECRETS, { reauthenticate: true })
  expect(Object.fromEntries(searchParams)).toEqual({
    response_type: 'code',
    client_id: 'surveys',
    redirect_uri: CALLBACK,
    scope: 'openid profile',
    state: 'a-state',
    nonce: 'a-nonce',
    code_challenge: expect.stringMatching(/^[A-Za-z0-9_-]{43}$/),
    code_challenge_method: 'S256',
    max_age: '0',
    prompt: 'login',
  })
  expect(searchParams.toString()).not.toContain(SECRETS.codeVerifier)
})

test.each(['select_account', 'login'] as const)('another account is asked for by prompt=%s', async (prompt) => {
  const of = provider({ switchAccountPrompt: prompt })
  const { searchParams } = await of.authorizationUrl(CALLBACK, SECRETS, { selectAccount: true })
  expect([searchParams.get('prompt'), searchParams.has('max_age')]).toEqual([prompt, false])
})

test.each(['client_secret_basic', 'client_secret_post'] as const)(
  'the client shows its secret by %s',
  async (tokenAuth) => {
    const seen: unknown[] = []
    server.service.on('beforeResponse', (_, { headers, body }) => {
      seen.push(headers.authorization?.split(' ')[0] ?? (body as Record<string, string>).client_secret)
    })
    await signIn(provider({ tokenAuth }))
    expect(seen).toEqual([tokenAuth === 'client_secret_basic' ? 'Basic' : 'a-secret'])
  },
)

test('what the ID token lacks is asked of the UserInfo endpoint, and only of the same subject', async () => {
  claim({ sub: 'u-1' })
  server.service.once('beforeUserinfo', (response) => {
    response.body = { sub: 'u-1', name: 'Ann' }
  })
  expect(await signIn(provider())).toMatchObject({ subject: 'u-1', nickname: 'Ann' })
  server.service.once('beforeUserinfo', (response) => {
    response.body = { sub: 'u-2', name: 'Ben' }
  })
  await expect(signIn(provider())).rejects.toMatchObject({ kind: 'misconfigured' })
})

describe('is not believed:', () => {
  test.each([
    ['an ID token of another issuer', { iss: 'https://elsewhere.example' }],
    ['an ID token for another client', { aud: 'another-client' }],
    [
      'an ID token for several clients that names none of them as its party',
      { aud: ['surveys', 'other'], azp: 'other' },
    ],
    ['an ID token with another nonce', { nonce: 'of-another-sign-in' }],
    ['an ID token without a nonce', { nonce: undefined }],
    ['an ID token that has expired', { exp: 1_000_000_000 }],
    ['an ID token without a subject', { sub: undefined }],
    ['an ID token with an empty subject', { sub: '' }],
    ['an ID token with a subject of 256 characters', { sub: 'u'.repeat(256) }],
    ['an ID token with a subject that is no text', { sub: 'u-1\u0000' }],
  ])('%s', async (_, claims) => {
    claim(claims)
    await expect(signIn(provider())).rejects.toMatchObject({ kind: 'misconfigured' })
  })

  test('an answer with another state', async () => {
    const of = provider()
    const query = await visit(of, { ...SECRETS, state: 'of-another-browser' })
    await expect(of.redeem(CALLBACK, query, SECRETS)).rejects.toMatchObject({ kind: 'misconfigured' })
  })

  test('an answer that names another issuer: a mix-up of providers', async () => {
    const of = provider()
    const query = `${await visit(of)}&iss=https%3A%2F%2Felsewhere.example`
    await expect(of.redeem(CALLBACK, query, SECRETS)).rejects.toMatchObject({ kind: 'misconfigured' })
  })

  test('an ID token signed with a key that the provider does not publish', async () => {
    const other = new OAuth2Server()
    await other.issuer.keys.generate('RS256')
    other.issuer.url = issuer
    const seconds = Math.floor(Date.now() / 1000)
    const claims = { aud: 'surveys', sub: 'u-1', nonce: SECRETS.nonce, iat: seconds, exp: seconds + 60 }
    const forged = await other.issuer.buildToken({ scopesOrTransform: (_, payload) => Object.assign(payload, claims) })
    const of = provider()
    const query = await visit(of)
    server.service.once('beforeResponse', ({ body }) => Object.assign(body as object, { id_token: forged }))
    await expect(of.redeem(CALLBACK, query, SECRETS)).rejects.toMatchObject({ kind: 'keys_changed' })
  })
})

test('keys that were changed without notice are found by the sign-in after the one that fails', async () => {
  const of = provider()
  await signIn(of)
  const second = new OAuth2Server()
  await second.issuer.keys.generate('RS256')
  await server.stop()
  await second.start(Number(new URL(issuer).port), '127.0.0.1')
  onTestFinished(() => second.stop())
  second.issuer.url = issuer
  await setTimeout(100) // until fetch has seen that its connections are closed
  await expect(signIn(of)).rejects.toMatchObject({ kind: 'keys_changed' })
  await of.refresh()
  expect(await signIn(of)).toMatchObject({ nickname: '' })
})

describe('says what the person or the operator can do:', () => {
  test.each([
    ['error=access_denied&error_description=no', 'denied'],
    ['error=login_required', 'denied'],
    ['error=temporarily_unavailable', 'unavailable'],
    ['error=server_error', 'unavailable'],
    ['error=unauthorized_client', 'misconfigured'],
  ])('%s is %s', async (query, kind) => {
    await expect(provider().redeem(CALLBACK, `${query}&state=a-state`, SECRETS)).rejects.toMatchObject({ kind })
  })

  test.each([
    [400, { error: 'invalid_grant' }, 'expired'],
    [401, { error: 'invalid_client' }, 'misconfigured'],
    [400, { error: 'unauthorized_client' }, 'misconfigured'],
    [503, { error: 'temporarily_unavailable' }, 'unavailable'],
    [503, {}, 'unavailable'],
    [200, { token_type: 'Bearer' }, 'misconfigured'],
  ])('a token endpoint that answers %i %o is %s', async (status, body, kind) => {
    const of = provider()
    const query = await visit(of)
    answer(status, body as Record<string, string>)
    await expect(of.redeem(CALLBACK, query, SECRETS)).rejects.toMatchObject({ kind })
  })

  test('what the provider sent is for the operator, and cut', async () => {
    const query = `error=access_denied&error_description=${'no '.repeat(400)}&state=a-state`
    const failure: Error & { detail?: string } = await provider()
      .redeem(CALLBACK, query, SECRETS)
      .catch((error) => error)
    expect(failure.detail).toHaveLength(200)
  })

  test('what the operator is told holds no secret, however the provider quotes it', async () => {
    const of = provider()
    const query = await visit(of)
    const code = new URLSearchParams(query).get('code') ?? ''
    const unknown = 'eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1LTEifQ.c2lnbmF0dXJl'
    const { state, nonce, codeVerifier } = SECRETS
    const quoted = ['no', code, 'a-secret', state, nonce, codeVerifier, unknown].join(', ')
    answer(400, { error: 'invalid_client', error_description: quoted })
    await expect(of.redeem(CALLBACK, query, SECRETS)).rejects.toMatchObject({
      detail: `invalid_client: no${', ***'.repeat(6)}`,
    })
  })

  test('what the operator is told quotes nothing of an answer that cannot be read', async () => {
    const of = provider()
    const query = await visit(of)
    server.service.once('beforeResponse', (response) => {
      response.body = '{"id_token":canary}' as unknown as Record<string, unknown>
    })
    const failure = of.redeem(CALLBACK, query, SECRETS)
    await expect(failure).rejects.toMatchObject({
      kind: 'misconfigured',
      detail: expect.not.stringContaining('canary'),
    })
  })

  test('a provider that is down is unavailable', async () => {
    await server.stop()
    await expect(provider().authorizationUrl(CALLBACK, SECRETS)).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test('a provider that does not answer in time is unavailable', async () => {
    const silent = await serving(() => undefined)
    await expect(provider({ issuer: silent, timeoutMs: 50 }).refresh()).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test.each([
    [404, '{}', 'misconfigured'],
    [200, 'not JSON', 'misconfigured'],
    [200, '{"issuer":"https://elsewhere.example"}', 'misconfigured'],
    [503, '', 'unavailable'],
  ])('metadata of %i %s is %s', async (status, body, kind) => {
    const odd = await serving((_, response) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(body)
    })
    await expect(provider({ issuer: odd }).refresh()).rejects.toMatchObject({ kind })
  })
})

describe('a required claim', () => {
  const staffOnly = { require: { groups: ['staff', 'admin'] } }

  test.each([[['staff']], [['x', 'admin']], ['staff']])('is there in %o', async (groups) => {
    claim({ groups })
    expect(await signIn(provider(staffOnly))).toMatchObject({ avatar: '' })
  })

  test.each([[['guests']], ['staffing'], [{ staff: true }], [undefined]])('is missing in %o', async (groups) => {
    claim({ groups })
    await expect(signIn(provider(staffOnly))).rejects.toMatchObject({ kind: 'not_allowed' })
  })
})

describe('metadata', () => {
  const HOUR = 3_600_000

  test('are asked for when they are needed, once for all who wait', async () => {
    let asked = 0
    const counting = await serving(({ headers }, response) => {
      asked += 1
      const self = `http://${headers.host}`
      const metadata = { issuer: self, authorization_endpoint: `${self}/authorize`, token_endpoint: `${self}/token` }
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(metadata))
    })
    const of = provider({ issuer: counting })
    expect(asked).toBe(0)
    await Promise.all([of.authorizationUrl(CALLBACK, SECRETS), of.authorizationUrl(CALLBACK, SECRETS)])
    timeMs += HOUR - 1
    await of.authorizationUrl(CALLBACK, SECRETS)
    expect(asked).toBe(1)
  })

  test('of the last day serve while the provider is down, and are said to be old', async () => {
    const of = provider()
    await of.authorizationUrl(CALLBACK, SECRETS)
    await server.stop()
    timeMs += 23 * HOUR
    await expect(of.refresh()).rejects.toThrow()
    expect((await of.authorizationUrl(CALLBACK, SECRETS)).pathname).toBe('/authorize')
    expect(of.metadata()).toMatchObject({ ageMs: 23 * HOUR, failure: { kind: 'unavailable' } })
    timeMs += HOUR
    await expect(of.authorizationUrl(CALLBACK, SECRETS)).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test('are not asked for again at once after a failure: after a second, then two, then four', async () => {
    let attempts = 0
    const down = await serving((_, response) => {
      attempts += 1
      response.writeHead(503).end()
    })
    const of = provider({ issuer: down })
    const attempt = () => of.authorizationUrl(CALLBACK, SECRETS).catch(() => attempts)
    expect(await attempt()).toBe(1)
    for (const [waitMs, seen] of [
      [999, 1],
      [1, 2],
      [1_999, 2],
      [1, 3],
      [3_999, 3],
      [1, 4],
    ] as const) {
      timeMs += waitMs
      expect(await attempt()).toBe(seen)
    }
  })
})

describe('a logout token', () => {
  const EVENT = { 'http://schemas.openid.net/event/backchannel-logout': {} }
  const token = (claims: Record<string, unknown>) =>
    server.issuer.buildToken({
      scopesOrTransform: (_, payload) =>
        Object.assign(payload, { aud: 'surveys', jti: 'j-1', sub: 'u-1', events: EVENT }, claims),
    })

  test('names the session, or else the user', async () => {
    const of = provider()
    expect(await of.readLogoutToken(await token({ sid: 's-1' }))).toMatchObject({
      sid: 's-1',
      subject: 'u-1',
      jti: 'j-1',
    })
    expect(await of.readLogoutToken(await token({}))).toMatchObject({ sid: undefined, subject: 'u-1' })
  })

  test.each([
    ['for another client', { aud: 'other' }],
    ['of another issuer', { iss: 'https://elsewhere.example' }],
    ['with a nonce: it is an ID token', { nonce: 'n' }],
    ['without the event', { events: {} }],
    ['without a jti', { jti: undefined }],
    ['that names nobody', { sub: undefined }],
    ['that is an hour old', { iat: Math.floor(Date.now() / 1000) - 3_600 }],
  ])('%s is refused', async (_, claims) => {
    await expect(provider().readLogoutToken(await token(claims))).rejects.toMatchObject({ kind: 'misconfigured' })
  })

  test('signed by somebody else is refused', async () => {
    const other = new OAuth2Server()
    await other.issuer.keys.generate('RS256')
    other.issuer.url = issuer
    const forged = await other.issuer.buildToken({
      scopesOrTransform: (_, payload) =>
        Object.assign(payload, { aud: 'surveys', jti: 'j', sub: 'u-1', events: EVENT }),
    })
    await expect(provider().readLogoutToken(forged)).rejects.toMatchObject({ name: 'ProviderFailure' })
  })
})
