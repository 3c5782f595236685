// Checkpoints copy what was committed from the write-ahead log into the database file, so that the log does not grow without
// bound. SQLite would do it inside the commit that fills the log, and block the event loop for as long as it takes. Instead, a
// thread with a connection of its own copies, and another flushes the file, until little is left. That little is copied and
// flushed here, which lets the next write restart the log.
import { Worker } from 'node:worker_threads'
import type { Statement } from 'better-sqlite3'
import { SIDE_THREAD } from '../side-thread.js'
import { DISK_FAILURE } from './disk-failure.js'
import { driverPath } from './driver.js'
import type { DatabaseFile, Progress } from './flushed-files.js'
import { type Connection, isIoError } from './open.js'

/** Pages in the log at which a checkpoint begins: 32 MiB. A page that changed often meanwhile is copied once. */
const DEFAULT_PAGES = 8192
/** Pages the event loop copies itself: a few ms. */
const FEW_PAGES = 512
/** At this multiple of `pages`, the disk cannot keep up: writes then wait for it, as they would without a thread. */
const TOO_LONG = 4
/** SQLite's own setting when there is no thread. */
const AUTOCHECKPOINT_PAGES = 2048

/** As source text, since it must run from TypeScript and from compiled code. */
const threadSource = `
const { parentPort, workerData } = require('node:worker_threads')
const db = new (require(workerData.driver))(workerData.file)
db.pragma('synchronous = FULL')
parentPort.on('message', (message) => {
  if (message === 'close') {
    db.close()
    process.exit()
  }
  try {
    parentPort.postMessage(db.pragma('wal_checkpoint(PASSIVE)')[0])
  } catch (error) {
    parentPort.postMessage({ failure: error.message, isIoError: /^SQLITE_IOERR/.test(error.code) })
  }
})`

/** Why the thread could not copy. */
interface Failure {
  readonly failure: string
  readonly isIoError: boolean
}

export interface CheckpointsOptions {
  /** Pages that are copied at a time. */
  readonly pages?: number | undefined
  /** Called when what was copied may not be on disk: all of it must be copied again before the log may restart. */
  readonly onDoubt: (error: unknown) => void
}

export class Checkpoints {
  readonly #db: Connection
  readonly #file: DatabaseFile
  readonly #pages: number
  readonly #onDoubt: (error: unknown) => void
  readonly #finish: Statement<[], Progress>
  #thread: { readonly worker: Worker; readonly hasEnded: Promise<void> } | undefined
  #isUnderWay = false
  #isPaused = false
  /** Pages in the log at which the next checkpoint begins; infinite when there is to be none. */
  #due: number

  /** Takes over from SQLite's own checkpoints, which stay for a database that is not a file. */
  constructor(db: Connection, file: DatabaseFile, { pages = DEFAULT_PAGES, onDoubt }: CheckpointsOptions) {
    this.#db = db
    this.#file = file
    this.#pages = pages
    this.#onDoubt = onDoubt
    this.#due = db.memory ? Number.POSITIVE_INFINITY : pages
    this.#finish = db.prepare('PRAGMA wal_checkpoint(PASSIVE)')
    if (!db.memory) db.pragma('wal_autocheckpoint = 0')
  }

  /** Called after every commit, outside any transaction. Never throws: the commit has happened. */
  committed(): void {
    if (this.#isUnderWay || this.#due === Number.POSITIVE_INFINITY) return
    try {
      const { log } = this.#file.progress()
      if (log < this.#pages) this.#due = this.#pages
      if (log < this.#due) return
      this.#due = log + this.#pages // unless the log restarts first, which a reader such as a backup may prevent for long
    } catch (error) {
      this.#giveBack(error) // nobody knows when one is due
      return
    }
    try {
      this.#isUnderWay = true
      this.#file.open()
      this.#thread ??= this.#start()
      this.#thread.worker.postMessage('copy')
    } catch (error) {
      this.#failed(error, false)
    }
  }

  /**
   * Begins and finishes no checkpoint until `resume`. What the thread is copying at this moment is on disk in the log, or the
   * thread's own flush of the log, with which it began, has failed and told it so.
   */
  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
  }

  /** Ends the thread; the last connection to close the file then copies what is left. */
  async close(): Promise<void> {
    this.#due = Number.POSITIVE_INFINITY
    const thread = this.#thread
    this.#thread = undefined
    if (!thread) return
    thread.worker.ref()
    thread.worker.postMessage('close')
    await thread.hasEnded
  }

  #start() {
    const workerData = { driver: driverPath, file: this.#db.name }
    const worker = new Worker(threadSource, { ...SIDE_THREAD, eval: true, workerData })
    worker.unref()
    worker.on('message', (message: Progress | Failure) => {
      if ('failure' in message) this.#failed(message.failure, message.isIoError)
      else this.#flush(message)
    })
    worker.on('error', (error) => this.#giveBack(error))
    const hasEnded = new Promise<void>((resolve) => {
      worker.once('exit', () => {
        if (this.#thread?.worker === worker) this.#giveBack('the checkpoint thread has ended')
        resolve()
      })
    })
    return { worker, hasEnded }
  }

  #flush(progress: Progress): void {
    if (!this.#thread) return
    this.#file.flush((error) => {
      if (!this.#thread || !this.#db.open) return
      if (error) this.#failed(error, true)
      else this.#goOn(progress)
    })
  }

  #goOn({ log, checkpointed }: Progress): void {
    if (this.#isPaused) {
      this.#isUnderWay = false
      return
    }
    try {
      const now = this.#file.progress().log
      const isHeld = log < 0 || checkpointed < log // by another process's checkpoint, or by a reader
      const isFew = now - checkpointed <= FEW_PAGES || now >= TOO_LONG * this.#pages
      if (!isHeld && !isFew) {
        this.#thread?.worker.postMessage('copy')
        return
      }
      if (!isHeld) this.#finish.get()
      this.#isUnderWay = false
    } catch (error) {
      this.#failed(error, isIoError(error))
    }
  }

  /**
   * For example because of a full disk, a locked file or too many open ones: the next attempt comes when the log has grown.
   * After an I/O error of a copy, what was copied before may not be on disk either.
   */
  #failed(error: unknown, isInDoubt: boolean): void {
    process.emitWarning(`a checkpoint of ${this.#db.name} failed: ${error}`, DISK_FAILURE)
    this.#isUnderWay = false
    if (isInDoubt) this.#onDoubt(error)
  }

  /** Without a thread, SQLite checkpoints inside commits again. */
  #giveBack(error: unknown): void {
    process.emitWarning(`checkpoints of ${this.#db.name} run inside commits again: ${error}`)
    this.#thread = undefined
    this.#due = Number.POSITIVE_INFINITY
    if (this.#db.open) this.#db.pragma(`wal_autocheckpoint = ${AUTOCHECKPOINT_PAGES}`)
  }
}
