// Group commit: writes that arrive within two turns of the event loop, or while the disk flushes, share one transaction and one
// flush. No write is acknowledged before it is flushed.
import type { Statement } from 'better-sqlite3'
import { type Cause, isOver, type Until } from '../cause.js'
import { afterNextTurn, Queue } from '../queue.js'
import { StoreUnavailable } from '../store-unavailable.js'
import { Checkpoints } from './checkpoints.js'
import { DISK_FAILURE } from './disk-failure.js'
import { DatabaseFile, type Flush, LogFile } from './flushed-files.js'
import { BUSY_TIMEOUT_MS, type Connection, explained, isBusy, isIoError, toStoreError, withoutWaiting } from './open.js'

export interface GroupCommitOptions {
  /** Writes that may be unanswered; more are refused at once. */
  readonly maxUnanswered?: number
  /** How long to wait for another process's lock, without blocking the thread. */
  readonly lockWaitMs?: number
  /** How long a write may wait to begin, for a lock and for the disk; then it is refused. */
  readonly beginWithinMs?: number
  /** Called after each commit: how many writes shared it, and how long it took from BEGIN until it was flushed, in ms. */
  readonly onCommit?: ((writes: number, durationMs: number) => void) | undefined
  /** Pages of the write-ahead log that are copied into the database at a time. */
  readonly checkpointPages?: number | undefined
  /** How the log is flushed: fs.fdatasync, if not given. */
  readonly flush?: Flush | undefined
  /** How the database file is flushed, likewise. */
  readonly flushDatabase?: Flush | undefined
}

interface QueuedWrite extends Until {
  readonly write: () => unknown
  readonly resolve: (result: never) => void
  readonly reject: (error: unknown) => void
}

const TOO_LATE = new Error('the write could not begin in time')

/** undefined for a write that ran out of time while those before it in its group ran. */
type Outcome = { readonly result: unknown } | undefined

/** A group whose transaction is committed: everybody sees it, but a power cut may still undo it. */
interface Committed {
  readonly group: readonly QueuedWrite[]
  readonly outcomes: readonly Outcome[]
  readonly startedAt: number
}

const MAX_UNANSWERED = 10_000 // a few MiB and under 2 s of work; beyond it waiting only adds latency
const MAX_GROUP = 256 // about 30 ms: how long reads can be kept waiting
const LOCK_RETRY_MS = 5
/** Of the 4.5 s of a call; the flush has the rest. Once a caller has been told that a write failed, the write must not happen. */
const BEGIN_WITHIN_MS = 3_000

export class GroupCommit {
  readonly #db: Connection
  readonly #maxUnanswered: number
  readonly #lockWaitMs: number
  readonly #beginWithinMs: number
  readonly #onCommit: GroupCommitOptions['onCommit']
  readonly #checkpoints: Checkpoints
  readonly #log: LogFile
  readonly #begin: Statement
  readonly #commit: Statement
  readonly #queue = new Queue<QueuedWrite>((overdue) => this.#refuse(overdue, TOO_LATE))
  #unanswered = 0
  #isFlushing = false
  /** Writes at the head of the queue whose group has failed: each runs in a transaction of its own. */
  #alone = 0
  /** Failed flushes that are not repaired yet: nothing is written until all is on disk again. */
  #doubts = 0
  /** The repair of the last of them. */
  #repair: Promise<boolean> = Promise.resolve(true)
  #waitingSinceMs: number | undefined
  #isScheduled = false
  #closed: Promise<void> | undefined
  #onDrained: (() => void) | undefined

  constructor(db: Connection, options: GroupCommitOptions = {}) {
    this.#db = db
    this.#maxUnanswered = options.maxUnanswered ?? MAX_UNANSWERED
    this.#lockWaitMs = options.lockWaitMs ?? BUSY_TIMEOUT_MS
    this.#beginWithinMs = options.beginWithinMs ?? BEGIN_WITHIN_MS
    this.#onCommit = options.onCommit
    const file = new DatabaseFile(db, options.flushDatabase)
    const onDoubt = (error: unknown) => void this.#makeGood(undefined, error)
    this.#checkpoints = new Checkpoints(db, file, { pages: options.checkpointPages, onDoubt })
    this.#log = new LogFile(db, file, options.flush)
    this.#begin = db.prepare('BEGIN IMMEDIATE')
    this.#commit = db.prepare('COMMIT')
  }

  /**
   * Runs one write, which is synchronous and uses this connection, in a transaction; it runs again, alone, if a write of its
   * group fails. Fulfils when the write is committed and flushed. Rejects with StoreUnavailable when the database cannot be
   * asked, too many writes wait, or this one could not begin in time, `until` included; otherwise with what the write threw,
   * which has then left no trace.
   */
  submit<Result>(write: () => Result, until?: Until): Promise<Result> {
    if (this.#closed) return Promise.reject(new StoreUnavailable(new Error('the store is closed')))
    if (this.#unanswered >= this.#maxUnanswered) {
      return Promise.reject(new StoreUnavailable(new Error('too many writes are waiting')))
    }
    this.#unanswered += 1
    const longest = performance.now() + this.#beginWithinMs
    const dueAt = until ? Math.min(longest, until.dueAt) : longest
    return new Promise((resolve, reject) => {
      this.#queue.add({ write, dueAt, signal: until?.signal, resolve, reject })
      this.#scheduleGroup()
    })
  }

  /** Finishes submitted writes and accepts no more; the connection stays open. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    if (this.#unanswered > 0) {
      await new Promise<void>((resolve) => {
        this.#onDrained = resolve
      })
    }
    await this.#checkpoints.close()
    this.#log.close()
  }

  #schedule(delayMs = 0): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    const run = () => {
      this.#isScheduled = false
      this.#turn()
    }
    if (delayMs > 0) setTimeout(run, delayMs)
    else afterNextTurn(run) // in which more writes may arrive
  }

  #turn(): void {
    this.#queue.refuseOverdue()
    if (this.#queue.items.length > 0 && !this.#tryGroup()) {
      this.#schedule(LOCK_RETRY_MS)
      return
    }
    this.#waitingSinceMs = undefined
    this.#scheduleGroup()
  }

  /** False when it should be tried again. */
  #tryGroup(): boolean {
    try {
      if (this.#hasBegun()) {
        this.#runGroup()
        return true
      }
      if (this.#mayWaitOn()) return false
      this.#refuse(
        this.#queue.items.splice(0),
        new Error('another process holds the write lock, or a failed flush is being repaired'),
      )
    } catch (error) {
      this.#refuse(this.#queue.items.splice(0), error)
    }
    return true
  }

  #scheduleGroup(): void {
    if (this.#queue.items.length > 0 && !this.#isFlushing) this.#schedule()
  }

  /** Measured in time, not in tries: a busy machine makes tries slow, and the callers' deadline does not wait. */
  #mayWaitOn(): boolean {
    this.#waitingSinceMs ??= performance.now()
    return performance.now() - this.#waitingSinceMs < this.#lockWaitMs
  }

  /**
   * False when another process is writing: waiting in the driver would block the thread, which reads need. Also false while not
   * everything is on disk.
   */
  #hasBegun(): boolean {
    if (this.#doubts > 0) return false
    try {
      withoutWaiting(this.#db, () => this.#begin.run())
      return true
    } catch (error) {
      this.#rollBack()
      if (isBusy(error)) return false
      throw error
    }
  }

  /**
   * Without savepoints, which make SQLite copy every page before it is changed: two thirds of what it would write. When a write
   * fails, nothing of the group has happened.
   */
  #runGroup(): void {
    const startedAt = performance.now()
    const group = this.#queue.items.splice(0, this.#alone > 0 ? 1 : MAX_GROUP)
    this.#alone = Math.max(0, this.#alone - 1)
    let outcomes: readonly Outcome[]
    let isCommitting = false
    try {
      outcomes = group.map((queued) => (isOver(queued) ? undefined : { result: queued.write() }))
      isCommitting = true
      this.#commit.run()
    } catch (error) {
      if (isCommitting) this.#refuse(group, error, isIoError(error))
      else this.#failed(group, error)
      this.#rollBack() // last, since it may throw: nobody else answers the group
      return
    }
    this.#flush({ group, outcomes, startedAt })
    this.#checkpoints.committed()
  }

  /** Answers a write that failed alone. Which of several failed nobody knows, so each runs again. */
  #failed(group: readonly QueuedWrite[], error: unknown): void {
    const [first, ...others] = group
    if (first && others.length === 0) {
      this.#answered(1)
      first.reject(toStoreError(error, this.#db.name))
      return
    }
    this.#alone = group.length
    this.#queue.items.unshift(...group)
  }

  #flush(committed: Committed): void {
    this.#isFlushing = true
    this.#log.flush((error) => {
      if (error) void this.#makeGood(committed, error)
      else this.#acknowledge(committed)
      this.#isFlushing = false
      this.#scheduleGroup()
    })
  }

  #acknowledge({ group, outcomes, startedAt }: Committed): void {
    this.#onCommit?.(group.length, performance.now() - startedAt)
    this.#answered(group.length)
    group.forEach((write, index) => {
      const outcome = outcomes[index]
      if (outcome) write.resolve(outcome.result as never)
      else write.reject(new StoreUnavailable(TOO_LATE))
    })
  }

  /**
   * Called after a failed flush: of the log, for which a group waits, or of the database. Until the repair nothing is written. If
   * that takes longer than the wait for a lock, the callers are told that the outcome is unknown.
   */
  async #makeGood(waiting: Committed | undefined, error: unknown): Promise<void> {
    process.emitWarning(`${this.#db.name} could not be flushed; its log is being rewritten: ${error}`, DISK_FAILURE)
    this.#doubts += 1
    this.#unanswered += 1 // closing waits for the repair as for writes
    this.#checkpoints.pause()
    let isTimeUp = false
    const giveUp = setTimeout(() => {
      isTimeUp = true
      if (waiting) this.#refuse(waiting.group, error, true)
      this.#answered(1)
    }, this.#lockWaitMs)
    const repair = this.#repair.then(() => this.#log.repair(() => this.#closed !== undefined && isTimeUp))
    this.#repair = repair
    if (!(await repair)) return
    clearTimeout(giveUp)
    if (!isTimeUp) {
      if (waiting) this.#acknowledge(waiting)
      this.#answered(1)
    }
    this.#doubts -= 1
    if (this.#doubts === 0) this.#checkpoints.resume()
  }

  /** Rolls back what has begun; SQLite may have done so itself. */
  #rollBack(): void {
    if (this.#db.inTransaction) this.#db.exec('ROLLBACK')
  }

  #refuse(group: readonly QueuedWrite[], error: unknown, isOutcomeUnknown = false): void {
    this.#answered(group.length)
    const cause = explained(error, this.#db.name)
    for (const write of group) write.reject(new StoreUnavailable(cause, isOutcomeUnknown))
  }

  #answered(writes: number): void {
    this.#unanswered -= writes
    if (this.#unanswered === 0) this.#onDrained?.()
  }
}

/** Makes a method of a store from a write: it answers with a promise, as `submit` does. */
export function writing<Args extends unknown[], Result>(
  writer: GroupCommit,
  write: (...args: Args) => Result,
): (...args: Args) => Promise<Result> {
  return (...args) => writer.submit(() => write(...args))
}

/** The same for a write caused by a call: it does not begin once the call is over. */
export function causedWriting<Args extends readonly unknown[], Result>(
  writer: GroupCommit,
  write: (...args: [...Args, Cause]) => Result,
): (...args: [...Args, Cause]) => Promise<Result> {
  return (...args) => writer.submit(() => write(...args), args.at(-1) as Cause)
}
