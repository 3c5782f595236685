// The service in one process on SQLite.
import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { Agent } from 'node:http'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { CROWD_ENV } from './crowd.js'
import { PROGRAM } from './fleet.js'
import { callRpc, sendTo, sleep } from './send.js'

const READY_TIMEOUT_MS = 60_000

/** `serve all` on a directory of its own, started and killed again and again. */
export class Service {
  dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-crash-'))
  /** What runs from the next start on. */
  program = PROGRAM
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

  get env() {
    const { PATH = '', HOME = '' } = process.env
    const place = { DATA_DIR: this.dataDir, PORT: String(this.#port), ADMIN_PORT: '0' }
    return { PATH, HOME, NODE_ENV: 'production', RATE_LIMIT: 'off', LOG_LEVEL: 'error', ...place, ...CROWD_ENV }
  }

  spawn() {
    const stdio = ['ignore', 'ignore', 'pipe']
    this.#said = ''
    this.#child = spawn(process.execPath, [this.program, 'serve', 'all'], { env: this.env, cwd: this.dataDir, stdio })
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
