// The files beneath SQLite: the write-ahead log, whose flush makes a commit survive a power cut, and the database, into which
// checkpoints copy the log. SQLite would flush them inside COMMIT, and block the event loop for as long as the disk takes. Here a
// thread of libuv's flushes what was written, while reads go on; and what a failed flush may have lost is written again.
import { closeSync, fdatasync, openSync, readSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Statement } from 'better-sqlite3'
import { StoreUnavailable } from '../store-unavailable.js'
import { Database } from './driver.js'
import { type Connection, withoutWaiting } from './open.js'

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

const REWRITE_BYTES = 64 * 1024
const REWRITE_EVERY_MS = 250 // the whole log each time
const LOOK_EVERY_MS = 20

export class LogFile {
  readonly #db: Connection
  readonly #database: DatabaseFile
  readonly #flush: Flush
  /** Undefined for a database that is not a file. The log is the same file until the last connection closes. */
  #descriptor: number | undefined

  /**
   * From here on SQLite no longer flushes the commits of this connection; it still orders its writes and does checkpoints as
   * before.
   * @throws StoreUnavailable
   */
  constructor(db: Connection, database: DatabaseFile, flush: Flush = fdatasync) {
    this.#db = db
    this.#database = database
    this.#flush = flush
    if (db.memory) return
    const [main] = db.pragma('database_list') as { readonly file: string }[] // SQLite's path, its links resolved
    try {
      this.#descriptor = openSync(`${main?.file}-wal`, 'r+')
    } catch (error) {
      throw new StoreUnavailable(error)
    }
    db.pragma('synchronous = NORMAL')
  }

  /** Calls back when all that was committed before is on disk, or with why it may not be: then nothing after it is either. */
  flush(done: (error: Error | null) => void): void {
    if (this.#descriptor === undefined) setImmediate(done, null)
    else this.#flush(this.#descriptor, done)
  }

  /**
   * Called after a failed flush, of the log or of the database, when no transaction is open; true when all that was committed
   * is on disk after all. What a failed flush should have written counts as clean to the kernel and will not be written again,
   * so a power cut would leave a hole beneath later commits. So the same bytes are written again and flushed, first those of
   * the log, then those that were copied from it, under the write lock, which is kept from the first attempt to the last that
   * failed. Then everything is copied into the database and the log restarts, because a file system may keep blocks unreadable
   * that it once failed to write. Tries until it succeeds or `isGivenUp`. Never rejects.
   */
  async repair(isGivenUp: () => boolean): Promise<boolean> {
    let isWhole = false
    while (!isGivenUp()) {
      try {
        if (!isWhole) await this.#writeAgain()
        isWhole = true
        if (await this.#begunAnew()) return true
      } catch {
        isWhole = false
      }
      await sleep(isWhole ? LOOK_EVERY_MS : REWRITE_EVERY_MS, undefined, { ref: false })
    }
    if (this.#db.inTransaction) this.#db.exec('ROLLBACK')
    return false
  }

  /** On failure the lock is kept, if it was taken. */
  async #writeAgain(): Promise<void> {
    if (!this.#db.inTransaction) withoutWaiting(this.#db, () => this.#db.exec('BEGIN IMMEDIATE'))
    this.#rewrite()
    await flushed(this)
    if (this.#descriptor !== undefined) this.#database.copyAgain(this.#descriptor)
    await flushed(this.#database)
    this.#db.exec('ROLLBACK')
  }

  /** False while somebody still reads what was there before, as a backup does. */
  async #begunAnew(): Promise<boolean> {
    const busy = withoutWaiting(this.#db, () => this.#db.pragma('wal_checkpoint(TRUNCATE)', { simple: true }))
    if (busy !== 0) return false
    await flushed(this)
    return true
  }

  close(): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor)
    this.#descriptor = undefined
  }

  #rewrite(): void {
    if (this.#descriptor === undefined) return
    const bytes = Buffer.allocUnsafe(REWRITE_BYTES)
    let position = 0
    for (;;) {
      const length = readSync(this.#descriptor, bytes, 0, bytes.length, position)
      if (length === 0) return
      position += writeSync(this.#descriptor, bytes, 0, length, position)
    }
  }
}

function flushed(file: LogFile | DatabaseFile): Promise<void> {
  return new Promise((resolve, reject) => {
    file.flush((error) => (error ? reject(error) : resolve()))
  })
}
