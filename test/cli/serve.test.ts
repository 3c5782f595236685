import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, renameSync } from 'node:fs'
import { connect } from 'node:net'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { warnOfGateway } from '../../bin/compose/gateway-part.js'
import { readConfig } from '../../bin/config.js'
import { Database } from '../../services/storage/sqlite/driver.js'
import { Clock } from '../harness/clock.js'
import { freePort } from '../harness/free-port.js'
import { halfARequest } from '../harness/half-a-request.js'
import { createProcess, openProcess, type ServiceProcess, startProcess } from '../harness/process.js'
import { PROGRAM, untilListening } from '../harness/spawn.js'
import { openService, startService } from '../harness.js'
import { query } from '../postgres/cluster.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

test('it says which databases it creates, and which a newer program has migrated, and nothing of others', async () => {
  const url = await createDatabase()
  const service = await createProcess({ SURVEY_DATABASE_URL: url })
  const made = [
    `creating a new database: ${path.join(service.dataDir, 'token.db')}`,
    'creating the tables of the survey database',
  ]
  const said = () => made.map((text) => service.output.split(`"${text}"`).length - 1)
  await service.start()
  await service.stop()
  expect(said()).toEqual([1, 1])
  await service.start()
  await service.stop()
  expect(said()).toEqual([1, 1])
  expect(service.output).not.toContain('schema version')
  const db = new Database(path.join(service.dataDir, 'token.db'))
  db.pragma('user_version = 99')
  db.close()
  await query(url, 'UPDATE schema_versions SET version = 99')
  await service.start()
  await service.stop()
  for (const name of ['token', 'survey']) {
    const told = new RegExp(
      `"level":30,.*"the ${name} database has schema version 99; this program knows \\d+ and may use it"`,
    )
    expect(service.output).toMatch(told)
  }
})

test('run by its file name, it starts Node with its options, and gets signals', async () => {
  const PATH = `${path.dirname(process.execPath)}:${process.env.PATH}`
  const env = { PATH, DATA_DIR: temporaryDirectory(), PORT: '0', ADMIN_PORT: '0' }
  const service = spawn(PROGRAM, ['serve', 'all'], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  onTestFinished(() => void service.kill('SIGKILL'))
  const ended = new Promise((resolve) => service.once('exit', resolve))
  await untilListening(service)
  const options = [
    '--v8-pool-size=1',
    '--min-semi-space-size=16',
    '--no-memory-reducer',
    '--no-allocation-site-pretenuring',
  ]
  const started = readFileSync(`/proc/${service.pid}/cmdline`, 'utf8').split('\0')
  expect(started).toEqual(expect.arrayContaining(options))
  service.kill('SIGTERM')
  expect(await ended).toBe(0)
})

test.each([
  ['npm start', 'SIGTERM', 'npm', 1],
  ['npm start', 'SIGTERM', 'all its processes, as by supervisors', -1],
  ['npm start', 'SIGINT', 'all its processes, as by terminals', -1],
  ['npm run demo', 'SIGTERM', 'npm', 1],
] as const)('%s stops cleanly on %s to %s', async (command, signal, _, sign) => {
  const { dataDir } = await createProcess()
  const PATH = `${path.dirname(process.execPath)}:${process.env.PATH}`
  const service = { DATA_DIR: dataDir, PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'info' }
  const env = { PATH, HOME: dataDir, npm_config_update_notifier: 'false', ...service }
  const npm = spawn('sh', ['-c', `exec ${command}`], {
    env,
    cwd: ROOT,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  onTestFinished(() => endGroup(Number(npm.pid)))
  const ended = new Promise((resolve) => npm.once('close', resolve)) // once nothing holds its stdout any more
  let said = ''
  const collect = (chunk: Buffer) => {
    said += chunk.toString('utf8')
  }
  npm.stdout.on('data', collect)
  npm.stderr.on('data', collect)
  await vi.waitUntil(() => /listening on|Ctrl-C ends/.test(said), 60_000)
  process.kill(sign * Number(npm.pid), signal)
  expect(await ended).toBe(0)
  if (command === 'npm start') expect(said).toContain('"stopped"') // the demo does not log it
})

test('a signal that it gets directly and again from npm counts once', async () => {
  const service = await startProcess({ npm_lifecycle_script: 'exec sh bin/survey-auth.js serve all' })
  const slow = await halfARequest(service.url)
  service.signal('SIGINT')
  const ended = service.stop()
  await sleep(200)
  slow.finish()
  expect(await slow.answer).toMatch(/^HTTP\/1\.1 40[0-9] /)
  expect(await ended).toBe(0)
})

test('a second signal ends it at once, whatever is in flight', async () => {
  const service = await startProcess()
  const { hostname, port } = new URL(service.url)
  const slow = connect(Number(port), hostname)
  onTestFinished(() => void slow.destroy())
  slow.on('error', () => undefined)
  slow.write('POST /connect/sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nusername=') // the rest never follows
  await new Promise((resolve) => setTimeout(resolve, 300))
  service.signal('SIGTERM')
  const isWaiting = await Promise.race([
    service.ended().then(() => false),
    new Promise((resolve) => setTimeout(resolve, 1_500, true)),
  ])
  expect(isWaiting).toBe(true)
  service.signal('SIGTERM')
  expect(await service.ended()).toBe(1)
})

test('an uncaught error ends it with exit code 1, and is logged once', async () => {
  const defect = `process.on('SIGUSR2', () => { throw new Error('nobody expected this') })`
  const service = await startProcess({ NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(defect)}` })
  service.signal('SIGUSR2')
  expect(await service.ended()).toBe(1)
  expect(service.output.match(/Error: nobody expected this/g)).toHaveLength(1)
})

describe('while it runs', () => {
  let service: ServiceProcess
  let adminUrl: string
  beforeAll(async () => {
    const port = await freePort()
    adminUrl = `http://127.0.0.1:${port}`
    service = await openProcess({ ADMIN_PORT: String(port), LOG_LEVEL: 'info' })
    await service.start()
    return () => service.remove()
  }, 120_000)

  test('the log says where it listens', () => {
    expect(service.output).toContain(`listening on ${service.url}`)
  })

  test('SIGHUP does not end it', async () => {
    service.signal('SIGHUP')
    await sleep(200)
    expect((await fetch(`${service.url}/api/`)).status).toBe(404)
  })

  test('without its database file it is not ready, and its log says why, and when the file is back', async () => {
    const isReady = async () => (await fetch(`${adminUrl}/readyz`)).status === 200
    await vi.waitUntil(isReady, 10_000)
    const file = path.join(service.dataDir, 'token.db')
    renameSync(file, `${file}.away`)
    expect(await isReady()).toBe(false)
    const why = `not ready: token database (${file} was moved or deleted: what is written now is lost when this process ends)`
    await vi.waitUntil(() => service.output.includes(why), 10_000)
    renameSync(`${file}.away`, file)
    await vi.waitUntil(() => service.output.includes('everything is in order again'), 10_000)
    expect(await isReady()).toBe(true)
  })

  test('another on its port is refused, with the variable, exit 69', async () => {
    const second = await createProcess({ PORT: new URL(service.url).port })
    const { exitCode, stderr } = await second.cli(['serve'])
    expect(exitCode).toBe(69)
    expect(stderr).toContain('is in use')
    expect(stderr).toContain('PORT=')
  })

  test('health, readiness and metrics are on the admin port', async () => {
    const get = async (path: string) => {
      const answer = await fetch(`${adminUrl}${path}`)
      return { status: answer.status, text: await answer.text() }
    }
    expect(await get('/healthz')).toEqual({ status: 200, text: 'ok\n' })
    expect(await get('/readyz')).toEqual({ status: 200, text: 'ready\n' })
    expect((await get('/metrics')).text).toMatch(/survey_auth_http_requests_total\{.*outcome="no_route".*\} \d/)
    expect((await get('/')).status).toBe(404)
  })

  test('commands work beside it, and take effect on its next request', async () => {
    const callback = 'https://app.example.com/callback'
    const { appid } = await service.json<{ appid: string }>([
      'app',
      'create',
      '--name',
      'N',
      '--redirect-uri',
      callback,
    ])
    const refresh = `${service.url}/api/oauth2/refresh_token?appid=${appid}&refresh_token=x&grant_type=refresh_token`
    const typeOf = async () => ((await (await fetch(refresh)).json()) as { error: { type: string } }).error.type
    expect(await typeOf()).toBe('invalid_refresh_token')
    await service.json(['app', 'disable', appid])
    expect(await typeOf()).toBe('invalid_appid')
    await service.json(['app', 'enable', appid])
    expect(await typeOf()).toBe('invalid_refresh_token')
  })

  test('it answers a request in flight before it ends at SIGTERM, with exit code 0', async () => {
    const slow = await halfARequest(service.url)
    const ended = service.stop()
    await expect.poll(() => statusOf(`${adminUrl}/readyz`)).toBe(503)
    slow.finish()
    expect(await slow.answer).toMatch(/^HTTP\/1\.1 40[0-9] /)
    expect(await ended).toBe(0)
  })
})

test.each([
  ['HOST', 'fe80::1'],
  ['ADMIN_HOST', '192.0.2.1'],
])('%s=%s, no address of this machine, is refused by name, exit 78', async (variable, host) => {
  const service = await createProcess({ ADMIN_PORT: String(await freePort()), [variable]: host })
  const { exitCode, stderr } = await service.cli(['serve'])
  const said = `survey-auth: ${variable} must be an address of this machine, and ${host} is none\n`
  expect({ exitCode, stderr }).toEqual({ exitCode: 78, stderr: said })
})

test.each(['TOKEN', 'SURVEY'])('a %s_DATABASE_URL where nobody answers is named, exit 69', async (name) => {
  const service = await createProcess({ [`${name}_DATABASE_URL`]: 'postgres://u:canary@127.0.0.1:9/x' })
  const { exitCode, stderr } = await service.cli(['serve'])
  const said = `the ${name.toLowerCase()} database is unavailable: connect ECONNREFUSED 127.0.0.1:9`
  const names = `${name}_DATABASE_URL or ${name}_DATABASE_URL_FILE names it`
  const ending = expect.stringMatching(new RegExp(`survey-auth: ${said}\n${names}\n`))
  expect({ exitCode, stderr }).toEqual({ exitCode: 69, stderr: ending })
})

test.each(['token', 'survey'])('serve %s, which nobody could reach, is refused and makes no database', async (mode) => {
  const service = await createProcess({ RPC_LISTEN: 'off' })
  const { exitCode, stderr } = await service.cli(['serve', mode])
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 78, stderr: expect.stringContaining('RPC_LISTEN is off\n') })
  expect(readdirSync(service.dataDir)).toEqual([])
})

test.each([
  ['DATA_DIR', (directory: string) => directory, ['token']],
  ['RPC_LISTEN', (directory: string) => `unix:${directory}`, ['all']],
] as const)(
  '%s that is too long for a socket is refused by name, exit 78, and nothing listens',
  async (variable, of, args) => {
    const directory = temporaryDirectory()
    const service = await createProcess({ [variable]: of(path.join(directory, 'long'.repeat(30))) })
    const { exitCode, stderr } = await service.cli(['serve', ...args])
    const sockets = readdirSync(directory, { withFileTypes: true }).filter((entry) => entry.isSocket())
    expect({ exitCode, sockets }).toEqual({ exitCode: 78, sockets: [] })
    expect(stderr).toContain(`survey-auth: ${variable} is too long for a socket`)
  },
)

test('connections over HTTP_MAX_CONNECTIONS are closed at once and counted, and the others are served', async () => {
  const adminPort = await freePort()
  const service = await startProcess({ ADMIN_PORT: String(adminPort), HTTP_MAX_CONNECTIONS: '20' })
  const { hostname, port } = new URL(service.url)
  const ask = (settle: (outcome: 'served' | 'closed') => void) => {
    const socket = connect(Number(port), hostname)
    onTestFinished(() => void socket.destroy())
    socket.on('error', () => undefined)
    socket.once('data', () => settle('served')).once('close', () => settle('closed'))
    socket.write('GET /api/oauth2/user HTTP/1.1\r\nHost: x\r\n\r\n')
  }
  const asked = Array.from({ length: 30 }, () => new Promise(ask))
  const outcomes = await Promise.all(asked)
  const closed = outcomes.filter((outcome) => outcome === 'closed').length
  expect(closed).toBeGreaterThanOrEqual(10)
  expect(closed, 'those that are served').toBeLessThan(30)
  const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text()
  expect(metrics).toContain(`survey_auth_http_connections_dropped_total ${closed}\n`)
})

test('a process that may open fewer files than it takes connections says so', async () => {
  const { dataDir } = await createProcess()
  const env = { PATH: process.env.PATH, DATA_DIR: dataDir, PORT: '0', ADMIN_PORT: '0' }
  const limited = ['-c', 'ulimit -n 400 && exec "$0" "$@"', process.execPath, PROGRAM, 'serve']
  const child = spawn('sh', limited, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  let log = ''
  for await (const chunk of child.stderr) {
    log += chunk
    if (log.includes('listening on')) child.kill('SIGTERM')
  }
  expect(log).toContain('may open 400 files, so it takes 188 connections at a time, not HTTP_MAX_CONNECTIONS (10000)')
})

function warningsOf(env: Readonly<Record<string, string>>): readonly string[] {
  const warnings: string[] = []
  warnOfGateway({ ...readConfig(env), httpMaxConnections: 1 }, { warning: (text) => warnings.push(text) })
  return warnings
}

test('a HOST that others reach beside a PUBLIC_URL that is this machine is warned of', () => {
  const forms = expect.stringContaining('HOST is 0.0.0.0 but PUBLIC_URL names this machine only: forms sent to another')
  expect(warningsOf({ HOST: '0.0.0.0' })).toEqual([forms])
  const front = { PUBLIC_URL: 'https://auth.example.com', TRUSTED_PROXIES: '10.0.0.1' }
  expect(warningsOf({ HOST: '0.0.0.0', ...front })).toEqual([])
  expect(warningsOf({})).toEqual([])
})

test('an https PUBLIC_URL without TRUSTED_PROXIES is warned of', () => {
  const PUBLIC_URL = 'https://auth.example.com'
  const lockout = /^PUBLIC_URL is https.+wrong passwords of one person keep everybody.+; set TRUSTED_PROXIES to /
  expect(warningsOf({ PUBLIC_URL })).toEqual([expect.stringMatching(lockout)])
  expect(warningsOf({ PUBLIC_URL, TRUSTED_PROXIES: '127.0.0.1' })).toEqual([])
  expect(warningsOf({ TRUSTED_PROXIES: '127.0.0.1' })).toEqual([])
})

test('last uses are written when it ends, even if its janitor has not run yet', async () => {
  const place = { dataDir: temporaryDirectory(), clock: new Clock() }
  const service = await openService({ place })
  const access = await service.grantAccess()
  place.clock.advance({ hours: 1 })
  expect((await service.user(access)).code).toBe('OK')
  await service.backend.close()
  const again = await startService({ place })
  const [grant] = (await again.admin.listGrants({})).grants
  expect(grant?.lastUseTime && timestampMs(grant.lastUseTime)).toBe(place.clock.now())
})

function endGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // all have ended
  }
}

async function statusOf(url: string): Promise<number> {
  return fetch(url).then(
    ({ status }) => status,
    () => 0,
  )
}
