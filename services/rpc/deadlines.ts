// Deadlines of calls, nearly all of which end long before. A timer of its own for each would cost a fiftieth of a request
// that is answered from memory, and in a server, where every call has another time left, a list for each of those times.
//
// A deadline passes when all that came before it has been read: a process that stood still for seconds would otherwise fail
// calls, exchanges among them, whose answers lie in front of it.

/** Half of how late a deadline may be told of, in ms: one look finds it over, and the next tells. */
const LOOK_EVERY_MS = 10

export interface Deadline {
  /** By performance.now(). */
  readonly atMs: number
}

interface Waiting extends Deadline {
  readonly onPassed: () => void
  previous: Waiting | undefined
  next: Waiting | undefined
  isOver: boolean
}

export class Deadlines {
  /** A chain, from the one that was added last. */
  #last: Waiting | undefined
  #looking: NodeJS.Timeout | undefined
  /** What had come by then has been read, by performance.now(). */
  #readUntilMs = Number.NEGATIVE_INFINITY

  /** Calls `onPassed` once, when performance.now() says `atMs` or up to 20 ms later, unless it was taken out before. */
  add(atMs: number, onPassed: () => void): Deadline {
    const added: Waiting = { atMs, onPassed, previous: this.#last, next: undefined, isOver: false }
    if (this.#last) this.#last.next = added
    this.#last = added
    this.#looking ??= setInterval(() => this.#look(), LOOK_EVERY_MS)
    return added
  }

  /** Takes it out; false, and without effect, when it has passed or was taken out before. */
  delete(deadline: Deadline): boolean {
    const over = deadline as Waiting
    const { previous, next } = over
    if (over.isOver) return false
    if (previous) previous.next = next
    if (next) next.previous = previous
    else this.#last = previous
    over.isOver = true
    // One that has become old must not keep those alive for the collector which it was beside.
    over.previous = undefined
    over.next = undefined
    return true
  }

  #look(): void {
    const now = performance.now()
    setImmediate(() => {
      this.#readUntilMs = now
    })
    const passed: Waiting[] = []
    for (let waiting = this.#last; waiting; waiting = waiting.previous) {
      if (waiting.atMs <= this.#readUntilMs) passed.push(waiting)
    }
    for (const waiting of passed.reverse()) {
      if (waiting.isOver) continue // the one before took it out
      this.delete(waiting)
      waiting.onPassed()
    }
    if (this.#last) return
    clearInterval(this.#looking)
    this.#looking = undefined
  }
}
