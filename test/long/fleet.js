// Two gateways, two token services and two survey services as processes of their own, on one PostgreSQL database. Each calls both of
// every service that it needs.
// JavaScript, with its types in fleet.d.ts, because scripts of this folder use it as well as tests.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../harness/free-port.js'
import { callRpc } from './send.js'

export const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const START_TIMEOUT_MS = 60_000

export class Fleet {
  gateways = []
  adminUrls = {}
  ended = []
  output = ''
  #dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-fleet-'))
  #children = {}
  #settings = {}
  #programs = {}
  #env
  #isStopping = false

  constructor(databaseUrl, env = {}) {
    const { PATH = '', HOME = '' } = process.env
    const databases = { TOKEN_DATABASE_URL: databaseUrl, SURVEY_DATABASE_URL: databaseUrl }
    const quiet = { RATE_LIMIT: 'off', LOG_LEVEL: 'error' }
    this.#env = { PATH, HOME, NODE_ENV: 'production', DATA_DIR: this.#dataDir, ...databases, ...quiet, ...env }
  }

  async start() {
    const ports = [await freePort(), await freePort()]
    this.gateways = ports.map((port) => `http://127.0.0.1:${port}`)
    const [publicUrl] = this.gateways
    const TOKEN_SERVICE_URL = `${this.#door('token1')},${this.#door('token2')}`
    const SURVEY_SERVICE_URL = `${this.#door('survey1')},${this.#door('survey2')}`
    for (const n of [1, 2]) {
      await this.#spawn(`token${n}`, { RPC_LISTEN: this.#door(`token${n}`) })
      await this.#spawn(`survey${n}`, { RPC_LISTEN: this.#door(`survey${n}`), TOKEN_SERVICE_URL })
      const services = { TOKEN_SERVICE_URL, SURVEY_SERVICE_URL }
      await this.#spawn(`gateway${n}`, { PORT: String(ports[n - 1]), PUBLIC_URL: publicUrl, ...services })
    }
    for (const name of Object.keys(this.adminUrls)) await this.untilReady(name)
  }

  async end(name, signal) {
    const child = this.#children[name]
    const isOver = once(child.removeAllListeners('exit'), 'exit')
    child.kill(signal)
    await isOver
  }

  async startAgain(name, env = {}, program = this.#programs[name]) {
    await this.#spawn(name, { ...this.#settings[name], ...env }, program)
    await this.untilReady(name)
  }

  run(program, args) {
    return new Promise((resolve) => {
      const options = { env: this.#env, cwd: this.#dataDir }
      execFile(process.execPath, [program, ...args], options, (error, stdout, stderr) =>
        resolve({ exitCode: error?.code ?? 0, stdout, stderr }),
      )
    })
  }

  async stop() {
    this.#isStopping = true
    for (const child of Object.values(this.#children)) child.kill('SIGKILL')
    rmSync(this.#dataDir, { recursive: true, force: true })
  }

  rpc(method, message) {
    const service = method.startsWith('SurveyService/') ? 'survey1' : 'token1'
    return callRpc(path.join(this.#dataDir, `${service}.sock`), method, message)
  }

  #door(name) {
    return `unix:${path.join(this.#dataDir, `${name}.sock`)}`
  }

  async #spawn(name, env, program = PROGRAM) {
    const adminPort = await freePort()
    this.adminUrls[name] = `http://127.0.0.1:${adminPort}`
    this.#settings[name] = env
    this.#programs[name] = program
    const child = spawn(process.execPath, [program, 'serve', name.slice(0, -1)], {
      env: { ...this.#env, ADMIN_PORT: String(adminPort), ...env },
      cwd: this.#dataDir,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    this.#children[name] = child
    child.stderr.on('data', (chunk) => {
      this.output = (this.output + chunk).slice(-200_000)
    })
    child.once('exit', (code, signal) => {
      if (!this.#isStopping) this.ended.push(`${name} ended with ${code ?? signal}`)
    })
  }

  async untilReady(name) {
    const deadline = Date.now() + START_TIMEOUT_MS
    while (!(await this.isReady(name))) {
      if (this.ended.length > 0) throw new Error(`${this.ended.join(', ')}: ${this.output}`)
      if (Date.now() > deadline) throw new Error(`not ready within ${START_TIMEOUT_MS} ms: ${this.output}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }

  isReady(name) {
    return fetch(`${this.adminUrls[name]}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    )
  }
}
