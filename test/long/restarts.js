// Replaces, kills and stops the processes of a separated service again and again under load, and reports what its clients
// saw: npm run test:restarts -- --rounds 100
//
// Two gateways serve clients that, like a proxy, turn to the other one when a connection is refused, and in no other case:
// an answer that does not come is a lost request.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import http from 'node:http'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { freePort } from '../harness/free-port.js'
import { scriptOptions } from '../harness/script-options.js'

const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const CLIENTS = 8
const RECOVERY_MS = 30_000

const { rounds, only } = scriptOptions('npm run test:restarts', {
  rounds: [100, 'how often each is replaced; it is killed and stopped half as often'],
  only: ['', 'what the name of a process begins with: token, survey, gateway'],
})
const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-restarts-'))
const running = new Map()
const ports = { 'gateway 1': await freePort(), 'gateway 2': await freePort() }
const agent = new http.Agent({ keepAlive: true, maxSockets: CLIENTS })

buildIfNeeded()
process.exitCode = await main().finally(() => {
  for (const child of running.values()) child.kill('SIGKILL')
  rmSync(dataDir, { recursive: true, force: true })
})

async function main() {
  const names = ['token', 'survey', 'gateway 1', 'gateway 2']
  await Promise.all(names.map(start))
  await recovered()
  const report = []
  for (const name of names.filter(isChosen))
    report.push(await repeat(`${name}: replaced (SIGTERM, start)`, rounds, () => replace(name, 'SIGTERM')))
  for (const name of ['token', 'survey'].filter(isChosen)) {
    report.push(await repeat(`${name}: killed (SIGKILL, start)`, rounds / 2, () => replace(name, 'SIGKILL')))
    report.push(await repeat(`${name}: stopped for 2 s (SIGSTOP)`, rounds / 2, () => freeze(name)))
  }
  console.table(Object.fromEntries(report.map(({ what, ...row }) => [what, row])))
  const lost = report.reduce((sum, row) => sum + row.lost, 0)
  const slow = report.filter((row) => row['back in ms, worst'] > 5_000)
  console.log(
    `${lost} requests lost, ${slow.length} of ${report.length} kinds of outage took longer than 5 s to recover from`,
  )
  return lost === 0 && slow.length === 0 ? 0 : 1
}

function isChosen(name) {
  return name.startsWith(only)
}

/** Runs `outage` `times` times under load. While a gateway is replaced the other one serves, so nothing has to recover. */
async function repeat(what, times, outage) {
  const seen = { answers: 0, remote_server_error: 0, lost: 0, 'longest answer ms': 0 }
  let isOver = false
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!isOver) {
      const { outcome, ms } = await ask()
      seen.answers += 1
      if (outcome === 'remote_server_error') seen.remote_server_error += 1
      else if (outcome !== 'invalid_appid') {
        seen.lost += 1
        console.log(`${what}: ${outcome}`)
      }
      seen['longest answer ms'] = Math.max(seen['longest answer ms'], Math.round(ms))
    }
  })
  const backMs = []
  const codes = new Set()
  for (let round = 0; round < Math.round(times); round++) {
    codes.add(await outage())
    backMs.push(await recovered())
  }
  isOver = true
  await Promise.all(clients)
  backMs.sort((a, b) => a - b)
  const row = {
    rounds: backMs.length,
    ...seen,
    'back in ms, median': Math.round(backMs[Math.floor(backMs.length / 2)]),
    'back in ms, worst': Math.round(backMs.at(-1)),
    'exit codes': [...codes].join(' '),
  }
  console.log(what, JSON.stringify(row))
  return { what, ...row }
}

async function replace(name, signal) {
  const code = await end(name, signal)
  await start(name)
  return code ?? signal
}

async function freeze(name) {
  running.get(name).kill('SIGSTOP')
  await sleep(2_000)
  running.get(name).kill('SIGCONT')
  return 'SIGCONT'
}

/** Ms until ten calls in a row were answered as by a complete service. */
async function recovered() {
  const startedAt = performance.now()
  for (let good = 0; good < 10; ) {
    good = (await ask()).outcome === 'invalid_appid' ? good + 1 : 0
    if (performance.now() - startedAt > RECOVERY_MS) return RECOVERY_MS
  }
  return performance.now() - startedAt
}

/** One call that all three processes take part in; the app is unknown. */
async function ask() {
  const startedAt = performance.now()
  const order = Math.random() < 0.5 ? Object.values(ports) : Object.values(ports).reverse()
  let outcome = 'refused by both gateways'
  for (const port of order) {
    outcome = await get(port)
    if (outcome !== 'refused') break
  }
  return { outcome, ms: performance.now() - startedAt }
}

function get(port) {
  return new Promise((resolve) => {
    const sent = http.get(
      { agent, host: '127.0.0.1', port, path: '/api/surveys/1?appid=app_x&access_token=sat_x' },
      (answer) => {
        let text = ''
        answer.setEncoding('utf8').on('data', (chunk) => {
          text += chunk
        })
        answer.on('end', () => {
          try {
            resolve(JSON.parse(text).error.type)
          } catch {
            resolve(`status ${answer.statusCode} without an envelope`)
          }
        })
        answer.on('error', (error) => resolve(`cut off in the answer: ${error.code}`))
      },
    )
    sent.on('error', (error) => {
      // A kept-alive connection that the server closed while idle was never a request of its: RFC 9112 §9.3.1.
      const wasIdle = sent.reusedSocket && error.code === 'ECONNRESET'
      resolve(error.code === 'ECONNREFUSED' || wasIdle ? 'refused' : `cut off: ${error.code}`)
    })
  })
}

function start(name) {
  const [mode] = name.split(' ')
  const { PATH = '', HOME = '' } = process.env
  const env = {
    PATH,
    HOME,
    DATA_DIR: dataDir,
    PORT: String(ports[name] ?? 0),
    ADMIN_PORT: '0',
    RATE_LIMIT: 'off',
    LOG_LEVEL: 'error',
  }
  const child = spawn(process.execPath, [PROGRAM, 'serve', mode], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  running.set(name, child)
  return new Promise((resolve, reject) => {
    let said = ''
    child.stderr.on('data', (chunk) => {
      said += chunk
      if (said.includes('listening on')) resolve()
    })
    child.once('exit', (code) => reject(new Error(`serve ${mode} ended with ${code}: ${said}`)))
  })
}

function end(name, signal) {
  const child = running.get(name)
  child.removeAllListeners('exit')
  return new Promise((resolve) => {
    child.once('exit', resolve)
    child.kill(signal)
  })
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
