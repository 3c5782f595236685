// The write-ahead log as a file: flushing it is what makes a commit outlast a power cut. SQLite would do it inside COMMIT,
// and hold the event loop for as long as the disk takes. Here a thread of libuv's flushes what was committed, and reads
// and further writes go on meanwhile.
import { closeSync, fdatasync, openSync, readSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { StoreUnavailable } from '../store/store-unavailable.js'
import { type Connection, withoutWaiting } from './open.js'

/** Flushes a file as fs.fdatasync does. */
export type Flush = (descriptor: number, done: (error: Error | null) => void) => void

const REWRITE_BYTES = 64 * 1024
const REWRITE_EVERY_MS = 250 // the whole log each time
const LOOK_EVERY_MS = 20

export class LogFile {
  readonly #db: Connection
  readonly #flush: Flush
  /** Undefined for a database that is no file. The log is the same file until the last connection closes. */
  #descriptor: number | undefined

  /**
   * From here on SQLite does not flush the commits of this connection; the order of its writes and its checkpoints stay.
   * @throws StoreUnavailable
   */
  constructor(db: Connection, flush: Flush = fdatasync) {
    this.#db = db
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
   * After a flush that failed, when no transaction is open; true when all that was committed is on disk after all. What such
   * a flush should have brought counts as clean to the kernel and will not be written again, so that a power cut would leave
   * a hole under later commits. So the same bytes are written once more and flushed, under the lock, which is kept from the
   * first try to the last that failed; then all is copied into the database and the log begins anew, because a file system
   * may keep blocks that it once failed to write unreadable. Tries until it has worked, or until `isGivenUp`. Never rejects.
   */
  async repair(isGivenUp: () => boolean): Promise<boolean> {
    let isWhole = false
    while (!isGivenUp()) {
      isWhole ||= await this.#rewritten()
      if (isWhole && (await this.#begunAnew())) return true
      await sleep(isWhole ? LOOK_EVERY_MS : REWRITE_EVERY_MS, undefined, { ref: false })
    }
    if (this.#db.inTransaction) this.#db.exec('ROLLBACK')
    return false
  }

  /** False when it failed; then the lock is kept, if it was had. */
  async #rewritten(): Promise<boolean> {
    try {
      if (!this.#db.inTransaction) withoutWaiting(this.#db, () => this.#db.exec('BEGIN IMMEDIATE'))
      this.#rewrite()
      await this.#flushed()
      this.#db.exec('ROLLBACK')
      return true
    } catch {
      return false
    }
  }

  /** False while somebody reads what was there before, as a backup does. */
  async #begunAnew(): Promise<boolean> {
    try {
      const busy = withoutWaiting(this.#db, () => this.#db.pragma('wal_checkpoint(TRUNCATE)', { simple: true }))
      if (busy !== 0) return false
      await this.#flushed()
      return true
    } catch {
      return false
    }
  }

  close(): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor)
    this.#descriptor = undefined
  }

  #flushed(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.flush((error) => (error ? reject(error) : resolve()))
    })
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
