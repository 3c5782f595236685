// Checkpoints: copying what was committed from the write-ahead log into the database file, so that the log does not grow
// without end. SQLite would do it inside the commit that fills the log, and hold the event loop for as long as it takes. A
// thread with a connection of its own copies instead, and the file is flushed on another, until little is left; that
// little is copied and flushed here, which lets the next write begin the log anew.
import { fdatasync, openSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import type { Statement } from 'better-sqlite3'
import { SIDE_THREAD } from '../../event-loop/side-thread.js'
import { driverPath } from './driver.js'
import type { Connection } from './open.js'

/** Pages in the log at which it is copied: 32 MiB. A page that changed often meanwhile is copied once. */
const DEFAULT_PAGES = 8192
/** Pages the event loop copies itself: a few ms. */
const FEW_PAGES = 512
/** At so many times the pages above, the disk cannot keep up: then writes wait for it, as they would without a thread. */
const TOO_LONG = 4
/** What SQLite is told when there is no thread. */
const AUTOCHECKPOINT_PAGES = 2048

/** As source text, since it must run from TypeScript and from what was compiled. */
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
    parentPort.postMessage({ failure: error.message })
  }
})`

/** Pages in the log when it was copied, and how many of them the database file has: fewer when a reader needs the rest. */
interface Progress {
  readonly log: number
  readonly checkpointed: number
}

export class Checkpoints {
  readonly #db: Connection
  readonly #pages: number
  readonly #look: Statement<[], Progress>
  readonly #finish: Statement<[], Progress>
  #thread: { readonly worker: Worker; readonly hasEnded: Promise<void> } | undefined
  /** Of the database, for flushing. Never closed: that would take away the locks SQLite holds on the file. */
  #descriptor: number | undefined
  #isUnderWay = false
  #isPaused = false
  /** Pages at which the next begins; infinite when there is to be none. */
  #due: number

  /** Takes over from SQLite's own checkpoints, which stay for a database that is no file. */
  constructor(db: Connection, pages = DEFAULT_PAGES) {
    this.#db = db
    this.#pages = pages
    this.#due = db.memory ? Number.POSITIVE_INFINITY : pages
    this.#look = db.prepare('PRAGMA wal_checkpoint(NOOP)')
    this.#finish = db.prepare('PRAGMA wal_checkpoint(PASSIVE)')
    if (!db.memory) db.pragma('wal_autocheckpoint = 0')
  }

  /** After every commit, outside any transaction. Never throws: the commit has happened. */
  committed(): void {
    if (this.#isUnderWay || this.#due === Number.POSITIVE_INFINITY) return
    try {
      const log = this.#pagesInLog()
      if (log < this.#pages) this.#due = this.#pages
      if (log < this.#due) return
      this.#due = log + this.#pages // unless it can be emptied, which a reader may prevent for long, as a backup does
      this.#isUnderWay = true
      this.#descriptor ??= openSync(this.#db.name, 'r+')
      this.#thread ??= this.#start()
      this.#thread.worker.postMessage('copy')
    } catch (error) {
      this.#giveBack(error)
    }
  }

  /**
   * Begins and finishes no checkpoint until `resume`. What the thread is copying at this moment is on disk in the log, or
   * its own flush of the log, with which it began, told it of the failure.
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
    worker.on('message', (message: Progress | { readonly failure: string }) => {
      if ('failure' in message) this.#failed(message.failure)
      else this.#flush(message)
    })
    worker.on('error', (error) => this.#giveBack(error))
    const hasEnded = new Promise<void>((resolve) => {
      worker.once('exit', () => {
        if (this.#thread?.worker === worker) this.#giveBack('its thread has ended')
        resolve()
      })
    })
    return { worker, hasEnded }
  }

  #flush(progress: Progress): void {
    if (!this.#thread || this.#descriptor === undefined) return
    fdatasync(this.#descriptor, (error) => {
      if (!this.#thread || !this.#db.open) return
      if (error) this.#failed(error)
      else this.#goOn(progress)
    })
  }

  #goOn({ log, checkpointed }: Progress): void {
    if (this.#isPaused) {
      this.#isUnderWay = false
      return
    }
    try {
      const now = this.#pagesInLog()
      const isHeld = checkpointed < log
      const isFew = now - checkpointed <= FEW_PAGES || now >= TOO_LONG * this.#pages
      if (!isHeld && !isFew) {
        this.#thread?.worker.postMessage('copy')
        return
      }
      if (!isHeld) this.#finish.get()
      this.#isUnderWay = false
    } catch (error) {
      this.#failed(error)
    }
  }

  #pagesInLog(): number {
    return this.#look.get()?.log ?? 0
  }

  /** On a full disk or a locked file, say. Nothing is lost, since the log has it; the next try comes when it has grown. */
  #failed(error: unknown): void {
    process.emitWarning(`a checkpoint of ${this.#db.name} failed: ${error}`)
    this.#isUnderWay = false
  }

  /** Without a thread, SQLite checkpoints inside commits again. */
  #giveBack(error: unknown): void {
    process.emitWarning(`checkpoints of ${this.#db.name} are back with its writer: ${error}`)
    this.#thread = undefined
    this.#due = Number.POSITIVE_INFINITY
    if (this.#db.open) this.#db.pragma(`wal_autocheckpoint = ${AUTOCHECKPOINT_PAGES}`)
  }
}
