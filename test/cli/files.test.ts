// Unusable files and directories are reported plainly, not as internal errors.
import { execFileSync, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { createProcess } from '../harness/process.js'
import { PROGRAM } from '../harness/spawn.js'
import { createAuthority, pemFiles } from '../rpc/certificates.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

describe('what is at a path that we would create', () => {
  const create = ['app', 'create', '--name', 'N', '--redirect-uri', 'https://app.example/']

  test.each([
    ['a file', (place: string) => writeFileSync(place, 'of somebody else')],
    ['a file that only its owner may read', (place: string) => writeFileSync(place, 'his', { mode: 0o400 })],
    ['a folder', (place: string) => mkdirSync(place)],
    ['a link to nothing', (place: string) => symlinkSync('/nowhere', place)],
    ['a pipe', (place: string) => void execFileSync('mkfifo', [place])],
  ])('RPC_LISTEN at %s is refused with exit 78, and it stays', async (_, make) => {
    const service = await createProcess()
    const place = path.join(service.dataDir, 'place')
    make(place)
    const before = lstatSync(place)
    const { exitCode, stderr } = await service.run(['serve'], { env: { RPC_LISTEN: `unix:${place}` } })
    expect(stderr).toContain(
      `survey-auth: RPC_LISTEN must be free or an old socket, which is replaced: ${place} is not a socket, and stays\n`,
    )
    expect(exitCode).toBe(78)
    const { ino, mode, size } = lstatSync(place)
    expect({ ino, mode, size }).toEqual({ ino: before.ino, mode: before.mode, size: before.size })
  })

  test('the socket in DATA_DIR replaces no file either, and replaces one that was left by a process that was killed', async () => {
    const service = await createProcess()
    const place = path.join(service.dataDir, 'rpc.sock')
    writeFileSync(place, 'a backup')
    expect((await service.run(['serve'])).exitCode).toBe(78)
    expect(readFileSync(place, 'utf8')).toBe('a backup')
    rmSync(place)
    await service.start()
    await service.kill()
    expect(lstatSync(place).isSocket()).toBe(true)
    await service.start()
    const { screen } = await service.onTerminal(['app', 'list'])
    expect(screen).toContain(`using the token service at unix:${place}`)
    expect((await service.cli(['app', 'list', '--json'])).stderr).toBe('')
  })

  test.each(['token.db', 'token.db-wal', 'token.db-shm', 'token.db-journal', 'survey.db', 'survey.db-wal'])(
    'RPC_LISTEN at %s is refused before the database is made',
    async (name) => {
      const service = await createProcess()
      const { exitCode, stderr } = await service.run(['serve'], { env: { RPC_LISTEN: `unix:./${name}` } })
      expect(stderr).toContain('survey-auth: RPC_LISTEN must not be a file of a database\n')
      expect([exitCode, readdirSync(service.dataDir)]).toEqual([78, []])
    },
  )

  test.each(['token.db', 'token.db-journal', 'survey.db-wal'])(
    'a backup is not written as %s, where SQLite would remove it',
    async (name) => {
      const service = await createProcess()
      await service.run(create)
      const { exitCode, stderr } = await service.run(['backup', name])
      expect(stderr).toContain(`${path.join(service.dataDir, name)} is a name that SQLite uses`)
      expect([exitCode, readdirSync(service.dataDir)]).toEqual([1, ['token.db']])
      expect((await service.run(['app', 'list'])).exitCode).toBe(0)
    },
  )

  test('a database that would be a pipe or a device is refused, and it keeps its mode', async () => {
    const service = await createProcess()
    const pipe = path.join(service.dataDir, 'pipe')
    execFileSync('mkfifo', ['-m', '666', pipe])
    for (const words of ['migrate', 'app list', 'serve']) {
      const { exitCode, stderr } = await service.run(words.split(' '), {
        env: { TOKEN_DATABASE_URL: `sqlite:${pipe}` },
      })
      expect({ words, exitCode, stderr }).toMatchObject({ words, exitCode: 1 })
      expect(stderr).toContain(`${pipe} is damaged or not a database (SQLITE_NOTADB)`)
    }
    expect(statSync(pipe).mode & 0o777).toBe(0o666)
  })
})

test.each([['serve'], ['app list'], ['doctor'], ['config']])(
  'survey-auth %s says that the working directory has been deleted',
  async (words) => {
    const { dataDir } = await createProcess()
    const [command, folder] = ['mkdir "$1" && cd "$1" && rmdir "$1" && shift && exec "$@"', path.join(dataDir, 'gone')]
    const argv = ['-c', command, 'sh', folder, process.execPath, PROGRAM, ...words.split(' ')]
    const { status, stderr } = spawnSync('sh', argv, { env: { PATH: process.env.PATH }, encoding: 'utf8' })
    const told = 'survey-auth: the working directory cannot be used (ENOENT)\ngo to another one: cd /\n'
    expect({ status, stderr }).toEqual({ status: 69, stderr: told })
  },
)

test('where few files may be open, the program says that file descriptors ran out', async () => {
  const { dataDir } = await createProcess()
  const argv = ['-c', 'ulimit -n "$0"; exec "$@"', '60', process.execPath, PROGRAM, 'app', 'list']
  const env = { PATH: process.env.PATH, DATA_DIR: dataDir }
  const { status, stderr } = spawnSync('sh', argv, { env, encoding: 'utf8' })
  expect(stderr).toMatch(/^survey-auth: file descriptors ran out.*\nraise the limit: ulimit -n/)
  expect(status).toBe(69)
})

describe('databases', () => {
  test.each([['serve'], ['app create --name N --redirect-uri https://app.example/'], ['migrate']])(
    'survey-auth %s reports a DATA_DIR that cannot be created',
    async (words) => {
      const service = await createProcess()
      const file = path.join(service.dataDir, 'a-file')
      writeFileSync(file, '')
      const { exitCode, stderr } = await service.cli(words.split(' '), { env: { DATA_DIR: file } })
      expect(stderr).toContain(`cannot make the directory ${file} (EEXIST)\nset DATA_DIR`)
      expect({ exitCode, isDefect: stderr.includes('should not happen') }).toEqual({ exitCode: 69, isDefect: false })
    },
  )

  test.each([
    ['/proc', '/proc/survey-auth/x', 'ENOENT'],
    ['a file', 'a-file/x', 'ENOTDIR'],
  ])('a DATA_DIR in %s is refused at once', async (_, name, code) => {
    const service = await createProcess()
    writeFileSync(path.join(service.dataDir, 'a-file'), '')
    const directory = path.resolve(service.dataDir, name)
    const { status, stderr } = spawnSync(process.execPath, [PROGRAM, 'migrate'], {
      env: { PATH: process.env.PATH, DATA_DIR: directory },
      encoding: 'utf8',
      timeout: 20_000,
      killSignal: 'SIGKILL', // Node's recursive mkdir ignores other signals there
    })
    expect(stderr).toContain(`cannot make the directory ${directory} (${code})\nset DATA_DIR`)
    expect(status).toBe(69)
  })

  test('serve closes a DATA_DIR to others while it is empty, and not later', async () => {
    const service = await createProcess()
    chmodSync(service.dataDir, 0o755)
    await service.start()
    expect(statSync(service.dataDir).mode & 0o777).toBe(0o700)
    await service.stop()
    chmodSync(service.dataDir, 0o755) // now deliberate: the directory is in use
    await service.start()
    expect(statSync(service.dataDir).mode & 0o777).toBe(0o755)
  })

  test('a file that is not a database is named', async () => {
    const service = await createProcess()
    const file = path.join(service.dataDir, 'token.db')
    writeFileSync(file, 'these are the words of somebody else, and not a database')
    const { exitCode, stderr } = await service.run(['app', 'list'])
    expect(stderr).toContain(`survey-auth: ${file} is damaged or not a database (SQLITE_NOTADB)`)
    expect(exitCode).toBe(1)
  })

  test('DATA_DIR is created for the socket when no database is in it', async () => {
    const service = await createProcess()
    const dataDir = path.join(service.dataDir, 'new')
    const elsewhere = (name: string) => `sqlite:${path.join(service.dataDir, name)}`
    const env = { DATA_DIR: dataDir, TOKEN_DATABASE_URL: elsewhere('t.db'), SURVEY_DATABASE_URL: elsewhere('s.db') }
    const other = await createProcess(env)
    await other.start()
    expect(existsSync(path.join(dataDir, 'rpc.sock'))).toBe(true)
    expect(statSync(dataDir).mode & 0o777).toBe(0o700)
  })
})

const NOBODY = 65534

function asNobody(DATA_DIR: string, ...args: readonly string[]) {
  const env = { PATH: process.env.PATH, DATA_DIR, PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'warn' }
  const options = { env, cwd: DATA_DIR, uid: NOBODY, gid: NOBODY, encoding: 'utf8' } as const
  return spawnSync(process.execPath, [PROGRAM, ...args], options)
}

// Without root a test cannot become another user, and in a directory that only root can enter no other user can read the
// program: there is nothing to test then, and no program to install that would help.
const isOneOfTwo = process.getuid?.() === 0 && asNobody('/', '--version').status === 0
if (isOneOfTwo) describe('databases of two users', ofTwoUsers)

function ofTwoUsers(): void {
  test.each([['app create --name N --redirect-uri https://app.example/'], ['migrate']])(
    'survey-auth %s, run by root, says whose directory it creates one in',
    async (words) => {
      const service = await createProcess()
      chownSync(service.dataDir, NOBODY, NOBODY)
      const { exitCode, stderr } = await service.run(words.split(' '))
      expect(exitCode).toBe(0)
      expect(stderr).toContain(
        `${service.dataDir} belongs to nobody, who will not be able to open files that root creates there\n`,
      )
    },
  )

  test('one that root created in the directory of the service is reported with its owner', async () => {
    const dataDir = await madeByRoot()
    chownSync(dataDir, NOBODY, NOBODY)
    const file = path.join(dataDir, 'token.db')
    const text = `cannot open ${file} (EACCES): it belongs to root`
    const hint = 'run this as the user that the service runs as, who must own the file, with mode 600'
    for (const words of ['serve', 'app list', 'migrate', 'backup b.tar']) {
      const { status, stderr } = asNobody(dataDir, ...words.split(' '))
      expect({ words, status, stderr }).toEqual({ words, status: 69, stderr: `survey-auth: ${text}\n${hint}\n` })
    }
    const { stdout } = asNobody(dataDir, 'doctor', '--json')
    const detail = `${text}; ${hint}`
    expect(JSON.parse(stdout)).toContainEqual({ check: 'token database', state: 'wrong', detail })
  })

  test.each([
    ['which is closed', 0o700],
    ['which is open', 0o755],
  ])('one in a directory of root, %s, is refused with advice to run as the user of the service', async (_, mode) => {
    const dataDir = await madeByRoot()
    chmodSync(dataDir, mode)
    const { status, stderr } = asNobody(dataDir, 'app', 'list')
    const text = `survey-auth: cannot open ${path.join(dataDir, 'token.db')} (EACCES): it belongs to root`
    expect({ status, stderr }).toEqual({
      status: 69,
      stderr: `${text}\nrun this as the user that the service runs as, who must own the file, with mode 600\n`,
    })
  })

  async function madeByRoot(folder = ''): Promise<string> {
    const service = await createProcess()
    const dataDir = path.join(service.dataDir, folder)
    const env = { DATA_DIR: dataDir }
    await service.run(['app', 'create', '--name', 'N', '--redirect-uri', 'https://app.example/'], { env })
    return dataDir
  }
}

describe('certificates', () => {
  const authority = createAuthority()
  const ours = authority.issue('DNS:token.test')
  const other = authority.issue('DNS:other.test')

  test.each([
    ['that are not named', {}, /CERT must name a PEM file.*\n.*KEY must name.*\n.*CA must name/],
    [
      'that are not there',
      { cert: undefined, key: undefined, ca: undefined },
      /CERT names a file that cannot be read: .*cert \(ENOENT\)\n.*KEY names.*\n.*CA names/,
    ],
    [
      'that are something else',
      { cert: ours.key, key: ours.cert, ca: '' },
      /CERT names no PEM.*\n.*KEY names no.*\n.*CA names no/,
    ],
    [
      'of two kinds',
      { cert: ours.cert, key: other.key, ca: authority.cert },
      /RPC_TLS_KEY is not the key of RPC_TLS_CERT/,
    ],
  ] as const)('all variables with files %s are named, exit 78', async (_, files, said) => {
    const service = await createProcess()
    const env = { RPC_LISTEN: 'https://127.0.0.1:0', ...pemFiles(service.dataDir, files) }
    const { exitCode, stderr } = await service.cli(['serve', 'token'], { env })
    expect(stderr).toMatch(said)
    expect({ exitCode, isDefect: stderr.includes('should not happen') }).toEqual({ exitCode: 78, isDefect: false })
  })

  test.each([
    ['serve token', { RPC_LISTEN: 'https://127.0.0.1:0' }],
    ['serve', { RPC_LISTEN: 'https://127.0.0.1:0' }],
    ['serve survey', { TOKEN_SERVICE_URL: 'https://127.0.0.1:1' }],
    ['serve gateway', { SURVEY_SERVICE_URL: 'https://127.0.0.1:1' }],
    ['app list', { TOKEN_SERVICE_URL: 'https://127.0.0.1:1' }],
    ['config', { RPC_LISTEN: 'https://127.0.0.1:0' }],
  ])('survey-auth %s with %o names them together with other variables that are wrong', async (words, addresses) => {
    const files = { RPC_TLS_CERT: '/none', RPC_TLS_KEY: '/none', RPC_TLS_CA: '/none' }
    const service = await createProcess({ ...addresses, ...files, CODE_TTL_SECONDS: 'x' })
    const { exitCode, stderr } = await service.run(words.split(' '))
    const named = [...stderr.matchAll(/^survey-auth: ([A-Z_]+) /gm)].map(([, variable]) => variable)
    expect({ exitCode, named }).toEqual({ exitCode: 78, named: ['CODE_TTL_SECONDS', ...Object.keys(files)] })
  })

  test('for addresses that a command does not use are not looked at', async () => {
    const service = await createProcess({ RPC_LISTEN: 'https://127.0.0.1:0' })
    expect((await service.run(['migrate'])).exitCode).toBe(0)
    expect((await service.run(['app', 'list'])).exitCode).toBe(0)
  })
})
