// Which process may grant leases on a database: the one that has locked a file beside it. The lock goes with the process,
// whatever becomes of it, and SQLite takes it in the way it takes its own. The file stays, empty: where there is none, nobody
// has ever granted a lease.
import { closeSync, existsSync, openSync, realpathSync, statSync } from 'node:fs'
import { Database } from './driver.js'
import { type Connection, isBusy } from './open.js'

export class LeaseLock {
  readonly #database: Connection
  readonly #leaseMs: number
  readonly #look: () => void
  readonly #file: string
  #lock: Connection | undefined
  /** Its inode. */
  #lockedFile: number | undefined
  /** By performance.now(). */
  #takenAtMs: number | undefined
  #isClosed = false
  #hasWarned = false

  /**
   * A lease lasts `leaseMs`; `look` hears what other processes have written to the database. The lock is let go by `close`, or
   * when the process ends.
   */
  constructor(database: Connection, leaseMs: number, look: () => void) {
    this.#database = database
    this.#leaseMs = leaseMs
    this.#look = look
    this.#file = database.memory ? database.name : `${realpathSync(database.name)}-lease`
  }

  /** Whether this process may grant leases, from now until it closes this. */
  take(): boolean {
    if (this.#isHeld()) return true
    if (this.#isClosed || (!this.#database.memory && !this.#tryLock())) return false
    this.#takenAtMs = performance.now()
    return true
  }

  /** Not of a file that was moved or deleted since: another process would lock another one. */
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
   * For how many ms from now a lease may be in force that another process has granted. Those of the process that had the lock
   * before have ended when one has that it granted at its very end.
   */
  strangersMs(): number {
    if (this.#database.memory || (this.#takenAtMs === undefined && !existsSync(this.#file))) return 0
    return this.take() ? Math.max(0, (this.#takenAtMs ?? 0) + this.#leaseMs - performance.now()) : this.#leaseMs
  }

  /** Lets it go for good. */
  close(): void {
    this.#isClosed = true
    this.#letGo()
  }

  #letGo(): void {
    this.#takenAtMs = undefined
    this.#lock?.close()
    this.#lock = undefined
  }

  /** False when another process has it, or when it cannot be had: then nobody is granted a lease. */
  #tryLock(): boolean {
    try {
      makeFile(this.#file)
      this.#lock = new Database(this.#file, { timeout: 0 })
      this.#lock.pragma('journal_mode = MEMORY') // which would be a file of its own
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

/** undefined when it is not there, or cannot be asked. */
function inodeOf(file: string): number | undefined {
  try {
    return statSync(file).ino
  } catch {
    return undefined
  }
}

/** For its owner alone. One that is there is not opened: to close it would let go what this process has locked of it. */
function makeFile(file: string): void {
  if (!existsSync(file)) closeSync(openSync(file, 'a', 0o600))
}
