// A worker process as its parent sees it.
import cluster, { type Worker as Process } from 'node:cluster'
import { createInterface } from 'node:readline'
import { CommandError } from '../exit.js'
import type { Snapshot } from '../telemetry/metrics.js'
import type { FromWorker, ToWorker } from './worker-messages.js'

/** How long to wait for a worker's counts before its last ones are used, in ms; a scrape waits 10 s. */
const COUNT_WITHIN_MS = 2_000
/** A worker that works answers the next look. A starting one cannot, and on a busy machine starting takes long. */
const SILENT_AFTER_LOOKS = 3
const HUNG_AFTER_LOOKS = { starting: 40, started: 10 } as const

export interface Reports {
  /** A line of its stderr. It has a pipe of its own: processes that share one would wait for its reader in each other's place. */
  onLine(line: string): void
  onServing(url: string): void
  onFailed(error: CommandError): void
  onLeaving(): void
}

export class Worker {
  readonly startedAtMs = performance.now()
  /** How it ended: a signal, an exit code, or what it reported. */
  readonly ended: Promise<string>
  /** What it had counted by its last report. */
  counted: Snapshot = []
  readonly #process: Process
  /** Who waits for the answer to which question. */
  readonly #waiting = new Map<number, () => void>()
  #questions = 0
  #stage: 'starting' | 'serving' | 'stopping' | 'ended' = 'starting'
  #hasServed = false
  #notReady: readonly string[] = []
  /** Counted instead of time, so that no worker seems late after this process itself was stopped. */
  #unansweredLooks = 0

  /** `env`: what differs from the environment of this process; undefined removes a variable. */
  constructor(env: Readonly<Record<string, string | undefined>>, reports: Reports) {
    this.#process = cluster.fork(env)
    const { stderr } = this.#process.process
    if (stderr) createInterface({ input: stderr }).on('line', reports.onLine)
    this.#process.on('error', ignore) // of the channel, or there is no process: its end follows
    let failure: string | undefined
    this.#process.on('message', (message: FromWorker) => {
      switch (message.type) {
        case 'serving':
          this.#hasServed = true
          this.#stage = 'serving'
          reports.onServing(message.url)
          break
        case 'failed':
          failure = message.failure.text
          reports.onFailed(new CommandError(failure, message.failure.exitCode, message.failure.hint))
          break
        case 'leaving':
          reports.onLeaving()
          break
        case 'counted':
          this.counted = message.snapshot
          this.#notReady = message.notReady
          this.#unansweredLooks = 0
          this.#waiting.get(message.question)?.()
      }
    })
    this.ended = this.#untilEnded().then((how) => {
      this.#stage = 'ended'
      for (const done of [...this.#waiting.values()]) done()
      return failure ?? how
    })
  }

  get pid(): number | undefined {
    return this.#process.process.pid
  }

  get hasServed(): boolean {
    return this.#hasServed
  }

  /** Whether it accepts connections and can answer them, as far as it has reported. */
  get isServing(): boolean {
    return this.#stage === 'serving' && this.#unansweredLooks <= SILENT_AFTER_LOOKS && this.#notReady.length === 0
  }

  /** Why it accepts connections but cannot answer them. */
  get notReady(): readonly string[] {
    return this.#stage === 'serving' ? this.#notReady : []
  }

  get isHung(): boolean {
    return this.#unansweredLooks > HUNG_AFTER_LOOKS[this.#stage === 'starting' ? 'starting' : 'started']
  }

  /** To be called every few seconds. */
  look(): void {
    this.#unansweredLooks += 1
    this.#ask()
  }

  /** Fulfils when `counted` is current, or when the worker does not answer in time. */
  count(): Promise<void> {
    if (this.#stage === 'starting' || this.#stage === 'ended') return Promise.resolve()
    return new Promise((resolve) => {
      const question = this.#ask() // the answer to an earlier look may still be on its way: it counts less
      const done = () => {
        clearTimeout(timer)
        this.#waiting.delete(question)
        resolve()
      }
      const timer = setTimeout(done, COUNT_WITHIN_MS)
      this.#waiting.set(question, done)
    })
  }

  stop(): void {
    if (this.#stage === 'stopping') return
    this.#stage = 'stopping'
    this.#tell({ type: 'stop' })
  }

  /**
   * Ends it together with all others. node:cluster closes the listening socket of this process when it has lost the last
   * channel: a client that connected to it after the last worker had left would be reset.
   */
  dismiss(): void {
    if (!this.#process.isConnected()) return
    this.#tell({ type: 'dismiss' })
    this.#process.process.disconnect()
  }

  kill(): void {
    this.#process.process.kill('SIGKILL')
  }

  #tell(message: ToWorker): void {
    if (this.#process.isConnected()) this.#process.send(message, ignore) // one that cannot be told has ended
  }

  /** For its counts. */
  #ask(): number {
    this.#questions += 1
    this.#tell({ type: 'count', question: this.#questions })
    return this.#questions
  }

  /** Fulfils when it is gone and everything it sent and logged has been received. */
  async #untilEnded(): Promise<string> {
    const child = this.#process.process
    const how = new Promise<string>((resolve) => {
      child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`))
      child.once('error', (error) => {
        if (child.pid === undefined) resolve(error.message)
      })
    })
    if (child.pid !== undefined) {
      await Promise.all([
        new Promise<void>((resolve) => child.once('disconnect', resolve)),
        new Promise<void>((resolve) => (child.stderr ? child.stderr.once('close', resolve) : resolve())),
      ])
    }
    return how
  }
}

function ignore(): void {}
