// A hostile OpenID Provider, through the pages: whatever it sends, nobody is signed in, the person gets a page with a way on, the log
// says once what happened, the metrics count it, and nothing that proves a sign-in is to be found anywhere.
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { OAuth2Server } from 'oauth2-mock-server'
import { expect, onTestFinished, test } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { authorizePath, type Verbs } from '../harness/verbs.js'
import type { Page, Visitor } from '../harness/visitor.js'
import { startService } from '../harness.js'
import { providersFile } from './start-provider.js'

const CLIENT_SECRET = 'canary-of-a-client-secret'

async function startSigner(): Promise<OAuth2Server> {
  const server = new OAuth2Server()
  await server.issuer.keys.generate('RS256')
  await server.start(0, '127.0.0.1')
  onTestFinished(() => server.stop())
  return server
}

/** The provider behind a front that may hold its answers; `server` may be replaced by another one with other keys. */
async function start() {
  const hostile = { server: await startSigner(), isHeld: false, delayMs: 0, nonce: '' }
  const front = createServer(async (incoming, response) => {
    if (hostile.isHeld) return
    hostile.nonce = new URL(incoming.url ?? '', 'http://x').searchParams.get('nonce') ?? hostile.nonce
    const { port } = hostile.server.address()
    await setTimeout(hostile.delayMs)
    const { method, url, headers } = incoming
    const outgoing = request({ host: '127.0.0.1', port, path: url, method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers)
      answer.pipe(response)
    })
    outgoing.on('error', () => response.destroy())
    incoming.pipe(outgoing)
  }).listen(0, '127.0.0.1')
  onTestFinished(() => front.close().closeAllConnections())
  await once(front, 'listening')
  const issuer = `http://127.0.0.1:${(front.address() as AddressInfo).port}`
  hostile.server.issuer.url = issuer
  const file = providersFile({ corp: { issuer, clientSecret: CLIENT_SECRET } }, { timeout_ms: 2_000 })
  const service = await startService({ env: { OIDC_PROVIDERS_FILE: file, ADMIN_PORT: String(await freePort()) } })
  return { hostile, issuer, service, app: await service.createApp() }
}
type Place = Awaited<ReturnType<typeof start>>

/** Up to the answer of the provider, which signs everybody in. */
async function visitProvider({ service, app }: Place, visitor: Visitor): Promise<URL> {
  const page = await visitor.open(authorizePath(app, 'st'))
  const button = page.html.forms.find(({ fields }) => fields.provider === 'corp')
  if (!button) throw new Error(`no button on: ${page.html.text}`)
  const address = (await visitor.submit(page, button)).headers.get('location') ?? ''
  const answer = await fetch(address, { redirect: 'manual' })
  const callback = new URL(answer.headers.get('location') ?? '')
  expect(callback.origin).toBe(service.url)
  return callback
}

async function signIn(place: Place, visitor: Visitor): Promise<Page> {
  const { pathname, search } = await visitProvider(place, visitor)
  return visitor.open(pathname + search)
}

const failures = (service: Verbs) =>
  service.backend
    .log()
    .split('\n')
    .filter((line) => line.includes('a sign-in at a provider failed'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)

/** What a hostile provider does when the browser has come from it. */
type Attack = (place: Place) => unknown
const claim =
  (claims: Record<string, unknown>): Attack =>
  ({ hostile }) =>
    hostile.server.service.on('beforeTokenSigning', ({ payload }) => Object.assign(payload, claims))
const answer =
  (statusCode: number, body: Record<string, string>): Attack =>
  ({ hostile }) =>
    hostile.server.service.once('beforeResponse', (response) => Object.assign(response, { statusCode, body }))

test.each<[string, Attack, number, string]>([
  ['an ID token of another issuer', claim({ iss: 'https://elsewhere.example' }), 502, 'misconfigured'],
  ['an ID token for another client', claim({ aud: 'others' }), 502, 'misconfigured'],
  ['an ID token with another nonce', claim({ nonce: 'of-another-sign-in' }), 502, 'misconfigured'],
  ['an ID token that has expired', claim({ exp: 1_000_000_000 }), 502, 'misconfigured'],
  ['no ID token', answer(200, { token_type: 'Bearer', access_token: 'canary-of-a-token' }), 502, 'misconfigured'],
  ['503', answer(503, {}), 503, 'unavailable'],
  ['an error that is long', answer(400, { error: 'x y '.repeat(200) }), 502, 'misconfigured'],
  [
    'nothing in time',
    ({ hostile }) => {
      hostile.isHeld = true
    },
    503,
    'unavailable',
  ],
  [
    'answers that are each in time, and too late together,',
    ({ hostile }) => {
      hostile.delayMs = 1_200
    },
    503,
    'unavailable',
  ],
  [
    'an ID token signed with a key that it does not publish',
    async ({ hostile, issuer }) => {
      const other = await startSigner()
      other.issuer.url = issuer
      const claims = { aud: 'surveys', sub: 'u-1', nonce: hostile.nonce }
      const forged = await other.issuer.buildToken({
        scopesOrTransform: (_, payload) => Object.assign(payload, claims),
      })
      hostile.server.service.once('beforeResponse', ({ body }) => Object.assign(body as object, { id_token: forged }))
    },
    503,
    'keys_changed',
  ],
])('%s signs nobody in', async (_, attack, status, outcome) => {
  const place = await start()
  const { service } = place
  const visitor = service.visitor()
  const { pathname, search } = await visitProvider(place, visitor)
  await attack(place)
  const page = await visitor.open(pathname + search)
  expect(page.status).toBe(status)
  expect(page.html.tags.some(({ attributes }) => attributes.href?.startsWith('/connect/oauth2/authorize?'))).toBe(true)
  expect((await visitor.open('/connect/apps')).html.forms.some(({ action }) => action.includes('sign-out'))).toBe(false)
  const [line, ...more] = failures(service)
  expect(more).toEqual([])
  expect(line).toMatchObject({ provider: 'corp', step: 'complete', outcome, level: 40 })
  expect(page.html.text).toContain(String(line?.request_id))
  expect(String(line?.detail).length).toBeLessThanOrEqual(200)
  const metrics = await (await fetch(`${service.backend.adminUrl}/metrics`)).text()
  const series = `survey_auth_provider_total{provider="corp",step="complete",outcome="${outcome}"}`
  expect(metrics).toContain(`${series} 1\n`)
})

test('keys that were changed without notice fail one sign-in, and the next one finds them', async () => {
  const place = await start()
  const { service, hostile, issuer } = place
  expect((await signIn(place, service.visitor())).html.text).toContain('would like to connect')
  hostile.server = await startSigner()
  hostile.server.issuer.url = issuer
  const visitor = service.visitor()
  expect((await signIn(place, visitor)).status).toBe(503)
  await expect.poll(async () => (await signIn(place, visitor)).html.text).toContain('would like to connect')
})

test('nothing that proves a sign-in is in the log, the audit trail or a page, whether it succeeds or fails', async () => {
  const place = await start()
  const { service, hostile } = place
  const canaries = new Set([CLIENT_SECRET])
  hostile.server.service.on('beforeResponse', ({ body }, { body: sent }) => {
    const { id_token = '', access_token = '' } = body as Record<string, string>
    const { code = '', code_verifier = '' } = sent as Record<string, string>
    for (const one of [id_token, access_token, code, code_verifier]) if (one !== '') canaries.add(one)
  })
  hostile.server.service.on('beforeTokenSigning', ({ payload }) => {
    if (typeof payload.nonce === 'string') canaries.add(payload.nonce)
  })
  const pages: string[] = []
  const visitor = service.visitor()
  const comesBack = async () => {
    const callback = await visitProvider(place, visitor)
    for (const name of ['code', 'state']) canaries.add(callback.searchParams.get(name) ?? '')
    const page = await visitor.open(callback.pathname + callback.search)
    const again = await visitor.open(callback.pathname + callback.search)
    pages.push(page.text, again.text)
    visitor.cookies.clear()
    return page
  }
  expect((await comesBack()).html.text).toContain('would like to connect')
  for (const error of ['invalid_client', 'invalid_grant', 'server_error']) {
    hostile.server.service.once('beforeResponse', (response, { body }) => {
      const { id_token } = response.body as Record<string, string>
      const { code, code_verifier } = body as Record<string, string>
      const error_description = `${code} ${code_verifier} ${CLIENT_SECRET} ${id_token}`
      canaries.add(id_token ?? '')
      Object.assign(response, { statusCode: 400, body: { error, error_description } })
    })
    expect((await comesBack()).status).toBeGreaterThanOrEqual(400)
  }
  expect(canaries.size).toBeGreaterThan(15)
  const { events } = await service.admin.listAuditEvents({})
  const audit = JSON.stringify(events, (_, value) => (typeof value === 'bigint' ? String(value) : value))
  expect(audit).toContain('sign_in.accepted')
  for (const canary of canaries) {
    for (const [where, text] of Object.entries({ log: service.backend.log(), audit, pages: pages.join('\n') }))
      expect(text.includes(canary), `${canary} in the ${where}`).toBe(false)
  }
})
