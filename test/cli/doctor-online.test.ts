// What the doctor says of OpenID Providers, which it asks when it is told to.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { createProcess } from '../harness/process.js'
import { providersFile, startProvider } from '../oidc/start-provider.js'

type Answers = (issuer: string) => {
  readonly status?: number
  readonly date?: string
  readonly keys?: readonly unknown[]
  readonly metadata?: Readonly<Record<string, unknown>>
}

const KEY = { kty: 'RSA', n: 'AQAB', e: 'AQAB' }

/** A provider that answers so, until it is told otherwise; counts how often it is asked. */
async function startAnswering(first: Answers) {
  const seen = { asked: 0, answers: first }
  const server = createServer(({ url, headers }, response) => {
    seen.asked += 1
    const issuer = `http://${headers.host}`
    const { status = 200, date, keys = [KEY], metadata = {} } = seen.answers(issuer)
    const endpoints = { authorization_endpoint: `${issuer}/a`, token_endpoint: `${issuer}/t`, jwks_uri: `${issuer}/k` }
    const good = { issuer, ...endpoints, code_challenge_methods_supported: ['S256'] }
    response.writeHead(status, { 'content-type': 'application/json', ...(date && { date }) })
    response.end(JSON.stringify(url === '/k' ? { keys } : { ...good, ...metadata }))
  }).listen(0, '127.0.0.1')
  onTestFinished(() => server.close().closeAllConnections())
  await once(server, 'listening')
  return { seen, issuer: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, clientSecret: 'canary' }
}

async function examine(
  provider: { readonly issuer: string; readonly clientSecret: string },
  args = ['--online'],
  settings: Readonly<Record<string, unknown>> = {},
) {
  const file = providersFile({ corp: provider }, settings)
  const env = { OIDC_PROVIDERS_FILE: file, PUBLIC_URL: 'https://auth.example', TRUSTED_PROXIES: '::1' }
  const { exitCode, stdout } = await (await createProcess(env)).run(['doctor', '--json', ...args])
  expect(stdout).not.toContain('canary')
  const findings = JSON.parse(stdout) as { check: string; state: string; detail: string }[]
  return { exitCode, found: findings.find(({ check }) => check === 'provider corp') }
}

test('a provider that is as it should be is ok, with the redirect URI that it has to know', async () => {
  const { exitCode, found } = await examine(await startProvider())
  expect({ exitCode, found }).toEqual({
    exitCode: 0,
    found: {
      check: 'provider corp',
      state: 'ok',
      detail: expect.stringMatching(/ answers; redirect URI: https:\/\/auth\.example\/connect\/oidc\/corp\/callback$/),
    },
  })
})

test('a provider is not asked without --online', async () => {
  const provider = await startAnswering(() => ({}))
  expect(await examine(provider, [])).toEqual({ exitCode: 0, found: undefined })
  expect(provider.seen.asked).toBe(0)
})

const hourOff = new Date(Date.now() + 3_600_000).toUTCString()

/** Where ours do not fit, what they must be; where the provider is wrong, it answers well from then on. */
const atTheProvider = undefined

test.each<[string, Answers, string, RegExp, Readonly<Record<string, unknown>> | undefined]>([
  [
    'is an issuer of another name',
    () => ({ metadata: { issuer: 'https://a.example' } }),
    'wrong',
    /misconfigured, .*; mend it there, or in OIDC_PROVIDERS_FILE; redirect URI: /,
    atTheProvider,
  ],
  ['answers 503', () => ({ status: 503 }), 'wrong', /unavailable, .*; mend it there, or in OIDC/, atTheProvider],
  [
    'has another time',
    () => ({ date: hourOff }),
    'wrong',
    /; its clock is 3[56]\d\d s ahead of ours: set the one that is wrong; /,
    atTheProvider,
  ],
  ['publishes no keys', () => ({ keys: [] }), 'wrong', /; it publishes no keys: it must have one/, atTheProvider],
  [
    'signs with a shared secret',
    () => ({ metadata: { id_token_signing_alg_values_supported: ['HS256'] } }),
    'wrong',
    /; it signs ID tokens with HS256 only: choose RS256 for this client there; /,
    atTheProvider,
  ],
  [
    'wants another way to show the secret',
    () => ({ metadata: { token_endpoint_auth_methods_supported: ['client_secret_post'] } }),
    'wrong',
    /; it does not know token_auth client_secret_basic: set one that it knows, client_secret_post; /,
    { token_auth: 'client_secret_post' },
  ],
  [
    'has no PKCE',
    () => ({ metadata: { code_challenge_methods_supported: ['plain'] } }),
    'odd',
    /PKCE with S256: turn it on there; /,
    atTheProvider,
  ],
  [
    'lacks a scope',
    () => ({ metadata: { scopes_supported: ['openid'] } }),
    'odd',
    /does not know the scopes profile: take them out of scopes; /,
    { scopes: ['openid'] },
  ],
  [
    'lacks the prompt for another account',
    () => ({ metadata: { prompt_values_supported: ['login'] } }),
    'odd',
    /does not know switch_account_prompt select_account: set one that it knows, login; /,
    { switch_account_prompt: 'login' },
  ],
])('a provider that %s is told so, and is ok when that is mended', async (_, answers, state, detail, settings) => {
  const provider = await startAnswering(answers)
  const { exitCode, found } = await examine(provider)
  expect(found).toEqual({ check: 'provider corp', state, detail: expect.stringMatching(detail) })
  expect(exitCode).toBe(state === 'wrong' ? 1 : 0)
  if (settings === atTheProvider) provider.seen.answers = () => ({})
  expect(await examine(provider, ['--online'], settings)).toMatchObject({ exitCode: 0, found: { state: 'ok' } })
})

test('a provider that is down is unavailable, and ok when it is up', async () => {
  const provider = await startProvider()
  await provider.stop()
  const { found } = await examine(provider)
  expect(found).toMatchObject({ state: 'wrong', detail: expect.stringContaining('cannot be used: unavailable, ') })
  await provider.start()
  expect(await examine(provider)).toMatchObject({ exitCode: 0, found: { state: 'ok' } })
})

test('the secret of a provider is in no output of config', async () => {
  const file = providersFile({ corp: { issuer: 'https://login.example', clientSecret: 'canary' } })
  const service = await createProcess({ OIDC_PROVIDERS_FILE: file })
  for (const args of [['config'], ['config', '--json'], ['doctor']]) {
    const { exitCode, stdout, stderr } = await service.run(args)
    expect([exitCode, (stdout + stderr).includes('canary')]).toEqual([0, false])
  }
})
