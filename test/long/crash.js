// `npm run test:crash -- --kills 200`: kills the service at random moments under a mixed load and holds what it does
// afterwards to what it had acknowledged. The load and the checks use nothing but what apps and browsers use.
//   --kills N      how often to kill it (200)
//   --clients N    people at a time, each with an app's server behind (64)
//   --minutes N    stop killing after this time (none)
import { execFile, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { loadavg, tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs, promisify } from 'node:util'
import Database from 'better-sqlite3'
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { freePort } from './free-port.js'
import { Person } from './person.js'

const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const CALLBACK = 'https://app.example/callback'
const READY_TARGET_MS = 2000
const READY_TIMEOUT_MS = 60_000
/** How long the load runs before a kill. */
const LOAD_MS = { least: 150, most: 1500 }
/** How many restarts are killed themselves, and how long after their start. */
const KILLED_RESTARTS = 0.2
const RESTART_MS = 2000

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '200' },
    clients: { type: 'string', default: '64' },
    minutes: { type: 'string', default: '1000000' },
  },
})
const options = { kills: Number(values.kills), clients: Number(values.clients), minutes: Number(values.minutes) }

buildIfNeeded()
const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-crash-'))
const port = await freePort()
const { PATH = '', HOME = '' } = process.env
const env = {
  PATH,
  HOME,
  NODE_ENV: 'production',
  DATA_DIR: dataDir,
  PORT: String(port),
  ADMIN_PORT: '0',
  RATE_LIMIT: 'off',
  LOG_LEVEL: 'error',
  CODE_TTL_SECONDS: '600',
  CODE_REPLAY_GRACE_SECONDS: '600', // a replay is then refused and ends nothing
  ACCESS_TOKEN_OVERLAP_SECONDS: '864000', // earlier tokens stay good, so that each acknowledged one can be asked for
  MAX_LIVE_TOKENS_PER_GRANT: '100',
  MAX_GRANTS_PER_USER_AND_APP: '200',
  MAX_LIVE_CODES_PER_USER_AND_APP: '1000',
}
let agent = new Agent({ keepAlive: true })
let child
let said = ''

try {
  process.exitCode = await main()
} finally {
  child?.kill('SIGKILL')
  rmSync(dataDir, { recursive: true, force: true })
}

async function main() {
  await start()
  const people = await createPeople()
  const readyMs = []
  const failures = []
  const endMs = Date.now() + options.minutes * 60_000
  let kills = 0
  let checks = 0
  let restartKills = 0
  while (kills < options.kills && Date.now() < endMs && failures.length === 0) {
    const load = { isOver: false }
    const clients = people.map((person) => person.work(load, failures))
    await sleep(LOAD_MS.least + Math.random() * (LOAD_MS.most - LOAD_MS.least))
    await kill()
    load.isOver = true
    await Promise.all(clients)
    kills += 1
    if (Math.random() < KILLED_RESTARTS) {
      spawnService()
      await sleep(Math.random() * RESTART_MS)
      await kill()
      restartKills += 1
    }
    readyMs.push(await start())
    checks += await checkAll(people, failures, 'recent')
    if (kills % 20 === 0) say(`${kills} kills, ${checks} checks, load ${loadavg()[0]?.toFixed(1)}`)
  }
  checks += await checkAll(people, failures, 'everything')
  await kill()
  for (const name of ['token.db', 'survey.db']) failures.push(...integrityFailures(name))
  return report({ people, kills, restartKills, checks, readyMs, failures })
}

function report({ people, kills, restartKills, checks, readyMs, failures }) {
  const counts = {}
  for (const person of people) {
    for (const [name, count] of Object.entries(person.counts)) counts[name] = (counts[name] ?? 0) + count
  }
  const sorted = readyMs.sort((a, b) => a - b)
  const at = (share) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0)
  const acknowledged = Object.entries(counts).map(([name, count]) => `${name} ${count}`)
  say(`killed ${kills} times under ${people.length} clients, ${restartKills} times while starting, ${checks} checks`)
  say(`acknowledged or lost: ${acknowledged.join(', ')}`)
  say(
    `ready again after: p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, longest ${at(1)} ms (target ${READY_TARGET_MS} ms), ` +
      `load of the machine ${loadavg()
        .map((load) => load.toFixed(1))
        .join(' ')}`,
  )
  for (const failure of failures.slice(0, 20)) say(`VIOLATION: ${failure}`)
  say(failures.length === 0 ? 'no violation' : `${failures.length} violations`)
  if (kills === 0 || checks === 0 || !counts['exchange OK']) {
    say('nothing was proved: no kill, no check or no exchange')
    return 1
  }
  return failures.length === 0 ? 0 : 1
}

/** Holds the service to what every person knows; `recent` is what changed since the last time, and a sample. */
async function checkAll(people, failures, what) {
  const counts = await Promise.all(people.map((person) => person.check(what, failures)))
  return counts.reduce((sum, count) => sum + count, 0)
}

function integrityFailures(name) {
  const db = new Database(path.join(dataDir, name), { fileMustExist: true })
  const answer = db.pragma('integrity_check', { simple: true })
  db.close()
  return answer === 'ok' ? [] : [`${name}: integrity_check says ${answer}`]
}

// -- The process -----------------------------------------------------------------------------------------------------

/** Fulfils when it answers; how long that took from the spawn on, in ms. */
async function start() {
  const startedAt = performance.now()
  spawnService()
  while (performance.now() - startedAt < READY_TIMEOUT_MS) {
    if (child.exitCode !== null) throw new Error(`the service ended with ${child.exitCode}: ${said}`)
    const status = await send({ target: '/api/' }).then(
      (answer) => answer.status,
      () => 0,
    )
    if (status === 404) return performance.now() - startedAt
    await sleep(10)
  }
  throw new Error(`the service did not answer within ${READY_TIMEOUT_MS} ms: ${said}`)
}

function spawnService() {
  said = ''
  child = spawn(process.execPath, [PROGRAM, 'serve', 'all'], { env, cwd: dataDir, stdio: ['ignore', 'ignore', 'pipe'] })
  child.stderr.on('data', (chunk) => {
    said += chunk
  })
}

async function kill() {
  const ended = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGKILL')
  await ended
  agent.destroy()
  agent = new Agent({ keepAlive: true })
}

// -- People ----------------------------------------------------------------------------------------------------------

async function createPeople() {
  const { appid, secret } = await command(['app', 'create', '--name', 'Crash', '--redirect-uri', CALLBACK])
  const people = []
  for (let i = 0; i < options.clients; i += 1) {
    const username = `person${i}`
    const password = `password of ${username}`
    await rpc('surveyauth.v1.AdminService/CreateUser', { username, password, nickname: username, avatar: '' })
    people.push(new Person({ send, appid, secret, redirectUri: CALLBACK, username, password }))
  }
  for (const person of people) await person.signIn()
  return people
}

async function command(args) {
  const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM, ...args, '--json'], { env, cwd: dataDir })
  return JSON.parse(stdout)
}

/** An operator's RPC, through the socket in DATA_DIR. */
async function rpc(method, message) {
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify(message)
  const socketPath = path.join(dataDir, 'rpc.sock')
  const { status, text } = await send({ target: `/${method}`, method: 'POST', headers, body, socketPath })
  if (status !== 200) throw new Error(`${method}: ${status} ${text}`)
}

/** One request; rejects when there is no whole answer. */
function send({ target, method = 'GET', headers = {}, body, socketPath }) {
  const where = socketPath === undefined ? { agent, host: '127.0.0.1', port } : { socketPath }
  return new Promise((resolve, reject) => {
    const sent = request({ ...where, path: target, method, headers, timeout: 20_000 }, (answer) => {
      const chunks = []
      answer.on('data', (chunk) => chunks.push(chunk))
      answer.on('error', reject)
      answer.on('end', () => {
        if (!answer.complete) return reject(new Error('cut off'))
        const text = Buffer.concat(chunks).toString('utf8')
        resolve({ status: answer.statusCode, headers: answer.headers, text })
      })
    })
    sent.on('timeout', () => sent.destroy(new Error('no answer in 20 s')))
    sent.on('error', reject)
    sent.end(body)
  })
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

function say(line) {
  process.stdout.write(`${line}\n`)
}
