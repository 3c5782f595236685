// The workers of `serve --workers`: gateways in processes of their own that share the public port. This process starts
// them, replaces those that end, and adds up what they count. It reads no connection: node:cluster gives each worker the
// listening socket (SCHED_NONE), so all accept from one queue of the kernel. Who is idle takes the next, and who ends leaves the
// rest to the others. Were this process to accept and pass on (SCHED_RR), what it holds would be lost with it or a worker.
import cluster, { type Worker as Process } from 'node:cluster'
import { CommandError } from '../exit.js'
import type { Log } from '../log.js'
import { countsOf, createWorkerMetrics, type Snapshot, sumOf } from '../metrics.js'
import { packageFile } from '../package-root.js'
import type { Part } from './part.js'
import type { FromWorker, ToWorker } from './worker-messages.js'

/** A worker that ends sooner has not served: what ended it will probably end the next one too. */
const EARLY_MS = 10_000
const FIRST_DELAY_MS = 500
const MAX_DELAY_MS = 30_000
/** A worker that does not answer by then is counted as it was last; a scrape waits 10 s. */
const COUNT_WITHIN_MS = 2_000
/** After the time for what is in flight. */
const KILL_AFTER_MS = 1_000

export interface Workers extends Part {
  /** Address of the gateways. */
  readonly url: string
  /** Prometheus text: what the workers counted, those that ended included, and what this process did. */
  metrics(own: Snapshot): Promise<string>
  /** Every worker answers what is in flight and ends; those still there after `graceMs` are killed. */
  drain(graceMs: number): Promise<void>
}

/**
 * Fulfils when all serve. `env` is what they have besides the environment of this process.
 * @throws CommandError when one says that it cannot start, because the port is in use for example.
 */
export async function startWorkers(count: number, env: Readonly<Record<string, string>>, log: Log): Promise<Workers> {
  cluster.schedulingPolicy = cluster.SCHED_NONE
  cluster.setupPrimary({ exec: packageFile('bin/survey-auth.js'), args: ['serve', 'gateway', '--worker'] })
  const crew = new Crew(env, log)
  try {
    await crew.fill(count)
  } catch (error) {
    await crew.drain(0)
    throw error
  }
  return crew
}

/** One of N: whoever is in it is succeeded by the next when it ends or wants to. */
interface Place {
  readonly number: number
  worker: Worker | undefined
  /** Workers in a row that ended within EARLY_MS. */
  earlyEnds: number
  /** Settle the start of all: the first that serves here, and one that cannot. */
  readonly onServing: () => void
  readonly onFailed: (error: CommandError) => void
}

class Crew implements Workers {
  url = ''
  readonly #env: Readonly<Record<string, string>>
  readonly #log: Log
  readonly #places: Place[] = []
  readonly #living = new Map<Worker, Place>()
  readonly #delayed = new Set<NodeJS.Timeout>()
  /** What workers that ended have counted. */
  #past: Promise<Snapshot> = Promise.resolve([])
  readonly #metrics = createWorkerMetrics(() => this.#serving())
  #isStopping = false

  constructor(env: Readonly<Record<string, string>>, log: Log) {
    this.#env = env
    this.#log = log
  }

  async fill(count: number): Promise<void> {
    await Promise.all(
      Array.from({ length: count }, (_, index) => {
        return new Promise<void>((onServing, onFailed) => {
          const place = { number: index + 1, worker: undefined, earlyEnds: 0, onServing, onFailed }
          this.#places.push(place)
          this.#occupy(place)
        })
      }),
    )
  }

  async notReady(): Promise<string[]> {
    return this.#serving() > 0 ? [] : [`workers: none of ${this.#places.length} serves`]
  }

  async metrics(own: Snapshot): Promise<string> {
    await Promise.all([...this.#living.keys()].map((worker) => worker.count()))
    const ofWorkers = await this.#metrics.snapshot()
    const past = this.#past
    const present = [...this.#living.keys()].map(({ counted }) => counted) // of the same moment as `past`: none is in both
    return sumOf([own, ofWorkers, await past, ...present]).metrics()
  }

  async drain(graceMs: number): Promise<void> {
    this.#isStopping = true
    for (const timer of this.#delayed) clearTimeout(timer)
    for (const worker of this.#living.keys()) worker.dismiss()
    const kill = () => {
      for (const worker of this.#living.keys()) worker.kill()
    }
    process.once('exit', kill) // somebody does not want to wait
    const cut = setTimeout(kill, graceMs + KILL_AFTER_MS)
    await Promise.all([...this.#living.keys()].map(({ ended }) => ended))
    clearTimeout(cut)
    process.off('exit', kill)
  }

  async close(): Promise<void> {
    await this.drain(0)
  }

  #serving(): number {
    const serving = [...this.#living].filter(([worker]) => worker.isServing)
    return new Set(serving.map(([, place]) => place)).size // one that is asked to end serves until its successor does
  }

  /** Puts a new worker into a place; who was there goes when it serves. */
  #occupy(place: Place): void {
    const worker = new Worker(this.#env, {
      onServing: (url) => {
        this.url = url
        this.#log.note(`worker ${place.number} (process ${worker.pid}) serves`)
        for (const [other, where] of this.#living) if (where === place && other !== worker) other.stop()
        place.onServing()
      },
      onFailed: place.onFailed,
      onLeaving: () => this.#succeed(place, worker),
    })
    place.worker = worker
    this.#living.set(worker, place)
    void worker.ended.then((how) => this.#onEnd(place, worker, how))
  }

  #succeed(place: Place, worker: Worker): void {
    if (this.#isStopping || place.worker !== worker) return
    this.#log.note(`worker ${place.number} (process ${worker.pid}) was asked to end and does when its successor serves`)
    this.#occupy(place)
  }

  #onEnd(place: Place, worker: Worker, how: string): void {
    this.#living.delete(worker)
    const before = this.#past
    this.#past = before.then((past) => sumOf([past, countsOf(worker.counted)]).getMetricsAsJSON())
    if (this.#isStopping || place.worker !== worker) return
    this.#metrics.ended()
    place.earlyEnds = performance.now() - worker.startedAtMs < EARLY_MS ? place.earlyEnds + 1 : 0
    const delayMs = delayAfter(place.earlyEnds)
    const next = delayMs === 0 ? 'another takes its place' : `another takes its place in ${delayMs / 1000} s`
    this.#log.warning(`worker ${place.number} (process ${worker.pid}) ended: ${how}; ${next}`)
    const timer = setTimeout(() => {
      this.#delayed.delete(timer)
      this.#occupy(place)
    }, delayMs)
    this.#delayed.add(timer)
  }
}

/** The first that ends early may have been killed by somebody: its place is not kept empty for that. */
function delayAfter(earlyEnds: number): number {
  return earlyEnds < 2 ? 0 : Math.min(FIRST_DELAY_MS * 2 ** (earlyEnds - 2), MAX_DELAY_MS)
}

function ignore(): void {}

interface Reports {
  onServing(url: string): void
  onFailed(error: CommandError): void
  onLeaving(): void
}

/** A worker process as its parent sees it. */
class Worker {
  readonly startedAtMs = performance.now()
  /** How: a signal, an exit code, or what it said. */
  readonly ended: Promise<string>
  isServing = false
  /** What it had counted when it told last. */
  counted: Snapshot = []
  readonly #process: Process
  readonly #waiting = new Set<() => void>()

  constructor(env: Readonly<Record<string, string>>, reports: Reports) {
    this.#process = cluster.fork(env)
    this.#process.on('error', ignore) // of the channel, or there is no process: its end follows
    let failure: string | undefined
    this.#process.on('message', (message: FromWorker) => {
      switch (message.type) {
        case 'serving':
          this.isServing = true
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
          this.#answered()
      }
    })
    this.ended = this.#untilEnded().then((how) => {
      this.isServing = false
      this.#answered()
      return failure ?? how
    })
  }

  get pid(): number | undefined {
    return this.#process.process.pid
  }

  /** Fulfils when `counted` is of now, or when the worker does not answer in time. */
  count(): Promise<void> {
    if (!this.isServing) return Promise.resolve()
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer)
        this.#waiting.delete(done)
        resolve()
      }
      const timer = setTimeout(done, COUNT_WITHIN_MS)
      this.#waiting.add(done)
      this.#tell({ type: 'count' })
    })
  }

  stop(): void {
    this.#tell({ type: 'stop' })
  }

  /**
   * Ends it together with all others. node:cluster closes the listening socket of this process when it has lost the last
   * channel: whoever connected to that after the last worker has left would be reset.
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
    if (this.#process.isConnected()) this.#process.send(message, ignore) // who cannot be told has ended
  }

  #answered(): void {
    for (const done of [...this.#waiting]) done()
  }

  /** Gone, and everything it said is heard. */
  async #untilEnded(): Promise<string> {
    const child = this.#process.process
    const [how] = await Promise.all([
      new Promise<string>((resolve) => {
        child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`))
        child.once('error', (error) => {
          if (child.pid === undefined) resolve(error.message)
        })
      }),
      new Promise<void>((resolve) => {
        if (child.pid === undefined) resolve()
        else child.once('disconnect', resolve)
      }),
    ])
    return how
  }
}
