// The calls of a connection that wait for their answers, by id.
//
// Not a Map. One from which as much is taken as is put in is copied into a new table again and again, and the old one keeps
// what it had and points to the new. When the collector has moved one of them among what lives long, each of the following
// is kept because of the one before it, with all requests that were in it: an eighth of what a gateway did was copying those.

/** A power of two. */
const SLOTS = 32_768
const IDS = 0x1_0000_0000

/** Calls a table holds at most: fewer than slots, so that a free one is near. */
export const MAX_CALLS = 20_000

/** A slot for each call, and an id that says which: a uint32, not given again before all others were. */
export class CallTable<Call> {
  readonly #slots: ({ readonly id: number; readonly call: Call } | undefined)[] = new Array(SLOTS).fill(undefined)
  #nextId = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  /** Holds the call and returns its id. @throws Error when it is full */
  add(call: Call): number {
    if (this.#size >= MAX_CALLS) throw new Error('too many calls are under way')
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

  /** False when it was not held. */
  delete(id: number): boolean {
    if (this.get(id) === undefined) return false
    this.#slots[id % SLOTS] = undefined
    this.#size -= 1
    return true
  }

  /** All of them, as they were added unless ids have started again in between. */
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
