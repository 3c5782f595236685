// Each finding of the doctor, from a deployment that is broken for real: the line says what is wrong, where, and what to do; when
// that is done the check is ok.
import { execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, createServer as createNetServer } from 'node:net'
import path from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { readConfig } from '../../bin/config.js'
import { checks } from '../../bin/doctor/checks.js'
import { Database } from '../../services/storage/sqlite/driver.js'
import { freePort } from '../harness/free-port.js'
import { createProcess, type ServiceProcess, startProcess } from '../harness/process.js'
import { PROGRAM } from '../harness/spawn.js'
import { owning, startSurveyProvider } from '../harness/survey-provider.js'
import { Cluster, query } from '../postgres/cluster.js'
import { keepsPrepared, pgbouncerVersion, throughPgbouncer } from '../postgres/pgbouncer.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'

vi.setConfig({ testTimeout: 120_000 }) // each test runs several commands

type Env = Readonly<Record<string, string>>

interface Finding {
  readonly check: string
  readonly state: string
  readonly detail: string
}

/** What one check found, with the exit code. */
function findingIn(check: string, { exitCode, stdout }: { readonly exitCode: number | null; readonly stdout: string }) {
  const found = (JSON.parse(stdout) as Finding[]).find((finding) => finding.check === check)
  return { exitCode, state: found?.state, detail: found?.detail ?? '' }
}

async function examine(service: ServiceProcess, check: string, env: Env = {}) {
  return findingIn(check, await service.run(['doctor', '--json'], { env }))
}

interface Case {
  readonly check: string
  readonly when: string
  readonly state: 'odd' | 'wrong'
  readonly says: RegExp
  readonly breaks: (service: ServiceProcess) => Promise<Broken> | Broken
}

interface Broken {
  readonly env?: Env
  /** Nothing but the variables if undefined. */
  readonly mend?: (detail: string) => unknown
  /** Variables from then on; the same if undefined. */
  readonly after?: Env
}

const fileOf = ({ dataDir }: ServiceProcess, name = 'token.db') => path.join(dataDir, name)

/** Runs the command at the end of the line. */
function asAdvised(detail: string): void {
  const [, command = ''] = /; run: (.+)$/.exec(detail) ?? []
  execFileSync('sh', ['-ec', command || 'exit 1'])
}

const cases: readonly Case[] = [
  {
    check: 'configuration',
    when: 'has a variable that is wrong',
    state: 'wrong',
    says: /^PORT must be a whole number from 0 to 65535$/,
    breaks: () => ({ env: { PORT: 'many' }, after: {} }),
  },
  {
    check: 'configuration',
    when: 'names a file that is not there',
    state: 'wrong',
    says: /^RPC_TLS_CERT names a file that cannot be read: .+cert \(ENOENT\)/,
    breaks({ dataDir }) {
      const { cert, ...others } = serverMaterial()
      const env = { RPC_LISTEN: 'https://127.0.0.1:0', ...pemFiles(dataDir, { ...others, cert: undefined }) }
      return { env, mend: () => pemFiles(dataDir, { cert }) }
    },
  },
  {
    check: 'data directory',
    when: 'is not there',
    state: 'odd',
    says: /^\S+none does not exist yet; the first start creates it$/,
    breaks(service) {
      const env = { DATA_DIR: fileOf(service, 'none') }
      return { env, mend: () => migrate(service, env) }
    },
  },
  {
    check: 'data directory',
    when: 'is a file',
    state: 'wrong',
    says: /^\S+taken is not a directory; move it away, or correct DATA_DIR$/,
    breaks(service) {
      const file = fileOf(service, 'taken')
      writeFileSync(file, '')
      const env = { DATA_DIR: file }
      const mend = () => {
        renameSync(file, `${file}.away`)
        return migrate(service, env)
      }
      return { env, mend }
    },
  },
  {
    check: 'data directory',
    when: 'is open to others',
    state: 'wrong',
    says: /^\S+ is open to others; run: chmod 700 /,
    breaks({ dataDir }) {
      chmodSync(dataDir, 0o750)
      return { mend: asAdvised }
    },
  },
  {
    check: 'token database',
    when: 'is empty',
    state: 'odd',
    says: /^\S+token\.db holds nothing yet; the first start creates it$/,
    breaks(service) {
      writeFileSync(fileOf(service), '')
      return { mend: () => migrate(service) }
    },
  },
  {
    check: 'token database',
    when: 'is open to others',
    state: 'wrong',
    says: /^\S+token\.db is open to others; run: chmod 600 /,
    breaks(service) {
      chmodSync(fileOf(service), 0o644)
      return { mend: asAdvised }
    },
  },
  {
    check: 'token database',
    when: 'has a damaged page',
    state: 'wrong',
    says: /^\S+token\.db is damaged.*; restore a backup$/,
    async breaks(service) {
      const backup = fileOf(service, 'backup.tar')
      await service.run(['backup', backup])
      const bytes = readFileSync(fileOf(service))
      writeFileSync(fileOf(service), bytes.fill(0xff, 8192, 12_000))
      return { mend: () => execFileSync('tar', ['-xf', backup, '-C', service.dataDir]) }
    },
  },
  {
    check: 'survey database',
    when: 'is no database',
    state: 'wrong',
    says: /^\S+survey\.db is damaged or not a database \(SQLITE_NOTADB\); restore a backup$/,
    breaks(service) {
      const file = fileOf(service, 'survey.db')
      copyFileSync(file, `${file}.backup`)
      writeFileSync(file, 'words'.repeat(1000))
      return { mend: () => copyFileSync(`${file}.backup`, file) }
    },
  },
  {
    check: 'token database',
    when: 'is that of surveys',
    state: 'wrong',
    says: /^\S+survey\.db is not a token database of this program: name another file$/,
    breaks(service) {
      const elsewhere = { SURVEY_DATABASE_URL: `sqlite:${fileOf(service, 'other.db')}` }
      return { env: { TOKEN_DATABASE_URL: `sqlite:${fileOf(service, 'survey.db')}`, ...elsewhere }, after: {} }
    },
  },
  {
    check: 'token database',
    when: 'can be used by newer programs only',
    state: 'wrong',
    says: /token database .+ needs a program that knows 99; this one knows \d+: run a newer program$/,
    breaks(service) {
      const recorded = recordVersion(service, 99 * 0x10000 + 99)
      return { mend: () => recordVersion(service, recorded) } // what is newer is not at hand
    },
  },
  {
    check: 'token database',
    when: 'is a directory',
    state: 'wrong',
    says: /^\S+token\.db cannot be read: .+; free it, or correct TOKEN_DATABASE_URL$/,
    breaks(service) {
      const file = fileOf(service)
      renameSync(file, `${file}.away`)
      mkdirSync(file)
      const mend = () => {
        rmdirSync(file)
        renameSync(`${file}.away`, file)
      }
      return { mend }
    },
  },
  {
    check: 'clock',
    when: 'is behind what was written',
    state: 'wrong',
    says: /^\S+survey\.db was written 3\d\d\d s in the future, so the clock went back; set it, or, if it is right, wait until then$/,
    breaks(service) {
      const touch = (at: number) => utimesSync(fileOf(service, 'survey.db'), at, at)
      touch(Date.now() / 1000 + 3600)
      return { mend: () => touch(Date.now() / 1000) } // as if we had waited
    },
  },
  {
    check: 'certificate',
    when: 'is past',
    state: 'wrong',
    says: /cert ends at 2020-01-02T00:00:00\.000Z, which is past; replace it, with its key in RPC_TLS_KEY/,
    breaks: (service) => withCertificate(service, 0),
  },
  {
    check: 'certificate',
    when: 'ends within a week',
    state: 'odd',
    says: /cert ends at 20\S+Z; replace it, with its key in RPC_TLS_KEY/,
    breaks: (service) => withCertificate(service, 3),
  },
  {
    check: 'public address',
    when: 'is https without a proxy that is trusted',
    state: 'odd',
    says: /everybody counts as one address.*; set TRUSTED_PROXIES to the address that the proxy connects from$/,
    breaks() {
      const env = { PUBLIC_URL: 'https://a.example' }
      return { env, after: { ...env, TRUSTED_PROXIES: '127.0.0.1' } }
    },
  },
  {
    check: 'public address',
    when: 'is on loopback for a HOST that is not',
    state: 'wrong',
    says: /^HOST is 0\.0\.0\.0 but PUBLIC_URL is http:\S+; set PUBLIC_URL to the https address people use$/,
    breaks() {
      const env = { HOST: '0.0.0.0', TRUSTED_PROXIES: '127.0.0.1' }
      return { env, after: { ...env, PUBLIC_URL: 'https://a.example' } }
    },
  },
  {
    check: 'public address',
    when: 'is not https',
    state: 'wrong',
    says: /^http:\/\/a\.example is not https: .*; set PUBLIC_URL to the https address of the proxy in front$/,
    breaks() {
      const env = { PUBLIC_URL: 'http://a.example', TRUSTED_PROXIES: '127.0.0.1' }
      return { env, after: { ...env, PUBLIC_URL: 'https://a.example' } }
    },
  },
  {
    check: 'admin address',
    when: 'is turned off',
    state: 'odd',
    says: /^turned off: no health checks, no metrics; set ADMIN_PORT$/,
    breaks: () => ({ env: { ADMIN_PORT: '0' }, after: { ADMIN_PORT: '9' } }),
  },
  {
    check: 'admin address',
    when: 'is open to others',
    state: 'odd',
    says: /^0\.0\.0\.0:9; make sure that only your monitoring reaches it$/,
    breaks: () => ({ env: { ADMIN_PORT: '9', ADMIN_HOST: '0.0.0.0' }, after: { ADMIN_PORT: '9' } }),
  },
  {
    check: 'token service',
    when: 'is not there',
    state: 'wrong',
    says: /^token service at unix:\S+rpc\.sock: connect ENOENT.*; start or mend it, or correct TOKEN_SERVICE_URL$/,
    breaks(service) {
      const env = { TOKEN_SERVICE_URL: `unix:${fileOf(service, 'rpc.sock')}` }
      return { env, mend: () => service.start() }
    },
  },
  {
    check: 'token service',
    when: 'does not know us',
    state: 'wrong',
    says: /: it does not know this process as gateway: see RPC_CALLERS there; start or mend it, or correct TOKEN_SERVICE_URL$/,
    breaks: (service) => servedTo(service, 'gateway=DNS:others.test'),
  },
  {
    check: 'survey service',
    when: 'knows us in another role',
    state: 'odd',
    says: /^serves at \S+, and knows this certificate as operator, which is enough for commands; for a gateway, name it in RPC_CALLERS there$/,
    breaks: (service) => servedTo(service, 'operator=DNS:us.test'),
  },
  {
    check: 'survey service',
    when: 'is not at one of its addresses',
    state: 'odd',
    says: /^serves at another address; survey service at unix:\S+none\.sock: .*; start or mend it, or correct SURVEY_SERVICE_URL$/,
    async breaks(service) {
      const served = `unix:${fileOf(await startProcess(), 'rpc.sock')}`
      const both = `unix:${fileOf(service, 'none.sock')},${served}`
      const env = { TOKEN_SERVICE_URL: served, SURVEY_SERVICE_URL: both }
      return { env, after: { ...env, SURVEY_SERVICE_URL: served } }
    },
  },
  {
    check: 'survey provider',
    when: 'is down',
    state: 'wrong',
    says: /^http:\/\/127\.0\.0\.1:\d+: .*ECONNREFUSED.*; start or mend it, or correct SURVEY_PROVIDER_URL$/,
    async breaks() {
      const at = `127.0.0.1:${await freePort()}`
      const env = { SURVEY_PROVIDER_URL: `http://${at}` }
      return {
        env,
        async mend() {
          const provider = await startSurveyProvider(owning({}), { at })
          onTestFinished(() => provider.kill())
        },
      }
    },
  },
  {
    check: 'server',
    when: 'is not ready',
    state: 'wrong',
    says: /^\/readyz at 127\.0\.0\.1:\d+ answers 503: token database: unavailable; its log says why$/,
    breaks: () => answering(503, 'token database: unavailable\n'),
  },
  {
    check: 'server',
    when: 'lacks what it can do without',
    state: 'odd',
    says: /^running at 127\.0\.0\.1:\d+; ready; survey provider: unavailable; its log says why$/,
    breaks: () => answering(200, 'ready\nsurvey provider: unavailable\n'),
  },
  {
    check: 'server',
    when: 'hangs',
    state: 'wrong',
    says: /does not answer: not within 2000 ms; end what hangs there, or correct ADMIN_HOST and ADMIN_PORT$/,
    async breaks() {
      const server = createNetServer().listen(0, '127.0.0.1')
      await once(server, 'listening')
      const env = { ADMIN_PORT: String((server.address() as AddressInfo).port) }
      return { env, mend: () => server.close() }
    },
  },
]

async function migrate(service: ServiceProcess, env: Env = {}): Promise<void> {
  expect((await service.run(['migrate'], { env })).exitCode).toBe(0)
}

/** @returns what it was */
function recordVersion(service: ServiceProcess, version: number): number {
  const database = new Database(fileOf(service))
  const before = Number(database.pragma('user_version', { simple: true }))
  database.pragma(`user_version = ${version}`)
  database.close()
  return before
}

function serverMaterial(days = 30) {
  const authority = createAuthority()
  return materialOf(authority, authority.issue('DNS:token.test', days))
}

function withCertificate({ dataDir }: ServiceProcess, days: number): Broken {
  const env = { RPC_LISTEN: 'https://127.0.0.1:0', ...pemFiles(dataDir, serverMaterial(days)) }
  return { env, mend: () => pemFiles(dataDir, serverMaterial()) }
}

/** A certificate for us, and services with these callers at one address; then with us as the gateway. */
async function servedTo({ dataDir }: ServiceProcess, callers: string): Promise<Broken> {
  const authority = createAuthority()
  const files = pemFiles(dataDir, materialOf(authority, authority.issue('DNS:us.test,IP:127.0.0.1')))
  const url = `https://127.0.0.1:${await freePort()}`
  const serve = (RPC_CALLERS: string) => startProcess({ ...files, RPC_LISTEN: url, RPC_CALLERS })
  const services = await serve(callers)
  const mend = async () => {
    await services.stop()
    await serve('gateway=DNS:us.test')
  }
  return { env: { ...files, TOKEN_SERVICE_URL: url, SURVEY_SERVICE_URL: url }, mend }
}

/** An admin port that says this of readiness until it is mended. */
async function answering(status: number, text: string): Promise<Broken> {
  const said = { status, text }
  const server = createServer((_, response) => void response.writeHead(said.status).end(said.text))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => void server.close())
  const env = { ADMIN_PORT: String((server.address() as AddressInfo).port) }
  return { env, mend: () => Object.assign(said, { status: 200, text: 'ready\n' }) }
}

test.each(cases)('$check: one that $when is $state, and ok when it is mended as advised', async (one) => {
  const service = await createProcess()
  await service.run(['migrate'])
  const { env = {}, mend, after = env } = await one.breaks(service)
  const found = await examine(service, one.check, env)
  expect(found).toEqual({
    exitCode: one.state === 'wrong' ? 1 : 0,
    state: one.state,
    detail: expect.stringMatching(one.says),
  })
  await mend?.(found.detail)
  expect(await examine(service, one.check, after)).toMatchObject({ exitCode: 0, state: 'ok' })
})

test('clock: one from before this program was written is wrong, and ok when it is set', async () => {
  const service = await createProcess()
  const config = readConfig({ DATA_DIR: service.dataDir })
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2000, 0, 1) })
  onTestFinished(() => void vi.useRealTimers())
  expect(await checks.clock?.(config)).toEqual({
    state: 'wrong',
    detail: 'the clock says 2000-01-01T00:00:00.000Z; set it',
  })
  vi.useRealTimers()
  expect(await checks.clock?.(config)).toMatchObject({ state: 'ok' })
})

test('open files: a limit that is too low is odd, and ok when it is raised', async () => {
  const { dataDir } = await createProcess()
  const under = (limit: string) => {
    const argv = ['-c', `ulimit -n ${limit}; exec "$@"`, 'sh', process.execPath, PROGRAM, 'doctor', '--json']
    const env = { PATH: process.env.PATH, DATA_DIR: dataDir, ADMIN_PORT: '0' }
    const { status, stdout } = spawnSync('sh', argv, { env, encoding: 'utf8' })
    return findingIn('open files', { exitCode: status, stdout })
  }
  const { state, detail } = under('500')
  expect({ state, detail }).toEqual({ state: 'odd', detail: expect.stringMatching(/; raise the limit \(ulimit -n, /) })
  expect(under('$(ulimit -H -n)')).toMatchObject({ exitCode: 0, state: 'ok' })
})

const canMount = spawnSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0

describe.skipIf(!canMount)('a disk', () => {
  /** With a disk of its own, which has these options, at `folder`. */
  function examineOn(options: string, check: string, folder: string, env: Env) {
    const script = 'mount -t tmpfs -o "$0" tmpfs "$1" && shift && exec "$@"'
    const argv = ['-rm', 'sh', '-c', script, options, folder, process.execPath, PROGRAM, 'doctor', '--json']
    const all = { PATH: process.env.PATH, ADMIN_PORT: '0', ...env }
    const { status, stdout } = spawnSync('unshare', argv, { env: all, encoding: 'utf8' })
    return findingIn(check, { exitCode: status, stdout })
  }

  test('that is nearly full is wrong, one that has little left is odd, and ok when there is room', async () => {
    const { dataDir } = await createProcess()
    const disk = path.join(dataDir, 'disk')
    mkdirSync(disk)
    const env = { DATA_DIR: dataDir, SURVEY_DATABASE_URL: `sqlite:${path.join(disk, 'survey.db')}` }
    const withRoom = (size: string) => examineOn(`size=${size}`, 'disk space', disk, env)
    const says = (free: string, rest: string) => `${free} GiB free on the disk of ${disk}${rest}; make room there`
    expect(withRoom('32m')).toEqual({
      exitCode: 1,
      state: 'wrong',
      detail: says('0.0', ', and writes are about to fail'),
    })
    expect(withRoom('512m')).toEqual({ exitCode: 0, state: 'odd', detail: says('0.5', '') })
    expect(withRoom('2g')).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  test('that cannot be written is wrong, and ok when it can', async () => {
    const { dataDir } = await createProcess()
    const mounted = (how: string) => examineOn(`mode=700,${how}`, 'data directory', dataDir, { DATA_DIR: dataDir })
    expect(mounted('ro')).toEqual({
      exitCode: 1,
      state: 'wrong',
      detail: `${dataDir} cannot be written (EROFS); mount it so that it can be written`,
    })
    expect(mounted('rw')).toMatchObject({ exitCode: 0, state: 'ok' })
  })
})

const NOBODY = 65_534

function examineAsNobody(check: string, DATA_DIR: string) {
  const env = { PATH: process.env.PATH, DATA_DIR, ADMIN_PORT: '0' }
  const options = { env, cwd: '/', uid: NOBODY, gid: NOBODY, encoding: 'utf8' } as const
  const { status, stdout } = spawnSync(process.execPath, [PROGRAM, 'doctor', '--json'], options)
  return findingIn(check, { exitCode: status, stdout: stdout || '[]' })
}

// As in files.test.ts: without root there is no second user.
if (process.getuid?.() === 0 && examineAsNobody('configuration', '/').state === 'ok') {
  test('data directory: one in a folder that we may not enter is wrong, and ok when we may', async () => {
    const { dataDir: parent } = await createProcess()
    const dataDir = path.join(parent, 'data')
    mkdirSync(dataDir, { mode: 0o700 })
    chownSync(dataDir, NOBODY, NOBODY)
    const found = () => examineAsNobody('data directory', dataDir)
    expect(found()).toEqual({
      exitCode: 1,
      state: 'wrong',
      detail: expect.stringMatching(/^cannot open \S+data \(EACCES\): it belongs to root; run this as the user that/),
    })
    chmodSync(parent, 0o755)
    expect(found()).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  test('data directory: that of somebody else is wrong, and so is one that its owner may not write', async () => {
    const { dataDir } = await createProcess()
    const found = () => examineAsNobody('data directory', dataDir)
    expect(found()).toEqual({
      exitCode: 1,
      state: 'wrong',
      detail: `${dataDir} belongs to root; run this as root if that is the service's user, or correct DATA_DIR`,
    })
    chownSync(dataDir, NOBODY, NOBODY)
    expect(found()).toMatchObject({ exitCode: 0, state: 'ok' })
    chmodSync(dataDir, 0o500)
    const { state, detail } = found()
    expect({ state, detail }).toEqual({
      state: 'wrong',
      detail: expect.stringMatching(/ cannot be written \(EACCES\); run: chmod 700 /),
    })
    asAdvised(detail)
    expect(found()).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  test('token database: one that root has made for somebody else is wrong, and ok when it belongs to its user', async () => {
    const service = await createProcess()
    await service.run(['migrate'])
    chownSync(service.dataDir, NOBODY, NOBODY)
    const found = () => examineAsNobody('token database', service.dataDir)
    const { state, detail } = found()
    expect(state).toBe('wrong')
    expect(detail).toMatch(/it belongs to root; run this as the user that the service runs as, who must own the file/)
    for (const name of readdirSync(service.dataDir)) chownSync(fileOf(service, name), NOBODY, NOBODY)
    expect(found()).toMatchObject({ exitCode: 0, state: 'ok' })
  })
}

describe('PostgreSQL', () => {
  const both = (url: string) => ({ TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url })

  /** Of the token database at this address. */
  async function examineAt(url: string) {
    return examine(await createProcess(), 'token database', both(url))
  }

  async function migrated(url: string): Promise<string> {
    expect((await (await createProcess(both(url))).run(['migrate'])).exitCode).toBe(0)
    return url
  }

  test('without a schema is odd, and ok after migrate', async () => {
    const url = await createDatabase()
    const detail = 'PostgreSQL has no schema yet; the first start creates it'
    expect(await examineAt(url)).toEqual({ exitCode: 0, state: 'odd', detail })
    expect(await examineAt(await migrated(url))).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  test('whose role may not create tables is wrong, and no more once its owner has run what is advised', async () => {
    const url = new URL(await createDatabase())
    const name = `poor_${url.pathname.slice(1)}`
    await query(url.href, `CREATE ROLE ${name} LOGIN`)
    const asRole = new URL(url)
    asRole.username = name
    const { exitCode, state, detail } = await examineAt(asRole.href)
    expect({ exitCode, state }).toEqual({ exitCode: 1, state: 'wrong' })
    const [, advised = ''] = /; its owner can run there: (GRANT .+)$/.exec(detail) ?? []
    await query(url.href, advised)
    expect(await examineAt(await migrated(asRole.href))).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  test('whose tables are of another role is wrong, and ok when they belong to its role', async () => {
    const url = new URL(await migrated(await createDatabase()))
    const name = `other_${url.pathname.slice(1)}`
    await query(url.href, `CREATE ROLE ${name} LOGIN`)
    const asRole = new URL(url)
    asRole.username = name
    expect(await examineAt(asRole.href)).toEqual({
      exitCode: 1,
      state: 'wrong',
      detail: expect.stringMatching(
        / permission denied for table schema_versions; its tables must belong to that role$/,
      ),
    })
    const tables = await query(url.href, `SELECT tablename FROM pg_tables WHERE schemaname = 'public'`)
    await query(url.href, tables.map(({ tablename }) => `ALTER TABLE ${tablename} OWNER TO ${name}`).join(';'))
    expect(await examineAt(asRole.href)).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  test('in an encoding that cannot hold every text is wrong, and one that is created as advised is ok', async () => {
    const { state, detail } = await examineAt(await createDatabase("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    expect(state).toBe('wrong')
    const [, advised = ''] = /; create one with (ENCODING .+)$/.exec(detail) ?? []
    expect(await examineAt(await migrated(await createDatabase(advised)))).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  /** A server with TLS at two addresses, of which 127.0.0.2 is not taken for this machine; with the file of its authority. */
  async function twoAddresses() {
    const authority = createAuthority()
    const { dataDir } = await createProcess()
    const material = materialOf(authority, authority.issue('IP:127.0.0.2'))
    const { RPC_TLS_CERT: cert = '', RPC_TLS_KEY: key = '', RPC_TLS_CA: ca = '' } = pemFiles(dataDir, material)
    if (process.getuid?.() === 0) for (const one of [dataDir, cert, key]) chownSync(one, NOBODY, NOBODY)
    const tls = { ssl: 'on', ssl_cert_file: cert, ssl_key_file: key }
    const cluster = await Cluster.create({ listen_addresses: '127.0.0.1, 127.0.0.2', ...tls })
    onTestFinished(() => cluster.destroy())
    return { cluster, ca }
  }

  test('that is down, does not flush, or sends in the clear is found so, and ok when it is mended', async () => {
    const { cluster, ca } = await twoAddresses()
    const url = await migrated(await cluster.createDatabase())

    await cluster.stop()
    expect(await examineAt(url)).toEqual({
      exitCode: 1,
      state: 'wrong',
      detail: expect.stringMatching(/^PostgreSQL cannot be used: .+; start or mend it, or correct TOKEN_DATABASE_URL$/),
    })
    await cluster.start()
    expect(await examineAt(url)).toMatchObject({ exitCode: 0, state: 'ok' })

    const configure = async (text: string, is: string) => {
      await query(url, text)
      await query(url, 'SELECT pg_reload_conf()')
      await expect.poll(() => query(url, 'SHOW fsync')).toEqual([{ fsync: is }])
    }
    await configure('ALTER SYSTEM SET fsync = off', 'off')
    expect(await examineAt(url)).toEqual({
      exitCode: 1,
      state: 'wrong',
      detail: 'the database runs with fsync = off and could lose acknowledged writes: set it to on',
    })
    await configure('ALTER SYSTEM SET fsync = on', 'on')
    expect(await examineAt(url)).toMatchObject({ exitCode: 0, state: 'ok' })

    const far = url.replace('127.0.0.1', '127.0.0.2')
    const unsafe = [
      [far, / is not encrypted: add sslmode=verify-full to the address$/],
      [`${far}?sslmode=no-verify`, /whoever answers as .+ is believed without a check: add sslmode=verify-full to the/],
    ] as const
    for (const [address, says] of unsafe) {
      expect(await examineAt(address)).toEqual({ exitCode: 0, state: 'odd', detail: expect.stringMatching(says) })
    }
    const safe = `${far}?sslmode=verify-full&sslrootcert=${encodeURIComponent(ca)}`
    expect(await examineAt(safe)).toMatchObject({ exitCode: 0, state: 'ok' })
  })

  test.skipIf(pgbouncerVersion === undefined)(
    'behind a pooler that keeps no prepared statements is wrong, and ok behind one that is set as advised',
    async () => {
      const url = await migrated(await createDatabase())
      const unfit = { pool_mode: 'transaction', ...(keepsPrepared && { max_prepared_statements: '0' }) }
      const { exitCode, state, detail } = await examineAt(await throughPgbouncer(url, unfit))
      expect({ exitCode, state }).toEqual({ exitCode: 1, state: 'wrong' })
      expect(detail).toMatch(/max_prepared_statements = 200, or pool_mode = session$/)
      const fit = await throughPgbouncer(url, { pool_mode: 'session' })
      expect(await examineAt(fit)).toMatchObject({ exitCode: 0, state: 'ok' })
    },
  )
})
