// Which process may grant leases on a database: the one that has locked a file beside it. SQLite takes the lock as it takes its
// own, and the lock ends with the process, however that ends. The file stays, empty: where there is none, nobody has ever
// granted a lease.
import { closeSync, existsSync, openSync, realpathSync, statSync } from 'node:fs'
import { Database } from './driver.js'
import { type Connection, isBusy } from './open.js'

export class LeaseLock {
  readonly #database: Connection
  readonly #leaseMs: number
  readonly #look: () => void
  readonly #file: string
  #lock: Connection | undefined
  /** Inode of the locked file. */
  #lockedFile: number | undefined
  /** By performance.now(). */
  #takenAtMs: number | undefined
  #isClosed = false
  #hasWarned = false

  /**
   * A lease lasts `leaseMs`; `look` notices what other processes have written to the database. The lock is released by `close`,
   * or when the process ends.
   */
  constructor(database: Connection, leaseMs: number, look: () => void) {
    this.#database = database
    this.#leaseMs = leaseMs
    this.#look = look
    this.#file = database.memory ? database.name : `${realpathSync(database.name)}-lease`
  }

  /** Whether this process may grant leases, from now until `close`. */
  take(): boolean {
    if (this.#isHeld()) return true
    if (this.#isClosed || (!this.#database.memory && !this.#tryLock())) return false
    this.#takenAtMs = performance.now()
    return true
  }

  /** Not if the file was moved or deleted since: another process would lock a different one. */
  #isHeld(): boolean {
    if (this.#takenAtMs === undefined || this.#database.memory) return this.#takenAtMs !== undefined
    if (this.#lockedFile !== undefined && inodeOf(this.#file) === this.#lockedFile) return true
    this.#letGo()
    return false
  }

  look(): void {
    this.#look()
  }

  /**
   * For how many ms from now a lease granted by another process may be in force. The process that had the lock before may have
   * granted one at its very end; when that has ended, so have all its others.
   */
  strangersMs(): number {
    if (this.#database.memory || (this.#takenAtMs === undefined && !existsSync(this.#file))) return 0
    return this.take() ? Math.max(0, (this.#takenAtMs ?? 0) + this.#leaseMs - performance.now()) : this.#leaseMs
  }

  /** Releases the lock for good. */
  close(): void {
    this.#isClosed = true
    this.#letGo()
  }

  #letGo(): void {
    this.#takenAtMs = undefined
    this.#lock?.close()
    this.#lock = undefined
  }

  /** False when another process has the lock, or when it cannot be taken: nobody is then granted a lease. */
  #tryLock(): boolean {
    try {
      makeFile(this.#file)
      this.#lock = new Database(this.#file, { timeout: 0 })
      this.#lock.pragma('journal_mode = MEMORY') // the journal would otherwise be a file of its own
      this.#lock.exec('BEGIN EXCLUSIVE')
      this.#lockedFile = inodeOf(this.#file)
      return true
    } catch (error) {
      this.#letGo()
      if (!isBusy(error)) this.#warn(error)
      return false
    }
  }

  #warn(error: unknown): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    process.emitWarning(
      `${this.#file} cannot be locked: no leases are granted, and each revocation takes 0.2 s: ${error}`,
    )
  }
}

/** undefined when the file is missing or cannot be examined. */
function inodeOf(file: string): number | undefined {
  try {
    return statSync(file).ino
  } catch {
    return undefined
  }
}

/** Creates the file, for its owner only. An existing one is not opened: closing it would release this process's locks on it. */
function makeFile(file: string): void {
  if (!existsSync(file)) closeSync(openSync(file, 'a', 0o600))
}
