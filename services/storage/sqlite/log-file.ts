// The write-ahead log as a file: flushing it is what makes a commit survive a power cut. SQLite would do it inside COMMIT, and
// block the event loop for as long as the disk takes. Here a thread of libuv's flushes what was committed, while reads and
// further writes go on.
import { closeSync, fdatasync, openSync, readSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { StoreUnavailable } from '../store-unavailable.js'
import type { DatabaseFile, Flush } from './database-file.js'
import { type Connection, withoutWaiting } from './open.js'

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
