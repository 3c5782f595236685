// Whether anybody else wrote to a database: what makes it safe to keep what was read from it.
//
// A connection sees its own writes, so it can take out of its keeping what they alter. What another process wrote (the
// command line, a second server) shows in `data_version`. That is asked at the end of the turn of the event loop in which
// a read came, once for all reads of the turn: every request of theirs had arrived by then, so whatever was acknowledged
// before one of them was sent is seen by it.
import { endOfTurn, presentEnd } from './end-of-turn.js'
import type { Connection } from './open.js'

export class ForeignWrites {
  readonly #db: Connection
  readonly #dataVersion: () => unknown
  readonly #onWritten: () => void
  readonly #taken = Promise.resolve()
  #seenVersion: unknown
  /** The end of a turn at which the look was taken. */
  #lookedAt: number | undefined
  /** The look at the end of this turn. */
  #look: Promise<void> | undefined

  /** `onWritten` is called when somebody else has written since the last look. */
  constructor(db: Connection, onWritten: () => void) {
    this.#db = db
    const statement = db.prepare('PRAGMA data_version').pluck()
    this.#dataVersion = () => statement.get()
    this.#onWritten = onWritten
    this.#seenVersion = this.#dataVersion()
  }

  /**
   * Fulfils when the look was taken; rejects with what the driver throws. What is kept is good until the turn ends. A read
   * that goes on from another one, of any database, waits for no further turn.
   */
  look(): Promise<void> {
    if (presentEnd() === undefined) {
      this.#look ??= endOfTurn().then(() => {
        this.#look = undefined
        this.#lookAtEnd()
      })
      return this.#look
    }
    try {
      this.#lookAtEnd()
      return this.#taken
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Takes the look at once. What is kept is good until the turn ends; for a transaction that has begun to write, until that
   * ends, since nobody else writes meanwhile. @throws what the driver throws
   */
  lookNow(): void {
    const version = this.#dataVersion()
    if (version === this.#seenVersion) return
    this.#onWritten()
    this.#seenVersion = version
  }

  /** Once in each end of a turn, unless the database was closed since. @throws what the driver throws */
  #lookAtEnd(): void {
    const end = presentEnd()
    if (this.#lookedAt === end && this.#db.open) return
    this.lookNow()
    this.#lookedAt = end
  }
}
