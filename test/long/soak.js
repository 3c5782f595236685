// `npm run test:soak`: a service that runs for hours under a mixed load, part of it bad: unknown tokens, requests that stop in
// the middle, clients that go away before their answer. Memory and open files must level off. Needs Linux, for /proc.
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { Agent } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { median } from '../../bench/stats.js'
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { freePort } from '../harness/free-port.js'
import { scriptOptions } from '../harness/script-options.js'
import { CROWD_ENV, countsOf, createCrowd } from './crowd.js'
import { callRpc, say, sendTo, sleep } from './send.js'

const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const PEOPLE = 16
/** The first half, in which caches fill up, is not judged; the last quarter is compared with the third. */
const MAX_GROWTH = 1.05
const ALLOWANCE_FILES = 20
/** Ended rows are removed as early as the settings allow. */
const ENV = { ...CROWD_ENV, KEEP_ENDED_SECONDS: '3600', KEEP_AUDIT_DAYS: '1', JANITOR_INTERVAL_SECONDS: '10' }

const options = scriptOptions('npm run test:soak', {
  minutes: [60, 'how long'],
  processes: ['3', '1: all in one; 3: gateway, token and survey service', ['1', '3']],
  pause: [20, `ms that each of ${PEOPLE} people takes before each request`],
  every: [15, 's between two looks at the processes'],
  allow: [12, 'MiB that memory may grow by besides a twentieth'],
})
const modes = options.processes === '1' ? ['all'] : ['token', 'survey', 'gateway']
const lookEveryMs = options.every * 1000
const durationMs = options.minutes * 60_000
const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-soak-'))
const port = await freePort()
const adminPorts = {}
const running = {}

buildIfNeeded()
process.exitCode = await main().finally(() => {
  for (const child of Object.values(running)) child.kill('SIGKILL')
  rmSync(dataDir, { recursive: true, force: true })
})

async function main() {
  for (const mode of modes) await start(mode)
  for (const mode of modes) await untilReady(mode)
  const agent = new Agent({ keepAlive: true, maxSockets: PEOPLE })
  const send = async (request) => {
    await sleep(options.pause)
    return sendTo({ host: '127.0.0.1', port, agent }, request)
  }
  const people = await createCrowd(PEOPLE, { rpc, sendOf: () => send })
  const load = { isOver: false }
  const failures = []
  const work = people.map((person) => person.tour(load, failures))
  const nuisance = beNuisance(load)
  const samples = Object.fromEntries(modes.map((mode) => [mode, []]))
  const endMs = Date.now() + durationMs
  while (Date.now() < endMs && failures.length === 0) {
    await sleep(Math.min(lookEveryMs, Math.max(0, endMs - Date.now())))
    for (const mode of modes) samples[mode].push(await look(mode))
  }
  load.isOver = true
  await Promise.all([...work, nuisance])
  say(`done: ${JSON.stringify(countsOf(people))}`)
  const findings = [...failures, ...modes.flatMap((mode) => judge(mode, samples[mode]))]
  for (const finding of findings) say(finding)
  say(`${findings.length} findings`)
  return findings.length === 0 ? 0 : 1
}

/** The memory and the open files of one process now. */
async function look(mode) {
  const proc = `/proc/${running[mode].pid}`
  const rss = Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`${proc}/status`, 'utf8'))?.[1]) / 1024
  const metrics = await (await fetch(`http://127.0.0.1:${adminPorts[mode]}/metrics`)).text()
  const heap = Number(/^nodejs_heap_size_used_bytes (\S+)/m.exec(metrics)?.[1]) / 1024 / 1024
  const files = readdirSync(`${proc}/fd`).length
  say(`${mode}: ${rss.toFixed(0)} MiB, of them ${heap.toFixed(0)} of objects; ${files} files`)
  return { rss, heap, files }
}

function judge(mode, samples) {
  const quarter = Math.floor(samples.length / 4)
  if (quarter === 0) return [`${mode}: too short to be judged`]
  const [before, after] = [samples.slice(-2 * quarter, -quarter), samples.slice(-quarter)]
  const bounds = { rss: options.allow, heap: options.allow, files: ALLOWANCE_FILES }
  return Object.entries(bounds).flatMap(([what, allowance]) => {
    const [was, is] = [before, after].map((part) => median(part.map((sample) => sample[what])))
    say(`${mode}: ${what} ${was.toFixed(0)} in the third quarter, ${is.toFixed(0)} in the last`)
    return is > was * MAX_GROWTH + allowance ? [`${mode}: ${what} grew from ${was.toFixed(0)} to ${is.toFixed(0)}`] : []
  })
}

async function untilReady(mode) {
  while (!(await fetch(`http://127.0.0.1:${adminPorts[mode]}/readyz`)).ok) await sleep(50)
}

/** Sends bad requests, as networks and strangers do. */
async function beNuisance(load) {
  const bad = [
    () =>
      ask(
        `GET /api/oauth2/user?appid=app_x&access_token=sat_${Math.random()}&openid=o HTTP/1.1\r\nhost: a\r\n\r\n`,
        50,
      ),
    () => ask(`GET /${Math.random()} HTTP/1.1\r\nhost: a\r\n\r\n`, 0),
    () => ask('GET /api/surveys HTTP/1.1\r\nhost', 500),
    () => ask('POST /connect/sign-in HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nusername=', 500),
    () => ask('nonsense\r\n\r\n', 50),
    () => ask('CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n', 5),
    () => ask('GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n', 5),
    () => ask('POST /connect/sign-in HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n', 5),
  ]
  for (let at = 0; !load.isOver; at++) {
    await sleep(20)
    bad[at % bad.length]()
  }
}

/** Sends bytes and goes away, with FIN or RST. */
function ask(bytes, afterMs) {
  const socket = connect({ port, host: '127.0.0.1' })
  socket.on('error', () => undefined)
  socket.resume().write(bytes, 'latin1')
  setTimeout(() => (Math.random() < 0.5 ? socket.destroy() : socket.resetAndDestroy()), afterMs)
}

function rpc(method, message) {
  const service = method.startsWith('SurveyService/') ? 'survey' : 'token'
  return callRpc(path.join(dataDir, `${modes.length === 1 ? 'rpc' : service}.sock`), method, message)
}

async function start(mode) {
  adminPorts[mode] = await freePort()
  const { PATH = '', HOME = '' } = process.env
  const own = { DATA_DIR: dataDir, PORT: String(port), ADMIN_PORT: String(adminPorts[mode]), RATE_LIMIT: 'off' }
  const env = { PATH, HOME, NODE_ENV: 'production', ...ENV, ...own, LOG_LEVEL: 'error' }
  const child = spawn(process.execPath, [PROGRAM, 'serve', mode], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  running[mode] = child
  await new Promise((resolve, reject) => {
    let said = ''
    child.stderr.on('data', (chunk) => {
      said = (said + chunk).slice(-10_000)
      if (said.includes('listening on')) resolve()
    })
    child.once('exit', (code) => reject(new Error(`serve ${mode} ended with ${code}: ${said}`)))
  })
}
