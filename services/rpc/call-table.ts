// The pending calls of a connection, by id.
//
// Not a Map. A Map with as many deletions as insertions is copied into a new table again and again, and the old table keeps its
// entries and points to the new one. Once the garbage collector has moved one table to the old generation, it keeps every later
// table alive, with all requests that were in them: a gateway spent an eighth of its time copying those.

/** A power of two. */
const SLOTS = 32_768
const IDS = 0x1_0000_0000

/** Most calls that a table holds: fewer than slots, so that a free slot is near. */
export const MAX_CALLS = 20_000

/** One slot per call. The id, a uint32, says which, and is not reused before all others have been. */
export class CallTable<Call> {
  readonly #slots: ({ readonly id: number; readonly call: Call } | undefined)[] = new Array(SLOTS).fill(undefined)
  #nextId = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  /** Stores the call and returns its id. @throws Error when the table is full */
  add(call: Call): number {
    if (this.#size >= MAX_CALLS) throw new Error('too many calls in flight')
    while (this.#slots[this.#nextId % SLOTS] !== undefined) this.#advance()
    const id = this.#nextId
    this.#slots[id % SLOTS] = { id, call }
    this.#size += 1
    this.#advance()
    return id
  }

  get(id: number): Call | undefined {
    const held = this.#slots[id % SLOTS]
    return held?.id === id ? held.call : undefined
  }

  /** False when there is no call with this id. */
  delete(id: number): boolean {
    if (this.get(id) === undefined) return false
    this.#slots[id % SLOTS] = undefined
    this.#size -= 1
    return true
  }

  /** All calls, in the order they were added unless ids have wrapped around in between. */
  calls(): Call[] {
    return this.#slots
      .flatMap((held) => (held ? [held] : []))
      .sort((a, b) => a.id - b.id)
      .map(({ call }) => call)
  }

  #advance(): void {
    this.#nextId = (this.#nextId + 1) % IDS
  }
}
