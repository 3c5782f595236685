// The database file beneath SQLite: what checkpoints have copied into it is flushed here, and copied once more after a flush
// that failed.
import { fdatasync, openSync, readSync, writeSync } from 'node:fs'
import type { Statement } from 'better-sqlite3'
import { Database } from './driver.js'
import type { Connection } from './open.js'

/** Flushes a file as fs.fdatasync does. */
export type Flush = (descriptor: number, done: (error: Error | null) => void) => void

/** Pages in the log, and how many of them checkpoints have copied. */
export interface Progress {
  readonly log: number
  readonly checkpointed: number
}

/** Of the log, by SQLite's file format: a header of its own and one before each page, and where in them is what. */
const HEADER_BYTES = 32
const PAGE_SIZE_AT = 8
const PAGE_HEADER_BYTES = 24

const LOOK = 'PRAGMA wal_checkpoint(NOOP)'

export class DatabaseFile {
  readonly #db: Connection
  readonly #flush: Flush
  readonly #look: Statement<[], Progress>
  /** Never closed: that would take away the locks SQLite holds on the file. */
  #descriptor: number | undefined

  constructor(db: Connection, flush: Flush = fdatasync) {
    this.#db = db
    this.#flush = flush
    this.#look = db.prepare(LOOK)
  }

  progress(): Progress {
    return this.#look.get() ?? { log: 0, checkpointed: 0 }
  }

  /** Opens what is flushed: it hears of what fails from now on. @throws when it cannot be opened. */
  open(): number {
    this.#descriptor ??= openSync(this.#db.name, 'r+')
    return this.#descriptor
  }

  /** Calls back when all that was copied before is on disk, or with why it may not be: then the log has it, and nothing else. */
  flush(done: (error: Error | null) => void): void {
    if (this.#descriptor === undefined) setImmediate(done, null)
    else this.#flush(this.#descriptor, done)
  }

  /**
   * Under the lock of a writer: writes all that checkpoints have copied once more, from `log`, which must be on disk. What a
   * flush that failed should have brought counts as clean to the kernel, and as copied to SQLite: it would never be written
   * again, and be lost when the log begins anew. A page that the log has once more behind what was copied is left to SQLite.
   */
  copyAgain(log: number): void {
    const file = this.open()
    const { log: pages, checkpointed } = progressOf(this.#db.name)
    if (checkpointed <= 0) return // an empty log has no header either
    const size = numberAt(log, PAGE_SIZE_AT)
    const at = (page: number) => HEADER_BYTES + page * (PAGE_HEADER_BYTES + size)
    const last = new Map<number, number>()
    for (let page = 0; page < pages; page += 1) last.set(numberAt(log, at(page)), page)
    const bytes = Buffer.allocUnsafe(size)
    const count = Number(this.#db.pragma('page_count', { simple: true }))
    for (const [number, page] of last) {
      if (page >= checkpointed || number > count) continue
      readSync(log, bytes, 0, size, at(page) + PAGE_HEADER_BYTES)
      writeSync(file, bytes, 0, size, (number - 1) * size)
    }
    this.#db.pragma('shrink_memory') // a page that was read from the disk meanwhile may have been an older one
  }
}

/** Asked over a connection of its own, since one that writes is not told. */
function progressOf(file: string): Progress {
  const db = new Database(file, { timeout: 0 })
  try {
    return db.prepare<[], Progress>(LOOK).get() as Progress
  } finally {
    db.close()
  }
}

function numberAt(file: number, position: number): number {
  const bytes = Buffer.allocUnsafe(4)
  readSync(file, bytes, 0, 4, position)
  return bytes.readUInt32BE()
}
