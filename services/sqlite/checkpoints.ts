// Checkpoints: copying what was committed from the write-ahead log into the database file, so that the log does not grow
// without end. SQLite would do it inside the commit that fills the log, and hold the event loop for as long as it takes. A
// thread with a connection of its own does it instead; only what was committed meanwhile is copied here, which lets the
// next write begin the log anew.
import { createRequire } from 'node:module'
import { Worker } from 'node:worker_threads'
import type { Statement } from 'better-sqlite3'
import type { Connection } from './open.js'

/** Pages in the log at which it is copied: 32 MiB. A page that changed often meanwhile is copied once. */
const DEFAULT_PAGES = 8192
/** Pages the event loop may copy itself: some 15 ms. More are left to the next time. */
const MAX_PAGES_HERE = 2048

/** As source text, since it must run from TypeScript and from what was compiled. */
const threadSource = `
const { parentPort, workerData } = require('node:worker_threads')
const db = new (require(workerData.driver))(workerData.file)
db.pragma('synchronous = FULL')
parentPort.on('message', (message) => {
  if (message === 'close') {
    db.close()
    parentPort.close()
    return
  }
  try {
    parentPort.postMessage(db.pragma('wal_checkpoint(PASSIVE)')[0])
  } catch {
    parentPort.postMessage({ log: 0, checkpointed: -1 }) // a full disk, or a database that is locked: the next time
  }
})`

/** Pages in the log, and how many of them the database file has. */
interface Progress {
  readonly log: number
  readonly checkpointed: number
}

export class Checkpoints {
  readonly #db: Connection
  readonly #pages: number
  readonly #look: Statement<[], Progress>
  readonly #finish: Statement<[], Progress>
  #thread: Worker | undefined
  #isUnderWay = false
  /** Pages at which the next begins. */
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

  /** After every commit, outside any transaction. */
  committed(): void {
    if (this.#isUnderWay || this.#due === Number.POSITIVE_INFINITY) return
    const log = this.#look.get()?.log ?? 0
    if (log < this.#pages) this.#due = this.#pages
    if (log < this.#due) return
    this.#due = log + this.#pages // unless it can be emptied, which a reader may prevent for long, as a backup does
    this.#isUnderWay = true
    try {
      this.#thread ??= this.#start()
      this.#thread.postMessage('copy')
    } catch (error) {
      this.#giveBack(error)
    }
  }

  /** Ends the thread; the last connection to close the file then copies what is left. */
  async close(): Promise<void> {
    this.#due = Number.POSITIVE_INFINITY
    const thread = this.#thread
    this.#thread = undefined
    if (!thread) return
    const hasEnded = new Promise((resolve) => thread.once('exit', resolve))
    thread.ref()
    thread.postMessage('close')
    await hasEnded
  }

  #start(): Worker {
    const driver = createRequire(import.meta.url).resolve('better-sqlite3')
    const thread = new Worker(threadSource, { eval: true, workerData: { driver, file: this.#db.name } })
    thread.unref()
    thread.on('message', (progress: Progress) => this.#copied(progress))
    thread.on('error', (error) => this.#giveBack(error))
    return thread
  }

  /** Without a thread, SQLite checkpoints inside commits again. */
  #giveBack(error: unknown): void {
    process.emitWarning(`checkpoints of ${this.#db.name} are back with its writer: ${error}`)
    this.#thread = undefined
    this.#due = Number.POSITIVE_INFINITY
    if (this.#db.open) this.#db.pragma(`wal_autocheckpoint = ${MAX_PAGES_HERE}`)
  }

  #copied({ checkpointed }: Progress): void {
    this.#isUnderWay = false
    if (!this.#thread || checkpointed < 0) return
    try {
      const log = this.#look.get()?.log ?? 0
      if (log - checkpointed <= MAX_PAGES_HERE) this.#finish.get()
    } catch {
      // Nothing is lost: the log still has it, and the next checkpoint copies it.
    }
  }
}
