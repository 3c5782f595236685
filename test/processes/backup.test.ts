// Backups of a server under load: each holds what was acknowledged before it began, and nothing half done.
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { Database } from '../../services/storage/sqlite/driver.js'
import { freePort } from '../harness/free-port.js'
import { send } from '../harness/http.js'
import { ServiceProcess, startProcess } from '../harness/process.js'
import { authorizePath, CALLBACK, type TestApp, withQuery } from '../harness/verbs.js'
import { formWith, Visitor } from '../harness/visitor.js'
import { callRpc } from '../long/send.js'

const PEOPLE = 4
const BACKUPS = 2
/** Load before, between and after the backups. */
const PAUSE_MS = 500
/** Between two authorizations of one person, whose grants stay below the caps and are checked in each backup. */
const REST_MS = 20

const ENV = {
  ACCESS_TOKEN_OVERLAP_SECONDS: '864000', // earlier tokens stay good, so that each can be checked
  MAX_GRANTS_PER_USER_AND_APP: '200',
}

/** What a person knows of a grant. Times are of performance.now(): when the answer came, or the request was sent. */
interface Held {
  readonly openid: string
  readonly refreshToken: string
  readonly grantedAt: number
  readonly accessTokens: { readonly text: string; readonly askedAt: number; readonly answeredAt: number }[]
  revokeAskedAt: number
  revokedAt: number
}

interface Taken {
  readonly file: string
  readonly beganAt: number
  readonly endedAt: number
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

async function get(service: ServiceProcess, target: string, query: Record<string, string>) {
  const { text } = await send(service.url, withQuery(target, query))
  const { error, data } = JSON.parse(text) as { error: { type: string }; data: Record<string, unknown> }
  return { type: error.type, data }
}

/** A user who authorizes, refreshes and disconnects, one after the other. */
class Person {
  readonly held: Held[] = []
  readonly #service: ServiceProcess
  readonly #app: TestApp
  readonly #user: { readonly username: string; readonly password: string }
  readonly #visitor: Visitor

  constructor(service: ServiceProcess, app: TestApp, username: string) {
    this.#service = service
    this.#app = app
    this.#user = { username, password: `password of ${username}` }
    this.#visitor = new Visitor(service.url)
  }

  async register(): Promise<void> {
    const { username, password } = this.#user
    await this.#service.json(['user', 'create', '--username', username, '--password-stdin'], { input: password })
    await this.#authorize()
  }

  /** With `isFickle`, disconnects the app again and again. */
  async work(load: { isOver: boolean }, isFickle: boolean): Promise<void> {
    for (let round = 1; !load.isOver; round += 1) {
      const held = await this.#authorize()
      await this.#refresh(held)
      await this.#refresh(held)
      if (isFickle && round % 4 === 0) await this.#disconnectAll()
      await pause(REST_MS)
    }
  }

  async #authorize(): Promise<Held> {
    const page = await this.#visitor.openSignedIn(authorizePath(this.#app), this.#user)
    const reply = await this.#visitor.decide(page, 'confirm')
    const code = new URL(reply.headers.get('location') ?? '').searchParams.get('code') ?? ''
    const { appid, secret } = this.#app
    const askedAt = performance.now()
    const exchange = { appid, secret, code, grant_type: 'authorization_code' }
    const { type, data } = await get(this.#service, '/api/oauth2/access_token', exchange)
    expect(type).toBe('')
    const answeredAt = performance.now()
    const held: Held = {
      openid: String(data.openid),
      refreshToken: String(data.refresh_token),
      grantedAt: answeredAt,
      accessTokens: [{ text: String(data.access_token), askedAt, answeredAt }],
      revokeAskedAt: Number.POSITIVE_INFINITY,
      revokedAt: Number.POSITIVE_INFINITY,
    }
    this.held.push(held)
    return held
  }

  async #refresh(held: Held): Promise<void> {
    const askedAt = performance.now()
    const { type, data } = await refresh(this.#service, this.#app, held)
    expect(type).toBe('')
    held.accessTokens.push({ text: String(data.access_token), askedAt, answeredAt: performance.now() })
  }

  async #disconnectAll(): Promise<void> {
    const ending = this.held.filter(({ revokedAt }) => revokedAt === Number.POSITIVE_INFINITY)
    for (const held of ending) held.revokeAskedAt = performance.now()
    let page = await this.#visitor.open('/connect/apps')
    for (let form = formWith(page, 'grant_id'); form !== undefined; form = formWith(page, 'grant_id')) {
      page = await this.#visitor.submitAndFollow(page, form)
    }
    for (const held of ending) held.revokedAt = performance.now()
  }
}

function refresh(service: ServiceProcess, { appid }: TestApp, { refreshToken }: Held) {
  return get(service, '/api/oauth2/refresh_token', {
    appid,
    refresh_token: refreshToken,
    grant_type: 'refresh_token',
  })
}

async function isGood(service: ServiceProcess, { appid }: TestApp, openid: string, text: string): Promise<boolean> {
  const { type } = await get(service, '/api/oauth2/user', { appid, access_token: text, openid })
  expect(['', 'invalid_token']).toContain(type)
  return type === ''
}

/** New users with a survey each, one after the other, by the RPCs of operators. */
async function importSurveys(service: ServiceProcess, load: { isOver: boolean }): Promise<void> {
  const socket = path.join(service.dataDir, 'rpc.sock')
  for (let n = 0; !load.isOver; n += 1) {
    const account = { username: `owner${n}`, password: 'correct horse', nickname: '', avatar: '' }
    const { user } = await callRpc<{ user: { userId: string } }>(socket, 'AdminService/CreateUser', account)
    const surveys = [{ title: '午餐', state: 'SURVEY_STATE_COLLECTING' }]
    await callRpc(socket, 'SurveyService/ImportSurveys', { ownerUserId: user.userId, surveys })
  }
}

async function takeBackup(service: ServiceProcess, name: string): Promise<Taken> {
  const file = path.join(service.dataDir, name)
  const beganAt = performance.now()
  const { exitCode, stderr } = await service.cli(['backup', file])
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' })
  return { file, beganAt, endedAt: performance.now() }
}

/** A new data directory with what the backup holds. */
function unpack({ file }: Taken): string {
  const dataDir = `${file}.restored`
  mkdirSync(dataDir, { mode: 0o700 })
  execFileSync('tar', ['-xf', file, '-C', dataDir])
  return dataDir
}

/** What must hold between the rows, whatever the moment. */
function requireWhole(dataDir: string): void {
  const db = new Database(path.join(dataDir, 'token.db'))
  db.prepare('ATTACH ? AS survey').run(path.join(dataDir, 'survey.db'))
  for (const schema of ['main', 'survey']) {
    expect(db.pragma(`${schema}.integrity_check`, { simple: true }), schema).toBe('ok')
  }
  expect(db.pragma('foreign_key_check')).toEqual([])
  const strays = {
    'grants without an access token': 'SELECT grant_id FROM grants WHERE length(access_tokens) = 0',
    'grants without the event of their exchange': `
      SELECT grant_id FROM grants WHERE grant_id NOT IN (SELECT grant_id FROM audit_events WHERE kind = 'code.exchanged')`,
    'exchanges without their grant': `
      SELECT grant_id FROM audit_events WHERE kind = 'code.exchanged' AND grant_id NOT IN (SELECT grant_id FROM grants)`,
    'revocations of one side only': `
      SELECT grant_id FROM grants WHERE (revoked_at_ms IS NULL) =
        (grant_id IN (SELECT grant_id FROM audit_events WHERE kind = 'grant.revoked'))`,
    'tokens without the event of their minting, or events without their token': `
      SELECT grant_id FROM grants g WHERE
        length(g.access_tokens) / 38 <>
        (SELECT count(*) FROM audit_events e WHERE e.grant_id = g.grant_id AND e.kind IN ('code.exchanged', 'token.refreshed'))`,
    'surveys of nobody': 'SELECT survey_id FROM survey.surveys WHERE owner_user_id NOT IN (SELECT user_id FROM users)',
    'what a backup leaves out':
      'SELECT code_hash FROM grants WHERE created_at_ms IS NULL UNION ALL SELECT session_hash FROM sessions',
  }
  for (const [what, sql] of Object.entries(strays)) expect(db.prepare(sql).all(), what).toEqual([])
  db.close()
}

/** Checks a restored service against what a person knew; says when the grant was made or ended relative to the backup. */
async function check(service: ServiceProcess, app: TestApp, held: Held, { beganAt, endedAt }: Taken) {
  const answers = []
  for (const { text, askedAt, answeredAt } of held.accessTokens) {
    answers.push({ askedAt, answeredAt, isGood: await isGood(service, app, held.openid, text) })
  }
  const refreshes = (await refresh(service, app, held)).type === ''
  const [first] = answers
  if (held.revokedAt < beganAt) {
    expect({ refreshes, good: answers.filter((answer) => answer.isGood) }).toEqual({ refreshes: false, good: [] })
    return 'ended before'
  }
  if (held.grantedAt < beganAt && held.revokeAskedAt > endedAt) {
    expect(refreshes).toBe(true)
    for (const answer of answers) {
      if (answer.answeredAt < beganAt) expect(answer.isGood).toBe(true)
      if (answer.askedAt > endedAt) expect(answer.isGood).toBe(false)
    }
    return 'good before'
  }
  expect(first?.isGood).toBe(refreshes) // both were written in the same transaction
  return 'meanwhile or later'
}

test('a backup under load holds what was acknowledged before, and nothing half done', {
  timeout: 240_000,
}, async () => {
  const service = await startProcess(ENV)
  const created = ['app', 'create', '--name', 'Report Builder', '--redirect-uri', CALLBACK]
  const { appid, secret } = await service.json<{ appid: string; secret: string }>(created)
  const app = { appid, secret, secretId: '', redirectUri: CALLBACK }
  const people = Array.from({ length: PEOPLE }, (_, n) => new Person(service, app, `person${n}`))
  for (const person of people) await person.register()

  const load = { isOver: false }
  const working = Promise.all([
    importSurveys(service, load),
    ...people.map((person, n) => person.work(load, n % 2 === 0)),
  ])
  const taken: Taken[] = []
  for (let n = 0; n < BACKUPS; n += 1) {
    await pause(PAUSE_MS)
    taken.push(await takeBackup(service, `backup${n}.tar`))
  }
  await pause(PAUSE_MS)
  load.isOver = true
  await working
  await service.stop()

  const seen: Record<string, number> = {}
  for (const backup of taken) {
    const dataDir = unpack(backup)
    requireWhole(dataDir)
    const restored = new ServiceProcess(dataDir, await freePort(), ENV)
    onTestFinished(() => restored.kill())
    await restored.start()
    for (const held of people.flatMap((person) => person.held)) {
      const what = await check(restored, app, held, backup)
      seen[what] = (seen[what] ?? 0) + 1
    }
    await restored.stop()
  }
  expect(seen['good before']).toBeGreaterThan(0)
  expect(seen['ended before']).toBeGreaterThan(0)
  expect(seen['meanwhile or later']).toBeGreaterThan(0)
})
