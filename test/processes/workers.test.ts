// serve --workers: gateways in processes of their own that share a port, started, replaced and ended under load.
import { type ChildProcess, execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { grantAccessOn, type SpawnedAccess } from '../harness/access.js'
import { freePort } from '../harness/free-port.js'
import { halfARequest } from '../harness/half-a-request.js'
import { createProcess, type Environment, openProcess, type ServiceProcess } from '../harness/process.js'
import { BUILD, spawnServe } from '../harness/spawn.js'
import { withQuery } from '../harness/verbs.js'

vi.setConfig({ testTimeout: 180_000 }) // each test waits for several processes

const WITHIN_MS = 45_000 // a process starts in half a second on a machine that does nothing else

interface Reply {
  readonly status: number
  readonly text: string
}

class RequestFailed extends Error {
  constructor(
    readonly code: string,
    /** The connection had answered a request before. */
    readonly wasConnected: boolean,
  ) {
    super(code)
  }
}

interface Crew {
  readonly service: ServiceProcess
  readonly adminUrl: string
}

async function startCrew(workers: number, env: Environment = {}, create = createProcess): Promise<Crew> {
  const adminPort = await freePort()
  const service = await create({ ADMIN_PORT: String(adminPort), ...env })
  await service.start('--workers', String(workers))
  const adminUrl = `http://127.0.0.1:${adminPort}`
  await until(async () => (await get(adminUrl, '/readyz')).status === 200)
  await until(() => workersOf(service).filter(isRunning).length === workers) // the log may come later
  return { service, adminUrl }
}

function get(origin: string, target: string, agent = new Agent()): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const sent = request(`${origin}${target}`, { agent, timeout: WITHIN_MS }, (answer) => {
      let text = ''
      answer.on('data', (chunk: Buffer) => {
        text += chunk.toString('utf8')
      })
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }))
      answer.on('error', reject)
    })
    sent.on('timeout', () => sent.destroy(new Error('no answer in time')))
    sent.on('error', (error: NodeJS.ErrnoException) => {
      reject(new RequestFailed(error.code ?? error.message, sent.reusedSocket))
    })
    sent.end()
  })
}

/** A client that keeps its one connection. */
function keepingClient(origin: string): (target: string) => Promise<Reply> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  onTestFinished(() => agent.destroy())
  return (target) => get(origin, target, agent)
}

async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAt = performance.now() + WITHIN_MS
  while (!(await isTrue())) {
    if (performance.now() > giveUpAt) throw new Error(`not within ${WITHIN_MS} ms`)
    await sleep(20)
  }
}

/** Worker processes by their number, as the log says. */
function workersOf({ output }: ServiceProcess): number[] {
  const pids: number[] = []
  for (const [, number, pid] of output.matchAll(/worker (\d+) \(process (\d+)\) serves/g)) {
    pids[Number(number) - 1] = Number(pid)
  }
  return pids
}

/** Processes that have answered requests. */
function answering({ output }: ServiceProcess): Set<string> {
  return new Set([...output.matchAll(/"pid":(\d+),"route"/g)].map(([, pid = '']) => pid))
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

function typeOf({ text }: Reply): string {
  return (JSON.parse(text) as { error: { type: string } }).error.type
}

function profilePath({ appid, openid }: SpawnedAccess, accessToken: string): string {
  return withQuery('/api/oauth2/user', { appid, access_token: accessToken, openid })
}

/** A call that every service answers: the appid is unknown, so a working service says so. */
const ASKED = '/api/surveys/1?appid=app_x&access_token=sat_x'

/** Between two requests of a client: without it the load alone would keep a successor from starting. */
const PAUSE_MS = 3

/** Clients that keep sending requests: some keep their connection, the others open a new one each time. */
class Load {
  /** Error codes, and wrong answers. */
  readonly failures: string[] = []
  /** How many of them were on a connection that had worked before. */
  failuresOfConnected = 0
  answers = 0
  #isOver = false
  readonly #clients: Promise<void>[]

  constructor(origin: string, keeping: number, closing: number) {
    const clients = [
      ...Array.from({ length: keeping }, () => keepingClient(origin)),
      ...Array.from({ length: closing }, () => (target: string) => get(origin, target)),
    ]
    this.#clients = clients.map((ask) => this.#run(ask))
  }

  async end(): Promise<void> {
    this.#isOver = true
    await Promise.all(this.#clients)
  }

  async #run(ask: (target: string) => Promise<Reply>): Promise<void> {
    while (!this.#isOver) {
      try {
        const reply = await ask(ASKED)
        this.answers += 1
        if (reply.status !== 400) this.failures.push(`${reply.status} ${reply.text}`)
        await sleep(PAUSE_MS)
      } catch (error) {
        if (!(error instanceof RequestFailed)) throw error
        this.failures.push(error.code)
        if (error.wasConnected) this.failuresOfConnected += 1
        await sleep(20)
      }
    }
  }
}

/** Asks each worker to end, one after the other, under load. */
async function endEach({ service }: Crew): Promise<void> {
  const saidBefore = service.output.length
  const load = new Load(service.url, 6, 2)
  await until(() => load.answers > 50)
  for (const [index, pid] of workersOf(service).entries()) {
    process.kill(pid, 'SIGTERM')
    await until(() => workersOf(service)[index] !== pid)
    await until(() => !isRunning(pid))
  }
  const answered = load.answers
  await until(() => load.answers > answered + 50)
  await load.end()
  expect(load.failures).toEqual([])
  expect(service.output.slice(saidBefore)).not.toContain('"level":40')
}

/** Ends a crew under load. */
async function endAll(service: ServiceProcess, signal: 'SIGTERM' | 'SIGINT'): Promise<void> {
  const workers = workersOf(service)
  const [keeping, closing] = [8, 4]
  const load = new Load(service.url, keeping, closing)
  await until(() => load.answers > 50)
  if (signal === 'SIGINT') for (const pid of workers) process.kill(pid, 'SIGINT') // as a terminal does
  service.signal(signal)
  expect(await service.ended()).toBe(0)
  await load.end()
  expect(load.failuresOfConnected).toBe(0)
  const failures = load.failures.filter((failure) => failure !== 'ECONNREFUSED')
  // Clients that connect while the port is being closed, for 0.2 ms, are reset: all of them at worst, and then refused.
  expect(failures.length).toBeLessThanOrEqual(keeping + closing)
  expect(failures.filter((failure) => failure !== 'ECONNRESET')).toEqual([])
  expect(workers.filter(isRunning)).toEqual([])
  expect(service.output).toContain(`${signal}: stopping`)
  expect(service.output).toMatch(/"msg":"stopped"\}\n$/)
}

describe('two workers', () => {
  let service: ServiceProcess
  let adminUrl: string
  beforeAll(async () => {
    ;({ service, adminUrl } = await startCrew(2, {}, openProcess))
    return () => service.remove()
  }, 60_000)

  test('both answer, and a refresh or a revocation holds at once at all of them', async () => {
    const access = await grantAccessOn(service, ['Tea'])
    const clients = Array.from({ length: 24 }, () => keepingClient(service.url))
    const typesFor = async (accessToken: string) => {
      const replies = await Promise.all(clients.map((ask) => ask(profilePath(access, accessToken))))
      return [...new Set(replies.map(typeOf))]
    }
    expect(await typesFor(access.accessToken)).toEqual([''])
    await until(() => answering(service).size > 1)

    const { appid, refreshToken } = access
    const refresh = { appid, refresh_token: refreshToken, grant_type: 'refresh_token' }
    const refreshed = await get(service.url, withQuery('/api/oauth2/refresh_token', refresh))
    const { data } = JSON.parse(refreshed.text) as { data: { access_token: string } }
    expect(await typesFor(data.access_token)).toEqual([''])

    const [grant] = await service.json<{ grant_id: string }[]>(['grant', 'list', '--appid', appid])
    await service.json(['grant', 'revoke', grant?.grant_id ?? ''])
    expect(await typesFor(data.access_token)).toEqual(['invalid_token'])
    expect(await typesFor(access.accessToken)).toEqual(['invalid_token'])
  })

  test('under load, one that is killed is replaced, and the other goes on', async () => {
    const [killed = 0, other = 0] = workersOf(service)
    const load = new Load(service.url, 6, 2)
    await until(() => load.answers > 50)
    process.kill(killed, 'SIGKILL')
    await until(() => workersOf(service)[0] !== killed)
    const failed = load.failures.length
    const answered = load.answers
    await until(() => load.answers > answered + 100)
    await load.end()
    expect(load.failures.length).toBe(failed)
    expect(new Set(load.failures)).toEqual(new Set(failed > 0 ? ['ECONNRESET'] : [])) // on the killed worker's connections
    expect(failed).toBeLessThanOrEqual(8)
    expect(workersOf(service)[1]).toBe(other)
    expect(service.output).toContain(`worker 1 (process ${killed}) ended: SIGKILL; another takes its place"`)
    expect((await get(adminUrl, '/readyz')).text).toBe('ready\n')
  })

  test('under load, each that is asked to end is replaced, and no request fails', () => endEach({ service, adminUrl }))

  test('metrics cover all, including those that have ended', async () => {
    const sum = async (series: RegExp) =>
      [...(await get(adminUrl, '/metrics')).text.matchAll(series)].reduce((all, [, count]) => all + Number(count), 0)
    const requests = () => sum(/^survey_auth_http_requests_total\{.*route="survey".*\} (\d+)$/gm)
    const calls = () => sum(/^survey_auth_rpc_calls_total\{.*SurveyService\/GetSurvey.*\} (\d+)$/gm)
    const ends = () => sum(/^survey_auth_worker_ends_total (\d+)$/gm)
    const ask = (times: number) => Promise.all(Array.from({ length: times }, () => get(service.url, ASKED)))
    const [before, endsBefore, callsBefore] = [await requests(), await ends(), await calls()]
    await ask(40)
    expect(await requests()).toBe(before + 40)
    for (const [index, signal] of (['SIGKILL', 'SIGTERM'] as const).entries()) {
      const pid = workersOf(service)[index] ?? 0
      process.kill(pid, signal)
      await until(() => workersOf(service)[index] !== pid && !isRunning(pid))
      expect(await requests()).toBe(before + 40)
    }
    await ask(10)
    expect(await requests()).toBe(before + 50)
    const { text } = await get(adminUrl, '/metrics')
    expect(await calls()).toBe(callsBefore + 50)
    expect(text).toMatch(/^survey_auth_workers 2$/m)
    expect(await ends()).toBe(endsBefore + 1) // the other one was told to end
    expect(text.match(/^nodejs_eventloop_lag_p99_seconds /gm)).toHaveLength(1)
  })

  test('metrics do not wait for one that hangs, and soon stop counting it as serving', async () => {
    const [hanging = 0] = workersOf(service)
    process.kill(hanging, 'SIGSTOP')
    const metrics = () => get(adminUrl, '/metrics')
    const { status, text } = await metrics()
    expect(status).toBe(200)
    expect(text).toContain('process_resident_memory_bytes')
    await until(async () => /^survey_auth_workers 1$/m.test((await metrics()).text)) // it takes up to 12 s
    process.kill(hanging, 'SIGCONT')
    await until(async () => /^survey_auth_workers 2$/m.test((await metrics()).text))
    expect(workersOf(service)[0]).toBe(hanging)
  })

  test('without any the service is not ready, and says so', async () => {
    for (const pid of workersOf(service)) process.kill(pid, 'SIGKILL')
    const readyz = () => get(adminUrl, '/readyz')
    await until(async () => (await readyz()).text === 'workers: none of 2 serves\n')
    expect((await readyz()).status).toBe(503)
    await until(async () => (await readyz()).status === 200)
  })

  test('their port is reported as in use before another touches a database', async () => {
    const { port } = new URL(service.url)
    const second = await createProcess({ PORT: port })
    const { exitCode, stderr } = await second.cli(['serve', '--workers', '2'])
    expect({ exitCode, stderr }).toEqual({
      exitCode: 69,
      stderr: `survey-auth: port ${port} on 127.0.0.1 is in use\nstop what listens there, or choose another port: PORT=${Number(port) + 1}\n`,
    })
    expect(existsSync(path.join(second.dataDir, 'token.db'))).toBe(false)
  })

  test('SIGTERM ends everything, and open connections are served', () => endAll(service, 'SIGTERM'))
})

test('SIGINT ends everything, and open connections are served', async () => {
  await endAll((await startCrew(1)).service, 'SIGINT')
})

test('a single worker that is asked to end, under load, is replaced, and no request fails', async () =>
  endEach(await startCrew(1)))

test('rate limits hold for all workers together', async () => {
  const rate = 20
  const { service } = await startCrew(2, {
    RATE_LIMIT: 'on',
    RATE_API_PER_SOURCE: String(rate),
    RATE_API_WINDOW_SECONDS: '86400',
  })
  let admitted = 0
  for (let asked = 0; asked < 3 * rate; asked += 1) {
    if ((await get(service.url, '/api/oauth2/user')).status === 400) admitted += 1
    await sleep(50)
  }
  expect(admitted).toBeGreaterThanOrEqual(rate - 1) // startCrew may have asked once
  expect(admitted).toBeLessThan(2 * rate) // counting alone, they would admit that many
})

test('a request that keeps a worker from ending is answered, even while all processes are ending', async () => {
  const { service } = await startCrew(1)
  const [pid = 0] = workersOf(service)
  const { finish, answer } = await halfARequest(service.url)
  process.kill(pid, 'SIGTERM')
  await until(() => workersOf(service)[0] !== pid)
  await sleep(500) // by then it knows that its successor serves
  service.signal('SIGTERM')
  await sleep(500)
  expect(isRunning(pid)).toBe(true)
  finish()
  expect(await answer).toMatch(/^HTTP\/1\.1 4/)
  expect(await service.ended()).toBe(0)
})

test('workers whose parent is killed end, even one that was told to end and waits for a request', async () => {
  const { service } = await startCrew(2, { HTTP_REQUEST_TIMEOUT_SECONDS: '60' })
  const [retired = 0, other = 0] = workersOf(service)
  process.kill(other, 'SIGSTOP') // so that the first one takes the connection
  await halfARequest(service.url)
  process.kill(other, 'SIGCONT')
  process.kill(retired, 'SIGTERM')
  await until(() => workersOf(service)[0] !== retired)
  await sleep(500) // by then it knows that its successor serves
  const workers = [retired, ...workersOf(service)]
  expect(workers.filter(isRunning)).toHaveLength(3)
  service.signal('SIGKILL')
  await until(() => workers.filter(isRunning).length === 0)
})

test('the start fails when workers die before they serve', async () => {
  const dying = `if (process.argv.includes('--worker')) process.kill(process.pid, 'SIGKILL')`
  const service = await createProcess({ NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(dying)}` })
  const { exitCode, stderr } = await service.cli(['serve', '--workers', '1'])
  expect(exitCode).toBe(1)
  expect(stderr).toContain('survey-auth: worker 1 ended 3 times before it served, the last time: SIGKILL\n')
})

describe('the folder of the socket', () => {
  const folders = (directory: string) =>
    readdirSync(directory).filter((name) => name.startsWith('survey-auth-workers-'))

  test('cannot be below a TMPDIR that is too long, and nothing is left behind', async () => {
    const service = await createProcess()
    const long = path.join(service.dataDir, 't'.repeat(100))
    mkdirSync(long)
    const { exitCode, stderr } = await service.cli(['serve', '--workers', '1'], { env: { TMPDIR: long } })
    expect(exitCode).toBe(78)
    expect(stderr).toContain('survey-auth: TMPDIR is too long for the socket of the workers')
    expect(readdirSync(long)).toEqual([])
    expect(readdirSync(service.dataDir)).toEqual([path.basename(long)])
  })

  test('is removed when a second signal ends the process at once', async () => {
    const { service } = await startCrew(1)
    await halfARequest(service.url)
    expect(folders(service.dataDir)).toHaveLength(1)
    service.signal('SIGINT')
    await until(() => service.output.includes('SIGINT: stopping'))
    service.signal('SIGINT')
    expect(await service.ended()).toBe(1)
    expect(folders(service.dataDir)).toEqual([])
  })

  test('is removed when a signal arrives during the start', async () => {
    const service = await createProcess()
    const started = service.start('--workers', '2').catch(() => undefined)
    await until(() => folders(service.dataDir).length === 1)
    service.signal('SIGTERM')
    expect(await service.ended()).toBe(0)
    await started
    expect(service.output).toMatch(/"msg":"stopped"\}\n$/)
    expect(folders(service.dataDir)).toEqual([])
  })

  test('may be lost: running workers go on, and a new worker that finds no services is reported', async () => {
    const { service, adminUrl } = await startCrew(2)
    for (const name of folders(service.dataDir)) rmSync(path.join(service.dataDir, name), { recursive: true })
    expect(typeOf(await get(service.url, ASKED))).toBe('invalid_appid')
    const [first = 0, second = 0] = workersOf(service)
    process.kill(first, 'SIGKILL')
    await until(() => workersOf(service)[0] !== first)
    process.kill(second, 'SIGTERM')
    await until(() => workersOf(service)[1] !== second)
    await until(async () =>
      /^workers: token service at unix:.*: unavailable$/m.test((await get(adminUrl, '/readyz')).text),
    )
    expect((await get(adminUrl, '/metrics')).text).toMatch(/^survey_auth_workers 1$/m)
    expect(isRunning(second)).toBe(true) // its successor cannot serve
  })
})

test('a worker that ends again and again is replaced with growing delay, without any database secret or the file that held it', async () => {
  const service = await createProcess()
  const file = path.join(service.dataDir, 'address')
  writeFileSync(file, `sqlite:${path.join(service.dataDir, 'other.db')}`)
  const { service: crew } = await startCrew(1, { TOKEN_DATABASE_URL_FILE: file, PGPASSWORD: 'secret' })
  rmSync(file)
  for (let times = 0; times < 3; times += 1) {
    const [pid = 0] = workersOf(crew)
    process.kill(pid, 'SIGKILL')
    await until(() => workersOf(crew)[0] !== pid)
  }
  expect(crew.output.match(/another takes its place[^"]*/g)).toEqual([
    'another takes its place',
    'another takes its place in 0.5 s',
    'another takes its place in 1 s',
  ])
  expect(typeOf(await get(crew.url, ASKED))).toBe('invalid_appid')
  if (process.platform !== 'linux') return
  const environment = readFileSync(`/proc/${workersOf(crew)[0]}/environ`, 'utf8')
  expect(environment).toContain('TOKEN_SERVICE_URL=unix:')
  expect(environment).not.toMatch(/DATABASE_URL|PGPASSWORD/)
})

test.each([
  ['RPC_LISTEN=off', { RPC_LISTEN: 'off' }],
  ['a DATA_DIR too long for a socket', { DATA_DIR: 'd'.repeat(110) }],
])('with %s, a request answered during the start is answered by the services', async (_, env) => {
  const service = await createProcess({ LOG_LEVEL: 'error', ...env })
  const started = service.start('--workers', '1')
  let first: Reply | undefined
  await until(async () => {
    first = await get(service.url, ASKED).catch(() => undefined)
    return first !== undefined
  })
  expect(first && typeOf(first)).toBe('invalid_appid')
  await started
  expect(service.output).not.toContain('(RPC)')
})

test('workers of serve gateway reach services in other processes', async () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-workers-'))
  const [port, adminPort] = [await freePort(), await freePort()]
  const { PATH = '', HOME = '' } = process.env
  const env = {
    PATH,
    HOME,
    TMPDIR: dataDir,
    DATA_DIR: dataDir,
    PORT: String(port),
    ADMIN_PORT: '0',
    LOG_LEVEL: 'error',
  }
  const children: ChildProcess[] = []
  onTestFinished(() => {
    for (const child of children) child.kill('SIGKILL')
    rmSync(dataDir, { recursive: true, force: true })
  })
  const run = async (mode: string, own: Environment = {}, ...args: readonly string[]) => {
    const { child, listening } = spawnServe(mode, { ...env, ...own }, ...args)
    children.push(child)
    await listening
  }
  const admin = `http://127.0.0.1:${adminPort}`
  await run('gateway', { ADMIN_PORT: String(adminPort) }, '--workers', '1')
  expect((await get(admin, '/readyz')).text).toMatch(/^token service at .*: unavailable$/m)
  await Promise.all([run('token'), run('survey')])
  await until(async () => (await get(admin, '/readyz')).status === 200)
  expect(typeOf(await get(`http://127.0.0.1:${port}`, ASKED))).toBe('invalid_appid')
})
