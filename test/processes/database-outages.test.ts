// Two processes of each kind on one PostgreSQL that stops, or falls silent, and returns: what apps, browsers and operators see.
import { execFileSync } from 'node:child_process'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Envelope, expectError, readEnvelope } from '../harness/envelope.js'
import { balance, type Reply, send } from '../harness/http.js'
import { BUILD } from '../harness/spawn.js'
import { authorizePath, CALLBACK, type Query, withQuery } from '../harness/verbs.js'
import { decisionForm, formWith, type Page, Visitor } from '../harness/visitor.js'
import { Fleet } from '../long/fleet.js'
import { Cluster, urlOf } from '../postgres/cluster.js'
import { Relay } from '../postgres/relay.js'

/** The gateway answers within its RPC deadline of 4.5 s; the rest is for a loaded test machine. */
const ANSWER_WITHIN_MS = 8_000
/** Processes ask each other once a second. */
const READINESS_WITHIN_MS = 15_000
const PERSON = { username: 'ana', password: 'password of ana' }

let cluster: Cluster
let relay: Relay
let fleet: Fleet
let app: { readonly appid: string; readonly secret: string; readonly redirectUri: string }
let surveyId: number

beforeAll(async () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  cluster = await Cluster.create()
  relay = await Relay.open(cluster.port)
  const database = new URL(await cluster.createDatabase()).pathname.slice(1)
  fleet = new Fleet(urlOf(relay.port, database))
  await fleet.start()
  balance(publicUrl(), fleet.gateways)
  const created = await fleet.rpc('AdminService/CreateApp', { name: 'Reports', redirectUris: [CALLBACK] })
  const { appid } = created.app as { appid: string }
  app = { appid, secret: String(created.secret), redirectUri: CALLBACK }
  const { user } = await fleet.rpc('AdminService/CreateUser', { ...PERSON, nickname: 'Ana' })
  const { userId: ownerUserId } = user as { userId: string }
  const { surveys } = await fleet.rpc('SurveyService/ImportSurveys', { ownerUserId, surveys: [{ title: 'Lunch' }] })
  surveyId = Number((surveys as { id: string }[])[0]?.id)
}, 180_000)

afterAll(async () => {
  await fleet?.stop()
  relay?.close()
  await cluster?.destroy()
})

function publicUrl(): string {
  return fleet.gateways[0] ?? ''
}

// -- What apps and users do --------------------------------------------------------------------------------------------

/** A consent of Ana's and its tokens. */
interface Granted {
  readonly access_token: string
  readonly refresh_token: string
  readonly openid: string
}

/** Asks the gateways in turn, and checks the envelope. */
async function get(path: string, query: Query): Promise<Envelope> {
  const reply = await send(publicUrl(), withQuery(path, { appid: app.appid, ...query }))
  return readEnvelope(reply, { method: 'GET', path, httpErrorStatus: 'semantic' })
}

const exchange = (code: string) =>
  get('/api/oauth2/access_token', { secret: app.secret, code, grant_type: 'authorization_code' })
const refresh = ({ refresh_token }: Granted) =>
  get('/api/oauth2/refresh_token', { refresh_token, grant_type: 'refresh_token' })
const profile = ({ access_token, openid }: Granted) => get('/api/oauth2/user', { access_token, openid })
const list = ({ access_token, openid }: Granted) => get('/api/surveys', { access_token, openid })
const detail = ({ access_token }: Granted) => get(`/api/surveys/${surveyId}`, { access_token })

async function issueCode(visitor: Visitor): Promise<string> {
  const page = await visitor.openSignedIn(authorizePath(app), PERSON)
  const { headers } = await visitor.decide(page, 'confirm')
  return new URL(headers.get('location') ?? '').searchParams.get('code') ?? ''
}

async function grant(code: string): Promise<Granted> {
  const { code: outcome, data } = await exchange(code)
  expect(outcome).toBe('OK')
  return data as unknown as Granted
}

/** A signed-in browser with its forms, a grant and a code that is not yet exchanged. */
async function prepare() {
  const visitor = new Visitor(publicUrl())
  const granted = await grant(await issueCode(visitor))
  const code = await issueCode(visitor)
  const stranger = new Visitor(publicUrl())
  return {
    visitor,
    granted,
    code,
    consent: await visitor.open(authorizePath(app)),
    connected: await visitor.open('/connect/apps'),
    stranger,
    signIn: await stranger.open('/connect/apps'),
  }
}
type Prepared = Awaited<ReturnType<typeof prepare>>

const apiCalls: Record<string, (prepared: Prepared) => Promise<Envelope>> = {
  exchange: ({ code }) => exchange(code),
  refresh: ({ granted }) => refresh(granted),
  profile: ({ granted }) => profile(granted),
  'list of surveys': ({ granted }) => list(granted),
  'survey in full': ({ granted }) => detail(granted),
}
const pageCalls: Record<string, (prepared: Prepared) => Promise<Reply>> = {
  'authorization page': ({ visitor }) => visitor.request(authorizePath(app)),
  'authorization page for a stranger': ({ stranger }) => stranger.request(authorizePath(app)),
  confirmation: ({ visitor, consent }) => visitor.submit(consent, decisionForm(consent), { decision: 'confirm' }),
  'connected apps': ({ visitor }) => visitor.request('/connect/apps'),
  disconnection: ({ visitor, connected }) => visitor.submit(connected, disconnectForm(connected)),
  'sign-in': ({ stranger, signIn }) => stranger.submit(signIn, requiredForm(signIn, 'password'), PERSON),
}

function requiredForm(page: Page, input: string) {
  const form = formWith(page, input)
  if (form === undefined) throw new Error(`no form with ${input} on: ${page.html.text}`)
  return form
}

function disconnectForm(page: Page) {
  const form = page.html.forms.find(({ action }) => action === '/connect/apps/disconnect')
  if (form === undefined) throw new Error(`nothing to disconnect on: ${page.html.text}`)
  return form
}

// -- What is expected --------------------------------------------------------------------------------------------------

async function withinDeadline<T>(call: Promise<T>): Promise<T> {
  const startedAt = performance.now()
  const answer = await call
  expect(performance.now() - startedAt).toBeLessThan(ANSWER_WITHIN_MS)
  return answer
}

/** Makes each call twice, all at once: once at each gateway, since they take turns. */
async function twice<T>(
  calls: Readonly<Record<string, (prepared: Prepared) => Promise<T>>>,
  prepared: Prepared,
): Promise<{ readonly name: string; readonly answer: T }[]> {
  const asked = Object.entries(calls).flatMap(([name, ask]) =>
    [ask(prepared), ask(prepared)].map(async (call) => ({ name, answer: await withinDeadline(call) })),
  )
  return Promise.all(asked)
}

async function expectOutage(prepared: Prepared): Promise<void> {
  for (const { name, answer } of await twice(apiCalls, prepared)) {
    const { type, status } = answer
    expect.soft({ name, type, status }).toEqual({ name, type: 'remote_server_error', status: 503 })
  }
  for (const { name, answer } of await twice(pageCalls, prepared)) {
    expect.soft({ name, status: answer.status }).toEqual({ name, status: 503 })
    expect.soft(answer.headers.get('content-type'), name).toBe('text/html; charset=utf-8')
    expect.soft(Number(answer.headers.get('retry-after')), name).toBeGreaterThan(0)
    expect.soft(answer.text, name).toContain('Nothing is lost')
  }
}

/** What each process says of itself; `ready` when it is. */
async function readiness(): Promise<Record<string, string>> {
  const entries = Object.entries(fleet.adminUrls).map(async ([name, url]) => {
    const answer = await fetch(`${url}/readyz`)
    return [name, `${answer.status} ${(await answer.text()).trim()}`] as const
  })
  return Object.fromEntries(await Promise.all(entries))
}

const token = expect.stringMatching(/^503 token database: unavailable$/)
const survey = expect.stringMatching(/^503 (token service at \S+: unavailable\n){2}survey database: unavailable$/)
const gateway = expect.stringMatching(
  /^503 (token service at \S+: unavailable\n){2}survey service at \S+: unavailable\nsurvey service at \S+: unavailable$/,
)
const NOT_READY = {
  token1: token,
  token2: token,
  survey1: survey,
  survey2: survey,
  gateway1: gateway,
  gateway2: gateway,
}

async function isReady(): Promise<boolean> {
  return Object.values(await readiness()).every((said) => said === '200 ready')
}

/** Everything an app and a user do, with what they held before the outage and with new grants. */
async function expectEverything({ visitor, granted, code }: Prepared): Promise<void> {
  const refreshed = await refresh(granted)
  const renewed = { ...granted, access_token: String(refreshed.data.access_token) }
  const newer = await grant(code) // an exchange refused during the outage has not used it up
  expectError(await exchange(code), 'invalid_code')
  const newest = await grant(await issueCode(new Visitor(publicUrl())))
  for (const one of [granted, renewed, newer, newest]) {
    for (const answer of [await profile(one), await list(one), await detail(one)]) expect(answer.code).toBe('OK')
  }
  for (;;) {
    const page = await visitor.open('/connect/apps')
    if (!page.html.forms.some(({ action }) => action === '/connect/apps/disconnect')) break
    expect((await visitor.submit(page, disconnectForm(page))).status).toBe(303)
  }
  for (const one of [granted, renewed, newer, newest]) expectError(await profile(one), 'invalid_token')
}

const outages = [
  { what: 'is stopped', begin: () => cluster.stop(), end: () => cluster.start() },
  { what: 'falls silent', begin: async () => relay.silence(), end: async () => relay.resume() },
]

describe.each(outages)('when PostgreSQL $what', ({ begin, end }) => {
  test('every answer is a 503 in time, readiness says why, and afterwards everything works without a restart', {
    timeout: 240_000,
  }, async () => {
    const prepared = await prepare()
    await begin()
    await expectOutage(prepared)
    await expect.poll(readiness, { timeout: READINESS_WITHIN_MS }).toEqual(NOT_READY)
    for (const url of Object.values(fleet.adminUrls)) expect((await fetch(`${url}/healthz`)).status).toBe(200)
    await end()
    await expect.poll(isReady, { timeout: READINESS_WITHIN_MS }).toBe(true)
    await expectEverything(prepared)
    expect(fleet.ended).toEqual([])
  })
})
