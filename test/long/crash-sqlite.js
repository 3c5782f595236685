// The crash test of a service in one process on SQLite: kill -9, start, check.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { Agent } from 'node:http'
import { loadavg, tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Database } from '../../dist/services/storage/sqlite/driver.js'
import { freePort } from '../harness/free-port.js'
import { CROWD_ENV, checkCrowd, countsOf, createCrowd, spread } from './crowd.js'
import { callRpc, say, sendTo, sleep } from './send.js'

const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const READY_TARGET_MS = 2000
const READY_TIMEOUT_MS = 60_000
/** How long the load runs before a kill. */
const LOAD_MS = { least: 150, most: 1500 }
/** The share of restarts that are killed themselves, and how long after their start. */
const KILLED_RESTARTS = 0.2
const RESTART_MS = 2000

/** The exit code: 0 when nothing that was acknowledged was lost. */
export async function crashSqlite(options) {
  const service = new Service(await freePort())
  try {
    return await run(service, options)
  } finally {
    await service.kill()
    rmSync(service.dataDir, { recursive: true, force: true })
  }
}

async function run(service, options) {
  await service.start()
  const people = await createCrowd(options.clients, { rpc: service.rpc, sendOf: () => service.send })
  const readyMs = []
  const failures = []
  const endMs = Date.now() + options.minutes * 60_000
  let kills = 0
  let checks = 0
  let restartKills = 0
  while (kills < options.rounds && Date.now() < endMs && failures.length === 0) {
    const load = { isOver: false }
    const clients = people.map((person) => person.work(load, failures))
    await sleep(LOAD_MS.least + Math.random() * (LOAD_MS.most - LOAD_MS.least))
    await service.kill()
    load.isOver = true
    await Promise.all(clients)
    kills += 1
    if (Math.random() < KILLED_RESTARTS) {
      service.spawn()
      await sleep(Math.random() * RESTART_MS)
      await service.kill()
      restartKills += 1
    }
    readyMs.push(await service.start())
    checks += await checkCrowd(people, failures, 'recent')
    if (kills % 20 === 0) say(`${kills} kills, ${checks} checks, load ${loadavg()[0]?.toFixed(1)}`)
  }
  checks += await checkCrowd(people, failures, 'everything')
  await service.kill()
  for (const name of ['token.db', 'survey.db']) failures.push(...integrityFailures(path.join(service.dataDir, name)))
  return report({ people, kills, restartKills, checks, readyMs, failures })
}

function report({ people, kills, restartKills, checks, readyMs, failures }) {
  const counts = countsOf(people)
  const acknowledged = Object.entries(counts).map(([name, count]) => `${name} ${count}`)
  const load = loadavg().map((one) => one.toFixed(1))
  say(`killed ${kills} times under ${people.length} clients, ${restartKills} times while starting, ${checks} checks`)
  say(`acknowledged or lost: ${acknowledged.join(', ')}`)
  say(`ready again after: ${spread(readyMs)} (target ${READY_TARGET_MS} ms), load of the machine ${load.join(' ')}`)
  for (const failure of failures.slice(0, 20)) say(`VIOLATION: ${failure}`)
  say(failures.length === 0 ? 'no violation' : `${failures.length} violations`)
  if (kills === 0 || checks === 0 || !counts['exchange OK']) {
    say('nothing was proved: no kill, no check or no exchange')
    return 1
  }
  return failures.length === 0 ? 0 : 1
}

function integrityFailures(file) {
  const db = new Database(file, { fileMustExist: true })
  const answer = db.pragma('integrity_check', { simple: true })
  db.close()
  return answer === 'ok' ? [] : [`${path.basename(file)}: integrity_check says ${answer}`]
}

/** `serve all` on a directory of its own, started and killed again and again. */
class Service {
  dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-crash-'))
  #port
  #agent = new Agent({ keepAlive: true })
  #child
  #said = ''

  constructor(port) {
    this.#port = port
  }

  /** Fulfils when it answers, with the ms since the spawn. */
  async start() {
    const startedAt = performance.now()
    this.spawn()
    while (performance.now() - startedAt < READY_TIMEOUT_MS) {
      if (this.#child.exitCode !== null) throw new Error(`ended with ${this.#child.exitCode}: ${this.#said}`)
      const status = await this.send({ target: '/api/' }).then(
        (answer) => answer.status,
        () => 0,
      )
      if (status === 404) return performance.now() - startedAt
      await sleep(10)
    }
    throw new Error(`the service did not answer within ${READY_TIMEOUT_MS} ms: ${this.#said}`)
  }

  spawn() {
    const { PATH = '', HOME = '' } = process.env
    const place = { DATA_DIR: this.dataDir, PORT: String(this.#port), ADMIN_PORT: '0' }
    const env = { PATH, HOME, NODE_ENV: 'production', RATE_LIMIT: 'off', LOG_LEVEL: 'error', ...place, ...CROWD_ENV }
    const stdio = ['ignore', 'ignore', 'pipe']
    this.#said = ''
    this.#child = spawn(process.execPath, [PROGRAM, 'serve', 'all'], { env, cwd: this.dataDir, stdio })
    this.#child.stderr.on('data', (chunk) => {
      this.#said += chunk
    })
  }

  async kill() {
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
    this.#agent.destroy()
    this.#agent = new Agent({ keepAlive: true })
  }

  send = (outgoing) => sendTo({ agent: this.#agent, host: '127.0.0.1', port: this.#port }, outgoing)

  /** An operator's call, through the socket in DATA_DIR. */
  rpc = (method, message) => callRpc(path.join(this.dataDir, 'rpc.sock'), method, message)
}
