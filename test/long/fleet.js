// Two gateways, two token services and two survey services as processes of their own, on one PostgreSQL database.
// JavaScript, with its types in fleet.d.ts, because scripts of this folder use it as well as tests.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../harness/free-port.js'
import { callRpc } from './send.js'

const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const START_TIMEOUT_MS = 60_000

export class Fleet {
  gateways = []
  adminUrls = {}
  ended = []
  output = ''
  #dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-fleet-'))
  #children = []
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
    for (const n of [1, 2]) {
      const [token, survey] = [this.#door(`token${n}`), this.#door(`survey${n}`)]
      await this.#spawn('token', n, { RPC_LISTEN: token })
      // The token service of the other gateway, which reveals state that only one process knows.
      await this.#spawn('survey', n, { RPC_LISTEN: survey, TOKEN_SERVICE_URL: this.#door(`token${3 - n}`) })
      const services = { TOKEN_SERVICE_URL: token, SURVEY_SERVICE_URL: survey }
      await this.#spawn('gateway', n, { PORT: String(ports[n - 1]), PUBLIC_URL: publicUrl, ...services })
    }
    for (const adminUrl of Object.values(this.adminUrls)) await this.#untilReady(adminUrl)
  }

  async stop() {
    this.#isStopping = true
    for (const child of this.#children) child.kill('SIGKILL')
    rmSync(this.#dataDir, { recursive: true, force: true })
  }

  rpc(method, message) {
    const service = method.startsWith('SurveyService/') ? 'survey1' : 'token1'
    return callRpc(path.join(this.#dataDir, `${service}.sock`), method, message)
  }

  #door(name) {
    return `unix:${path.join(this.#dataDir, `${name}.sock`)}`
  }

  async #spawn(mode, n, env) {
    const adminPort = await freePort()
    this.adminUrls[`${mode}${n}`] = `http://127.0.0.1:${adminPort}`
    const child = spawn(process.execPath, [PROGRAM, 'serve', mode], {
      env: { ...this.#env, ADMIN_PORT: String(adminPort), ...env },
      cwd: this.#dataDir,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    this.#children.push(child)
    child.stderr.on('data', (chunk) => {
      this.output = (this.output + chunk).slice(-200_000)
    })
    child.once('exit', (code, signal) => {
      if (!this.#isStopping) this.ended.push(`${mode}${n} ended with ${code ?? signal}`)
    })
  }

  async #untilReady(adminUrl) {
    const deadline = Date.now() + START_TIMEOUT_MS
    while (!(await isReady(adminUrl))) {
      if (this.ended.length > 0) throw new Error(`${this.ended.join(', ')}: ${this.output}`)
      if (Date.now() > deadline) throw new Error(`not ready within ${START_TIMEOUT_MS} ms: ${this.output}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}

function isReady(adminUrl) {
  return fetch(`${adminUrl}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  )
}
