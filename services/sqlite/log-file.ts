// The write-ahead log as a file: flushing it is what makes a commit outlast a power cut. SQLite would do it inside COMMIT,
// and hold the event loop for as long as the disk takes. Here a thread of libuv's flushes what was committed, and reads
// and further writes go on meanwhile.
import { closeSync, fdatasync, openSync, readSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { StoreUnavailable } from '../store/store-unavailable.js'
import type { DatabaseFile, Flush } from './database-file.js'
import { type Connection, withoutWaiting } from './open.js'

const REWRITE_BYTES = 64 * 1024
const REWRITE_EVERY_MS = 250 // the whole log each time
const LOOK_EVERY_MS = 20

export class LogFile {
  readonly #db: Connection
  readonly #database: DatabaseFile
  readonly #flush: Flush
  /** Undefined for a database that is no file. The log is the same file until the last connection closes. */
  #descriptor: number | undefined

  /**
   * From here on SQLite does not flush the commits of this connection; the order of its writes and its checkpoints stay.
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
   * After a flush that failed, of the log or of the database, when no transaction is open; true when all that was committed is
   * on disk after all. What such a flush should have brought counts as clean to the kernel and will not be written again, so
   * that a power cut would leave a hole under later commits. So the same bytes are written once more and flushed, those of the
   * log and then those that were copied from it, under the lock, which is kept from the first try to the last that failed; then
   * all is copied into the database and the log begins anew, because a file system may keep blocks that it once failed to write
   * unreadable. Tries until it has worked, or until `isGivenUp`. Never rejects.
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

  /** When it fails the lock is kept, if it was had. */
  async #writeAgain(): Promise<void> {
    if (!this.#db.inTransaction) withoutWaiting(this.#db, () => this.#db.exec('BEGIN IMMEDIATE'))
    this.#rewrite()
    await flushed(this)
    if (this.#descriptor !== undefined) this.#database.copyAgain(this.#descriptor)
    await flushed(this.#database)
    this.#db.exec('ROLLBACK')
  }

  /** False while somebody reads what was there before, as a backup does. */
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
