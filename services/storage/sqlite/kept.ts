// What was read from a database, kept until it may have changed. It is never stale:
// - Our own writes run on the same connection. They forget what they alter in the middle of their transaction, and no read runs
//   between that and the COMMIT, since both are synchronous on one thread.
// - Writes by other processes (the command line, a second server) show in SQLite's `data_version`. It is asked for once for all
//   lookups of one callback of the event loop: whatever they are for was read from its socket before that callback began.
import { BoundedMap } from '../bounded-map.js'
import type { Connection } from './open.js'

/** Makes a question: has another connection written since it was last asked? */
export function foreignWrites(db: Connection): () => boolean {
  const dataVersion = db.prepare<[], number>('PRAGMA data_version').pluck()
  let seen = dataVersion.get()
  let isAsked = false
  const askAgain = () => {
    isAsked = false
  }
  return () => {
    if (isAsked) return false
    isAsked = true
    process.nextTick(askAgain) // which runs before anything else is read
    const version = dataVersion.get()
    const hasChanged = version !== seen
    seen = version
    return hasChanged
  }
}

/** Values that any write may alter. Reading the same again returns the same object, so that callers can keep what they made of it. */
export class Kept<Value extends object> {
  readonly #haveOthersWritten: () => boolean
  readonly #values: BoundedMap<Value>

  /** `maxBytes`: bound on the sizes of all values kept. */
  constructor(db: Connection, maxBytes: number) {
    this.#haveOthersWritten = foreignWrites(db)
    this.#values = new BoundedMap(maxBytes)
  }

  /** What `read` last returned for this key; it is called again if that was forgotten. `size`: what a value takes, in bytes. */
  find<Found extends Value>(
    key: string,
    read: () => Found | undefined,
    size: (found: Found) => number,
  ): Found | undefined {
    if (this.#haveOthersWritten()) this.forgetAll()
    const known = this.#values.get(key)
    if (known !== undefined) return known as Found
    const found = read()
    if (found !== undefined) this.#values.keep(key, found, size(found))
    return found
  }

  /** Called by each write, inside its transaction. */
  forgetAll(): void {
    this.#values.forgetAll()
  }
}
