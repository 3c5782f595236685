// The workers of `serve --workers`: gateways in processes of their own that share the public port. This process starts
// them, replaces those that end, and adds up what they count. It reads no connection: node:cluster gives each worker the
// listening socket (SCHED_NONE), so all accept from one queue of the kernel. An idle worker takes the next connection, and one
// that ends leaves the rest to the others. If this process accepted connections and passed them on (SCHED_RR), those it holds
// would be lost with it or with a worker.
import cluster from 'node:cluster'
import type { Address } from '../../services/rpc/address.js'
import { CommandError, EXIT } from '../exit.js'
import { packageFile } from '../package-root.js'
import type { Log } from '../telemetry/log.js'
import { countsOf, createWorkerMetrics, type Snapshot, sumOf } from '../telemetry/metrics.js'
import type { GatewayPart } from './gateway-part.js'
import { workerEnvironment } from './worker-environment.js'
import { Worker } from './worker-process.js'

/** A worker that ends sooner, in ms, has ended early: what ended it will probably end the next one too. */
const EARLY_MS = 10_000
/** This many in a row at one seat fail the start of all. */
const MAX_EARLY_ENDS = 3
const FIRST_DELAY_MS = 500
const MAX_DELAY_MS = 30_000
/** A worker that does not answer counts as not serving after three times as long; HUNG_AFTER_LOOKS says when it is killed. */
const LOOK_EVERY_MS = 3_000
/** After the time for what is in flight, in ms. */
const KILL_AFTER_MS = 1_000

export interface Workers extends GatewayPart {
  /** Why no worker serves, or some cannot; empty when all is well. */
  notReady(): string[]
  /** Prometheus text: what the workers counted, those that ended included, and what this process did. */
  metrics(own: Snapshot): Promise<string>
  /** Every worker answers what is in flight and ends; those still there after `graceMs` are killed. */
  drain(graceMs: number): Promise<void>
}

export interface WorkersOptions {
  readonly count: number
  /** Where the workers find the services of this process; undefined when they are elsewhere. */
  readonly services: Address | undefined
  readonly log: Log
  readonly lookEveryMs?: number
}

/**
 * Fulfils when all serve.
 * @throws CommandError when one reports that it cannot start, because the port is in use for example, or ends repeatedly.
 */
export async function startWorkers({ count, services, log, lookEveryMs }: WorkersOptions): Promise<Workers> {
  cluster.schedulingPolicy = cluster.SCHED_NONE
  cluster.setupPrimary({
    exec: packageFile('bin/survey-auth.js'),
    args: ['serve', 'gateway', '--worker'],
    stdio: ['ignore', 'inherit', 'pipe', 'ipc'], // nobody shares stderr: see onLine
  })
  const crew = new Crew(workerEnvironment(process.env, services), log, lookEveryMs)
  try {
    await crew.fill(count)
  } catch (error) {
    await crew.drain(0)
    throw error
  }
  return crew
}

/** One of N: the worker in it is succeeded by the next when it ends or was asked to. */
interface Seat {
  readonly number: number
  worker: Worker | undefined
  /** Workers in a row that ended before they served or within EARLY_MS. */
  earlyEnds: number
  /** Settle this seat's start: called when a worker serves here, and when one cannot. */
  readonly onServing: () => void
  readonly onFailed: (error: CommandError) => void
}

class Crew implements Workers {
  url = ''
  readonly #env: Readonly<Record<string, string | undefined>>
  readonly #log: Log
  readonly #looks: NodeJS.Timeout
  readonly #seats: Seat[] = []
  readonly #living = new Map<Worker, Seat>()
  readonly #delayed = new Set<NodeJS.Timeout>()
  /** What workers that ended have counted. */
  #past: Promise<Snapshot> = Promise.resolve([])
  readonly #metrics = createWorkerMetrics(
    () => this.#serving(),
    () => this.#seats.length,
  )
  #isStopping = false

  constructor(env: Readonly<Record<string, string | undefined>>, log: Log, lookEveryMs = LOOK_EVERY_MS) {
    this.#env = env
    this.#log = log
    this.#looks = setInterval(() => this.#look(), lookEveryMs)
  }

  async fill(count: number): Promise<void> {
    await Promise.all(
      Array.from({ length: count }, (_, index) => {
        return new Promise<void>((onServing, onFailed) => {
          const seat = { number: index + 1, worker: undefined, earlyEnds: 0, onServing, onFailed }
          this.#seats.push(seat)
          this.#occupy(seat)
        })
      }),
    )
  }

  notReady(): string[] {
    const reasons = new Set([...this.#living.keys()].flatMap(({ notReady }) => notReady))
    const none = this.#serving() > 0 ? [] : [`workers: none of ${this.#seats.length} serves`]
    return [...none, ...[...reasons].map((reason) => `workers: ${reason}`)]
  }

  async metrics(own: Snapshot): Promise<string> {
    await Promise.all([...this.#living.keys()].map((worker) => worker.count()))
    const ofWorkers = await this.#metrics.snapshot()
    const past = this.#past
    const present = [...this.#living.keys()].map(({ counted }) => counted) // taken together with `past`: no worker is in both
    return sumOf([own, ofWorkers, await past, ...present]).metrics()
  }

  async drain(graceMs: number): Promise<void> {
    this.#isStopping = true
    clearInterval(this.#looks)
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

  #serving(): number {
    const serving = [...this.#living].filter(([worker]) => worker.isServing)
    return new Set(serving.map(([, seat]) => seat)).size // one that is asked to end serves until its successor does
  }

  /** A worker that cannot reach the services is no successor yet: the one that can goes on. */
  #stopPredecessors(): void {
    for (const [worker, { worker: newest }] of this.#living) if (newest !== worker && newest?.isServing) worker.stop()
  }

  /** A worker that does not answer is stuck, and so is every client connected to it. */
  #look(): void {
    this.#stopPredecessors()
    for (const [worker, seat] of this.#living) {
      worker.look()
      if (!worker.isHung) continue
      this.#log.warning(`worker ${seat.number} (process ${worker.pid}) does not answer and is killed`)
      worker.kill()
    }
  }

  /** Puts a new worker into a seat; its predecessor is stopped when it serves. */
  #occupy(seat: Seat): void {
    const worker = new Worker(this.#env, {
      onServing: (url) => {
        this.#log.note(`worker ${seat.number} (process ${worker.pid}) serves`)
        this.url ||= url
        if (url !== this.url) this.#log.warning(`the port has changed: ${this.url} is now ${url}, because PORT is 0`)
        this.#stopPredecessors()
        seat.onServing()
      },
      onLine: (line) => this.#log.passOn(line),
      onFailed: seat.onFailed,
      onLeaving: () => this.#succeed(seat, worker),
    })
    seat.worker = worker
    this.#living.set(worker, seat)
    void worker.ended.then((how) => this.#onEnd(seat, worker, how))
  }

  #succeed(seat: Seat, worker: Worker): void {
    if (this.#isStopping || seat.worker !== worker) return
    this.#log.note(
      `worker ${seat.number} (process ${worker.pid}) was asked to stop and will, once its successor serves`,
    )
    this.#occupy(seat)
  }

  #onEnd(seat: Seat, worker: Worker, how: string): void {
    this.#living.delete(worker)
    const before = this.#past
    this.#past = before.then((past) => sumOf([past, countsOf(worker.counted)]).getMetricsAsJSON())
    if (this.#isStopping || seat.worker !== worker) return
    this.#metrics.ended()
    const isEarly = !worker.hasServed || performance.now() - worker.startedAtMs < EARLY_MS
    seat.earlyEnds = isEarly ? seat.earlyEnds + 1 : 0
    if (seat.earlyEnds >= MAX_EARLY_ENDS) seat.onFailed(failedAtStart(seat, how)) // without effect once one has served
    const delayMs = delayAfter(seat.earlyEnds)
    const next = delayMs === 0 ? 'another takes its place' : `another takes its place in ${delayMs / 1000} s`
    this.#log.warning(`worker ${seat.number} (process ${worker.pid}) ended: ${how}; ${next}`)
    const timer = setTimeout(() => {
      this.#delayed.delete(timer)
      this.#occupy(seat)
    }, delayMs)
    this.#delayed.add(timer)
  }
}

/** The first that ends early may just have been killed: it is replaced at once. */
function delayAfter(earlyEnds: number): number {
  return earlyEnds < 2 ? 0 : Math.min(FIRST_DELAY_MS * 2 ** (earlyEnds - 2), MAX_DELAY_MS)
}

function failedAtStart({ number, earlyEnds }: Seat, how: string): CommandError {
  return new CommandError(
    `worker ${number} ended ${earlyEnds} times before it served, the last time: ${how}`,
    EXIT.failure,
    'SIGKILL is what the kernel sends when memory is short',
  )
}
