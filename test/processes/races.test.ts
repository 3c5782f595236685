// Two gateways, each with a token service of its own, on one database: what may happen once happens once across all of them.
// Long runs: RACES_CODES codes of RACES_PARALLEL (100) exchanges, RACES_ROUNDS rounds of the other races.
import { type ChildProcess, execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { send } from '../harness/http.js'
import { BUILD, spawnServe } from '../harness/spawn.js'
import { CALLBACK, whenAnswered, withQuery } from '../harness/verbs.js'
import { callRpc } from '../long/send.js'
import { createDatabase } from '../postgres/shared-cluster.js'

const PARALLEL = Number(process.env.RACES_PARALLEL ?? '100')
const START_TIMEOUT_MS = 60_000
const AT_ONCE = 10

interface Answer {
  readonly status: number
  /** `error.type`, or `OK`. */
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
}

/** A gateway and its token service. */
interface Pair {
  readonly url: string
  readonly socket: string
}

/** All processes of one database. */
class Fleet {
  readonly #dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-races-'))
  readonly #children: ChildProcess[] = []
  readonly #database: string
  readonly pairs: Pair[] = []
  appid = ''
  secret = ''
  #sessionToken = ''
  #forms = 0
  #turn = 0

  readonly #env: Record<string, string>

  constructor(database: string | undefined, env: Record<string, string> = {}) {
    this.#env = env
    this.#database = database ?? `sqlite:${path.join(this.#dataDir, 'token.db')}`
  }

  async start(): Promise<void> {
    for (const name of ['a', 'b']) this.pairs.push(await this.#startPair(name))
    const app = await this.rpc('AdminService/CreateApp', { name: 'Races', redirectUris: [CALLBACK] })
    this.appid = String((app.app as { appid: string }).appid)
    this.secret = String(app.secret)
    const person = { username: 'ana', password: 'password of ana' }
    await this.rpc('AdminService/CreateUser', person)
    this.#sessionToken = String((await this.rpc('AccountService/SignIn', person)).sessionToken)
  }

  stop(): void {
    for (const child of this.#children) child.kill('SIGKILL')
    rmSync(this.#dataDir, { recursive: true, force: true })
  }

  async #startPair(name: string): Promise<Pair> {
    const port = await freePort()
    const socket = path.join(this.#dataDir, `${name}.sock`)
    const { PATH = '', HOME = '' } = process.env
    const env = {
      PATH,
      HOME,
      DATA_DIR: this.#dataDir,
      PORT: String(port),
      ADMIN_PORT: '0',
      RATE_LIMIT: 'off',
      CODE_REPLAY_GRACE_SECONDS: '600', // a busy machine may try again later than the default, and end the grant
      LOG_LEVEL: 'error',
      RPC_TIMEOUT_MS: '30000', // on a busy machine the default would turn slowness into 503
      TOKEN_DATABASE_URL: this.#database,
      MAX_GRANTS_PER_USER_AND_APP: '200',
      MAX_LIVE_CODES_PER_USER_AND_APP: '1000',
      ...this.#env,
    }
    await this.#spawn('token', { ...env, RPC_LISTEN: `unix:${socket}` })
    await this.#spawn('gateway', { ...env, TOKEN_SERVICE_URL: `unix:${socket}` })
    const url = `http://127.0.0.1:${port}`
    const deadline = Date.now() + START_TIMEOUT_MS
    const query = { appid: 'app_x', access_token: 'sat_x', openid: 'o_x' }
    while ((await ask(url, '/api/oauth2/user', query).catch(() => undefined))?.type !== 'invalid_appid') {
      if (Date.now() > deadline) throw new Error(`pair ${name} does not answer`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    return { url, socket }
  }

  #spawn(mode: 'token' | 'gateway', env: Record<string, string>): Promise<void> {
    const { child, listening } = spawnServe(mode, env)
    this.#children.push(child)
    return listening
  }

  /** The pairs in turn. */
  next(): Pair {
    this.#turn += 1
    return this.pairs[this.#turn % this.pairs.length] as Pair
  }

  async rpc(method: string, message: Record<string, unknown>): Promise<Record<string, unknown>> {
    return callRpc(this.next().socket, method, message)
  }

  async issueCode(): Promise<string> {
    this.#forms += 1
    const form = { requestId: `form-${String(this.#forms).padStart(16, '0')}`, scope: 'snsapi_user' }
    const consent = { sessionToken: this.#sessionToken, appid: this.appid, redirectUri: CALLBACK }
    return String((await this.rpc('TokenService/IssueCode', { ...form, ...consent })).code)
  }

  exchange(code: string, secret = this.secret): Promise<Answer> {
    const query = { appid: this.appid, secret, code, grant_type: 'authorization_code' }
    return this.#ask('/api/oauth2/access_token', query)
  }

  refresh(refreshToken: unknown): Promise<Answer> {
    const query = { appid: this.appid, refresh_token: String(refreshToken), grant_type: 'refresh_token' }
    return this.#ask('/api/oauth2/refresh_token', query)
  }

  /** The answer of one of them about the token. */
  one(accessToken: unknown, openid: unknown): Promise<Answer> {
    return this.#ask('/api/oauth2/user', {
      appid: this.appid,
      access_token: String(accessToken),
      openid: String(openid),
    })
  }

  /** Asks the gateway whose turn it is. */
  #ask(target: string, query: Record<string, string>): Promise<Answer> {
    return ask(this.next().url, target, query)
  }

  /** Each gateway's answer about the token, one after the other. */
  async user(accessToken: unknown, openid: unknown): Promise<string[]> {
    const query = { appid: this.appid, access_token: String(accessToken), openid: String(openid) }
    const types: string[] = []
    for (const { url } of this.pairs) types.push((await ask(url, '/api/oauth2/user', query)).type)
    return types
  }

  async newestGrantId(): Promise<string> {
    const { grants } = await this.rpc('AdminService/ListGrants', { appid: this.appid, pageSize: 1 })
    return (grants as { grantId: string }[])[0]?.grantId ?? ''
  }
}

async function ask(url: string, target: string, query: Record<string, string>): Promise<Answer> {
  const { status, text } = await send(url, withQuery(target, query))
  const { code, error, data } = JSON.parse(text) as { code: string; error: { type: string }; data: Answer['data'] }
  return { status, type: code === 'OK' ? 'OK' : error.type, data }
}

function tally(answers: readonly Answer[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const { type } of answers) counts[type] = (counts[type] ?? 0) + 1
  return counts
}

const times = <T>(count: number, work: (n: number) => T): T[] => Array.from({ length: count }, (_, n) => work(n))
/** A random moment within the race, so that each round has a different interleaving. */
const shortly = () => new Promise((resolve) => setTimeout(resolve, Math.random() * 15))

const { RACES_CODES, RACES_ROUNDS } = process.env
const codes = Number(RACES_CODES ?? 8)
const databases = [
  { name: 'SQLite', open: async () => undefined, rounds: Number(RACES_ROUNDS ?? 12) },
  { name: 'PostgreSQL', open: createDatabase, rounds: Number(RACES_ROUNDS ?? 6) },
]

describe.each(databases)('two gateways and two token services on one $name', ({ open, rounds }) => {
  const timeout = 120_000 + (codes * PARALLEL + rounds * 100) * 50
  let fleet: Fleet
  beforeAll(async () => {
    execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
    fleet = new Fleet(await open())
    await fleet.start()
  }, 180_000)
  afterAll(() => fleet.stop())

  test('exchange a code once, however many try', { timeout }, async () => {
    for (let n = 0; n < codes; n += 1) {
      const code = await fleet.issueCode()
      const answers = await Promise.all(times(PARALLEL, () => whenAnswered(() => fleet.exchange(code))))
      expect(tally(answers)).toEqual({ OK: 1, invalid_code: PARALLEL - 1 })
      const { data } = answers.find(({ type }) => type === 'OK') as Answer
      expect(await fleet.user(data.access_token, data.openid)).toEqual(['OK', 'OK'])
    }
  })

  test('leave no good token when a refresh races a revocation', { timeout }, async () => {
    let raced = 0
    for (let n = 0; n < rounds; n += 1) {
      const { data } = await fleet.exchange(await fleet.issueCode())
      const grantId = await fleet.newestGrantId()
      expect(await fleet.user(data.access_token, data.openid)).toEqual(['OK', 'OK'])
      const refreshes = times(AT_ONCE, () => shortly().then(() => fleet.refresh(data.refresh_token)))
      await shortly()
      await fleet.rpc('AdminService/RevokeGrant', { grantId })
      expect(await fleet.user(data.access_token, data.openid)).toEqual(['invalid_token', 'invalid_token'])
      expect((await fleet.refresh(data.refresh_token)).type).toBe('invalid_refresh_token')
      for (const refreshed of await Promise.all(refreshes)) {
        expect(['OK', 'invalid_refresh_token']).toContain(refreshed.type)
        if (refreshed.type !== 'OK') continue
        raced += 1
        const good = await fleet.user(refreshed.data.access_token, data.openid)
        expect(good).toEqual(['invalid_token', 'invalid_token'])
      }
    }
    expect(raced, 'refreshes that were answered OK').toBeGreaterThan(0)
  })

  test('accept no revoked secret, and use up no code on one', { timeout }, async () => {
    let old = { secret: fleet.secret, secretId: '' }
    const renew = async (name: string) => {
      const { secret, secretId } = await fleet.rpc('AdminService/AddAppSecret', { appid: fleet.appid, name })
      return { secret: String(secret), secretId: String(secretId) }
    }
    old = await renew('round 0')
    for (let n = 1; n <= rounds; n += 1) {
      const next = await renew(`round ${n}`)
      const codes = await Promise.all(times(AT_ONCE, () => fleet.issueCode()))
      const racing = codes.map((code) => shortly().then(() => fleet.exchange(code, old.secret)))
      await shortly()
      await fleet.rpc('AdminService/RevokeAppSecret', { appid: fleet.appid, secretId: old.secretId })
      const late = await Promise.all(codes.map((code) => fleet.exchange(code, old.secret)))
      expect(tally(late)).toEqual({ invalid_secret: AT_ONCE })
      const first = await Promise.all(racing)
      const second = await Promise.all(codes.map((code) => fleet.exchange(code, next.secret)))
      for (const [index, { type }] of first.entries()) {
        expect(['OK invalid_code', 'invalid_secret OK']).toContain(`${type} ${second[index]?.type}`)
      }
      old = next
    }
    fleet.secret = old.secret
  })
})

describe.each(databases)('a fleet of 200 holders of one refresh token, two token services on one $name', ({ open }) => {
  let fleet: Fleet
  beforeAll(async () => {
    execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
    fleet = new Fleet(await open(), { ACCESS_TOKEN_TTL_SECONDS: '8' }) // longer than a busy machine takes for a call
    await fleet.start()
  }, 180_000)
  afterAll(() => fleet.stop())

  test('loses no call, each renewing on invalid_token and trying once more', { timeout: 120_000 }, async () => {
    const { data } = await fleet.exchange(await fleet.issueCode())
    const { access_token, refresh_token, openid } = data
    const counts = { calls: 0, refreshes: 0, lost: 0 }
    async function hold(): Promise<void> {
      let token = access_token
      for (const until = performance.now() + 20_000; performance.now() < until; ) {
        counts.calls += 1
        const { type } = await whenAnswered(() => fleet.one(token, openid))
        if (type === 'invalid_token') {
          counts.refreshes += 1
          const refreshed = await whenAnswered(() => fleet.refresh(refresh_token))
          token = refreshed.data.access_token
          if ((await whenAnswered(() => fleet.one(token, openid))).type !== 'OK') counts.lost += 1
        }
        await new Promise((resolve) => setTimeout(resolve, 3_000 * Math.random()))
      }
    }
    await Promise.all(times(200, hold))
    expect(counts.lost).toBe(0)
    expect(counts.refreshes).toBeGreaterThan(200)
    const { events } = await fleet.rpc('AdminService/ListAuditEvents', { appid: fleet.appid, pageSize: 1000 })
    const minted = (events as { kind: string }[]).filter(({ kind }) => kind === 'token.refreshed').length
    expect(minted).toBeLessThan(counts.refreshes / 10)
  })
})
