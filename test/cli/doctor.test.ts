// What the doctor says about addresses, files and the clock, and about databases of newer and older programs.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, createServer as createNetServer, type Socket } from 'node:net'
import path from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { Database } from '../../services/storage/sqlite/driver.js'
import { freePort } from '../harness/free-port.js'
import { createProcess, type ServiceProcess, startProcess } from '../harness/process.js'
import { Cluster, query } from '../postgres/cluster.js'
import { Relay } from '../postgres/relay.js'
import { createDatabase } from '../postgres/shared-cluster.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

interface Finding {
  readonly check: string
  readonly state: string
  readonly detail: string
}

/** Its findings about each database, and its exit code. */
async function examine(service: ServiceProcess, env: Record<string, string> = {}) {
  const { exitCode, stdout } = await service.run(['doctor', '--json'], { env })
  const findings = JSON.parse(stdout) as Finding[]
  const of = (check: string) => findings.find((finding) => finding.check === check)
  const [token, survey] = [of('token database'), of('survey database')]
  return { exitCode, stdout, token, survey, certificate: of('certificate'), clock: of('clock') }
}

test.each<[string, string, Record<string, string>, string, RegExp]>([
  [
    'public address',
    'https',
    { PUBLIC_URL: 'https://a.example', TRUSTED_PROXIES: '::1' },
    'ok',
    /^https:\/\/a\.example$/,
  ],
  ['public address', 'http on loopback', {}, 'ok', /^http:\/\/127\.0\.0\.1:\d+, this machine only$/],
  ['admin address', 'on loopback', { ADMIN_PORT: '9' }, 'ok', /^127\.0\.0\.1:9, this machine only$/],
  [
    'admin address',
    'on loopback in IPv6',
    { ADMIN_PORT: '9', ADMIN_HOST: '::1' },
    'ok',
    /^\[::1\]:9, this machine only$/,
  ],
  ['admin address', 'for others in IPv6', { ADMIN_PORT: '9', ADMIN_HOST: '::' }, 'odd', /^\[::\]:9; make sure/],
  ['open files', 'enough', { HTTP_MAX_CONNECTIONS: '1' }, 'ok', /^as many as HTTP_MAX_CONNECTIONS needs$/],
  ['server', 'without an admin port', { ADMIN_PORT: '0' }, 'ok', /^not asked/],
  ['server', 'not running', { ADMIN_PORT: '9' }, 'ok', /^not running on ADMIN_PORT 9$/],
  [
    'server',
    'not to be found',
    { ADMIN_PORT: '9', ADMIN_HOST: 'nowhere.invalid' },
    'wrong',
    /^\/readyz at nowhere.invalid:9 does not answer: /,
  ],
  ['configuration', 'nearly an address', { HOST: '256.1.1.1' }, 'wrong', /^HOST must be a host name or an IP address$/],
])('the %s, when it is %s, gets the right verdict', async (check, _, env, state, detail) => {
  const { exitCode, stdout } = await examine(await createProcess(), env)
  const found = (JSON.parse(stdout) as Finding[]).find((finding) => finding.check === check)
  expect(found).toEqual({ check, state, detail: expect.stringMatching(detail) })
  expect(exitCode).toBe(state === 'wrong' ? 1 : 0)
})

/** A server of other protocols than HTTP on a port of 127.0.0.1, 0 for a free one; returns its port. */
async function listen(port: number, onConnection: (socket: Socket) => void): Promise<number> {
  const server = createNetServer((socket) => onConnection(socket.on('error', () => undefined)))
  onTestFinished(() => void server.close())
  await once(server.listen(port, '127.0.0.1'), 'listening')
  return (server.address() as AddressInfo).port
}

test.each<[string, (socket: Socket) => void, RegExp]>([
  ['hangs', () => undefined, /not within 2000 ms; end what/],
  [
    'begins its answer',
    (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok'),
    /not within 2000 ms; end what/,
  ],
  ['hangs up', (socket) => socket.resume().end(), /socket hang up;/],
  ['speaks something else', (socket) => socket.end('SSH-2.0\r\n'), /Parse Error/],
])('a server that %s, and no more, is wrong', async (_, onConnection, reason) => {
  const port = await listen(0, onConnection)
  const { exitCode, stdout } = await examine(await createProcess(), { ADMIN_PORT: String(port) })
  const found = (JSON.parse(stdout) as Finding[]).find(({ check }) => check === 'server')
  expect({ exitCode, found }).toMatchObject({ exitCode: 1, found: { state: 'wrong' } })
  expect(found?.detail).toMatch(`/readyz at 127.0.0.1:${port} does not answer: `)
  expect(found?.detail).toMatch(reason)
})

test('the commands that it advises can be pasted, whatever the folder is called', async () => {
  const service = await createProcess()
  const env = { DATA_DIR: path.join(service.dataDir, "it's our folder; really") }
  await service.run(['migrate'], { env })
  for (const name of ['token.db', 'survey.db']) chmodSync(path.join(env.DATA_DIR, name), 0o644)
  const findings = async () => JSON.parse((await examine(service, env)).stdout) as Finding[]
  const advised = (await findings()).flatMap(({ detail }) => /; run: (chmod .*)$/.exec(detail)?.[1] ?? [])
  expect(advised).toHaveLength(2)
  for (const command of advised) execFileSync('sh', ['-c', command])
  expect((await findings()).filter(({ state }) => state === 'wrong')).toEqual([])
})

test('services elsewhere are asked, and their databases are not looked for here', async () => {
  const service = await startProcess()
  const elsewhere = await createProcess()
  const DATA_DIR = path.join(elsewhere.dataDir, 'none')
  const served = `unix:${path.join(service.dataDir, 'rpc.sock')}`
  const env = { DATA_DIR, TOKEN_SERVICE_URL: served, SURVEY_SERVICE_URL: served }
  const found = async (env: Record<string, string>) => {
    const { exitCode, stdout } = await examine(elsewhere, env)
    const ours = ['data directory', 'token database', 'survey database', 'token service', 'survey service']
    return { exitCode, findings: (JSON.parse(stdout) as Finding[]).filter(({ check }) => ours.includes(check)) }
  }
  const ok = (check: string) => ({ check, state: 'ok', detail: `serves at ${served}` })
  expect(await found(env)).toEqual({ exitCode: 0, findings: [ok('token service'), ok('survey service')] })

  const nobody = `unix:${path.join(service.dataDir, 'nobody.sock')}`
  expect(await found({ ...env, SURVEY_SERVICE_URL: nobody })).toEqual({
    exitCode: 1,
    findings: [
      ok('token service'),
      { check: 'survey service', state: 'wrong', detail: expect.stringContaining(`${nobody}: connect ENOENT`) },
    ],
  })

  expect(await found({ ...env, SURVEY_SERVICE_URL: `${nobody},${served}` })).toEqual({
    exitCode: 0,
    findings: [
      ok('token service'),
      {
        check: 'survey service',
        state: 'odd',
        detail: expect.stringMatching(/^serves at another address; survey service at .*nobody.sock: connect ENOENT/),
      },
    ],
  })

  const { findings } = await found({ ...env, DATA_DIR: service.dataDir, SURVEY_SERVICE_URL: '' })
  expect(findings.map(({ check }) => check)).toEqual([
    'data directory',
    'token database',
    'survey database',
    'token service',
  ])
})

describe('SQLite', () => {
  test.each([
    ['token', 'app list', ['app', 'list']],
    ['survey', 'migrate', ['migrate']],
  ] as const)(
    'a %s database that needs a newer program is wrong, with the same message as from %s',
    async (name, _, args) => {
      const service = await createProcess()
      await service.run(['migrate'])
      const file = path.join(service.dataDir, `${name}.db`)
      const db = new Database(file)
      db.pragma('user_version = 99')
      const newer = await examine(service)
      expect(newer).toMatchObject({ exitCode: 0, [name]: { state: 'ok' } })
      expect(newer[name]?.detail).toMatch(/^schema version 99, intact; this program knows \d+ and may use it$/)
      db.pragma(`user_version = ${98 * 0x10000 + 99}`)
      db.close()
      const { exitCode, [name]: found } = await examine(service)
      expect({ exitCode, found }).toMatchObject({ exitCode: 1, found: { state: 'wrong' } })
      expect(found?.detail).toContain(
        `the ${name} database ${file} has schema version 99, which needs a program that knows 98; `,
      )
      expect((await service.run(args)).stderr).toBe(`survey-auth: ${found?.detail}\n`)
    },
  )

  test('an answer of several lines is reported in one', async () => {
    const service = await createProcess()
    const adminPort = await freePort()
    const admin = createServer((_, answer) => {
      answer
        .writeHead(503, { 'content-type': 'text/plain; charset=utf-8' })
        .end('token database: unavailable\nsurvey database: unavailable\n')
    })
    await new Promise<void>((resolve) => admin.listen(adminPort, '127.0.0.1', resolve))
    onTestFinished(() => void admin.close())
    const { stdout } = await examine(service, { ADMIN_PORT: String(adminPort) })
    expect(JSON.parse(stdout)).toContainEqual({
      check: 'server',
      state: 'wrong',
      detail: `/readyz at 127.0.0.1:${adminPort} answers 503: token database: unavailable; survey database: unavailable; its log says why`,
    })
  })
})

/** The address of a server that accepts connections and answers nothing. */
async function silentAddress(): Promise<string> {
  const url = new URL(await createDatabase())
  const relay = await Relay.open(Number(url.port))
  onTestFinished(() => relay.close())
  relay.silence()
  return `postgres://u:canary@127.0.0.1:${relay.port}/x`
}

describe('PostgreSQL', () => {
  const both = (url: string) => ({ TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url })

  test('without a schema is odd, not wrong, and is left without one', async () => {
    const service = await createProcess()
    const url = await createDatabase()
    const { exitCode, token, survey } = await examine(service, both(url))
    const found = { state: 'odd', detail: 'PostgreSQL has no schema yet; the first start creates it' }
    expect({ exitCode, token, survey }).toMatchObject({ exitCode: 0, token: found, survey: found })
    expect(await query(url, `SELECT to_regclass('schema_versions') AS name`)).toEqual([{ name: null }])
  })

  test('is refused in an encoding that cannot hold every text, here and by whatever would use it', async () => {
    const service = await createProcess()
    await service.run(['migrate']) // makes files to copy
    const env = both(await createDatabase("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    const { token, survey } = await examine(service, env)
    for (const [name, found] of Object.entries({ token, survey })) {
      expect(found).toMatchObject({
        state: 'wrong',
        detail: expect.stringMatching(`^the ${name} database has the enc`),
      })
    }
    for (const args of [['serve'], ['migrate'], ['store', 'copy'], ['app', 'list']]) {
      const { exitCode, stderr } = await service.run(args, { env })
      expect({ args, exitCode, stderr }).toEqual({
        args,
        exitCode: 78,
        stderr: expect.stringContaining('encoding LATIN1'),
      })
    }
  })

  test('is reported with its schema version, and whether it is of a newer program', async () => {
    const service = await createProcess()
    const url = await createDatabase()
    const env = both(url)
    await service.run(['migrate'], { env })
    const current = await examine(service, env)
    expect(current).toMatchObject({
      exitCode: 0,
      token: { state: 'ok', detail: 'PostgreSQL, schema version 1' },
      survey: { state: 'ok', detail: 'PostgreSQL, schema version 1' },
    })

    await query(url, `UPDATE schema_versions SET version = 99 WHERE name = 'token'`)
    const detail = 'PostgreSQL, schema version 99; this program knows 1 and may use it'
    expect(await examine(service, env)).toMatchObject({ exitCode: 0, token: { state: 'ok', detail } })

    await query(url, `UPDATE schema_versions SET usable_from = 98 WHERE name = 'token'`)
    const { exitCode, token } = await examine(service, env)
    expect({ exitCode, state: token?.state }).toEqual({ exitCode: 1, state: 'wrong' })
    expect((await service.run(['app', 'list'], { env })).stderr).toBe(`survey-auth: ${token?.detail}\n`)
  })

  test('whose connections others could read, or answer, is odd, and a warning in the log of a start', async () => {
    const cluster = await Cluster.create({ listen_addresses: '127.0.0.1, 127.0.0.2' })
    onTestFinished(() => cluster.destroy())
    const url = new URL(await cluster.createDatabase())
    url.hostname = '127.0.0.2' // which isLoopback does not know
    const service = await startProcess(both(url.href))
    const where = `127.0.0.2:${url.port}`
    const danger = `what is sent to ${where} is not encrypted: add sslmode=verify-full to the address`
    const detail = `PostgreSQL, schema version 1; ${danger}`
    expect(await examine(service)).toMatchObject({
      exitCode: 0,
      token: { state: 'odd', detail },
      survey: { state: 'odd' },
    })
    expect(service.output).toContain(`the token database: ${danger}`)
  })

  test.each([
    ['that nobody serves', async () => 'postgres://u:canary@127.0.0.1:9/x', /ECONNREFUSED 127\.0\.0\.1:9;/],
    ['that never answers', silentAddress, /timeout/],
    [
      'without the database',
      async () => (await createDatabase()).replace('postgres@', 'postgres:canary@').replace(/[^/]+$/, 'nowhere'),
      /database "nowhere" does not exist;/,
    ],
  ])('%s is wrong within seconds, in one line without the password', async (_, address, reason) => {
    const service = await createProcess()
    const env = both(await address())
    const startedAt = performance.now()
    const { exitCode, stdout, token, survey } = await examine(service, env)
    expect(performance.now() - startedAt).toBeLessThan(30_000)
    for (const found of [token, survey]) {
      expect(found?.state).toBe('wrong')
      expect(found?.detail).toMatch(/^PostgreSQL cannot be used: .+$/)
      expect(found?.detail).toMatch(reason)
    }
    expect({ exitCode, isTold: stdout.includes('canary') }).toEqual({ exitCode: 1, isTold: false })
  })
})
