// The database file beneath SQLite: what checkpoints copied into it is flushed here, and copied again after a failed flush.
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

/** Layout of the log in SQLite's file format: bytes of its header, where the page size is in it, bytes of each page's header. */
const HEADER_BYTES = 32
const PAGE_SIZE_AT = 8
const PAGE_HEADER_BYTES = 24

const LOOK = 'PRAGMA wal_checkpoint(NOOP)'

export class DatabaseFile {
  readonly #db: Connection
  readonly #flush: Flush
  readonly #look: Statement<[], Progress>
  /** Never closed: that would release the locks SQLite holds on the file. */
  #descriptor: number | undefined

  constructor(db: Connection, flush: Flush = fdatasync) {
    this.#db = db
    this.#flush = flush
    this.#look = db.prepare(LOOK)
  }

  progress(): Progress {
    return this.#look.get() ?? { log: 0, checkpointed: 0 }
  }

  /** Opens the file to flush: its descriptor reports what fails from now on. @throws when it cannot be opened. */
  open(): number {
    this.#descriptor ??= openSync(this.#db.name, 'r+')
    return this.#descriptor
  }

  /** Calls back when all that was copied before is on disk, or with why it may not be: it is then safe in the log only. */
  flush(done: (error: Error | null) => void): void {
    if (this.#descriptor === undefined) setImmediate(done, null)
    else this.#flush(this.#descriptor, done)
  }

  /**
   * Writes once more all that checkpoints have copied, from `log`, which must be on disk; the caller holds the write lock.
   * After a failed flush, those pages count as clean to the kernel and as copied to SQLite: they would never be written again,
   * and be lost when the log restarts. A page with a newer version in the log, beyond what was copied, is left to SQLite.
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
    this.#db.pragma('shrink_memory') // a page read from the disk meanwhile may have been an older version
  }
}

/** Asked over a connection of its own, since one that is writing is not told. */
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
