// The write-ahead log as a file: flushing it is what makes a commit outlast a power cut. SQLite would do it inside COMMIT,
// and hold the event loop for as long as the disk takes. Here a thread of libuv's flushes what was committed, and reads
// and further writes go on meanwhile.
import { closeSync, fdatasync, openSync, readSync, writeSync } from 'node:fs'
import { StoreUnavailable } from '../store/store-unavailable.js'
import { BUSY_TIMEOUT_MS, type Connection } from './open.js'

/** Flushes a file as fs.fdatasync does. */
export type Flush = (descriptor: number, done: (error: Error | null) => void) => void

const REWRITE_BYTES = 64 * 1024

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
   * After a flush that failed; true when all that was committed is on disk after all. What such a flush should have brought
   * counts as clean to the kernel and will not be written again, so that a power cut would leave a hole under later
   * commits. So the same bytes are written once more and flushed, while nobody else can write; then all is copied into the
   * database and the log begins anew, because a file system may keep blocks that it once failed to write unreadable.
   * To be called outside any transaction, and nothing is to be written until it has answered. Never rejects.
   */
  async repair(): Promise<boolean> {
    try {
      this.#db.exec('PRAGMA busy_timeout = 0')
      this.#db.exec('BEGIN IMMEDIATE')
      try {
        this.#rewrite()
        await this.#flushed()
      } finally {
        if (this.#db.inTransaction) this.#db.exec('ROLLBACK')
      }
      const copied = this.#db.prepare<[], { busy: number }>('PRAGMA wal_checkpoint(TRUNCATE)').get()
      if (copied?.busy !== 0) return false
      await this.#flushed()
      return true
    } catch {
      return false
    } finally {
      if (this.#db.open) this.#db.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`)
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
