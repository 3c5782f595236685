// Whether anybody else wrote to a database: this is what makes it safe to keep what was read from it.
//
// A connection sees its own writes, so its owner can drop what they alter. What another process wrote (the command line, a
// second server) shows in `data_version`. That is read at the end of the turn of the event loop in which a read came, once for
// all reads of the turn. All their requests have arrived by then, so each read sees whatever was acknowledged before its
// request was sent.
import { endOfTurn, presentEnd } from '../../../event-loop/end-of-turn.js'
import type { Connection } from './open.js'

export class ForeignWrites {
  readonly #db: Connection
  readonly #dataVersion: () => unknown
  readonly #onWritten: () => void
  #seenVersion: unknown
  /** The look that waits for the end of this turn. */
  #waiting: Promise<void> | undefined
  /** The last end of a turn that had a look, and that look, taken or failed. */
  #lookedAt: number | undefined
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
   * Fulfils when the look was taken; rejects with what the driver throws, for all reads of the turn alike. What is kept is good
   * until the turn ends. A read that follows from another one, of any database, waits for no further turn.
   */
  look(): Promise<void> {
    const end = presentEnd()
    if (end === undefined) {
      this.#waiting ??= endOfTurn().then(() => {
        this.#waiting = undefined
        return this.look()
      })
      return this.#waiting
    }
    if (this.#look === undefined || this.#lookedAt !== end || !this.#db.open) {
      this.#lookedAt = end
      this.#look = new Promise((resolve) => {
        this.lookNow()
        resolve()
      })
    }
    return this.#look
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
}
