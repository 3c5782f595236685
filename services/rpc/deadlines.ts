// Deadlines of calls, nearly all of which end long before. A timer per call would cost a fiftieth of a request that is answered
// from memory, and in a server, where every call has a different time left, a timer list for each of those times.
//
// A deadline passes only when everything that arrived before it has been read. Otherwise a process that was stalled for seconds
// would fail calls, exchanges among them, whose answers have already arrived.

/** Interval between checks, in ms. A deadline is reported up to two of them late: one finds it over, the next reports it. */
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
  /** A linked list, starting at the deadline added last. */
  #last: Waiting | undefined
  #looking: NodeJS.Timeout | undefined
  /** Everything that arrived up to this time, by performance.now(), has been read. */
  #readUntilMs = Number.NEGATIVE_INFINITY

  /** Calls `onPassed` once, at `atMs` by performance.now() or up to 20 ms later, unless the deadline was deleted before. */
  add(atMs: number, onPassed: () => void): Deadline {
    const added: Waiting = { atMs, onPassed, previous: this.#last, next: undefined, isOver: false }
    if (this.#last) this.#last.next = added
    this.#last = added
    this.#looking ??= setInterval(() => this.#look(), LOOK_EVERY_MS)
    return added
  }

  /** Removes the deadline. False, and without effect, when it has passed or was removed before. */
  delete(deadline: Deadline): boolean {
    const over = deadline as Waiting
    const { previous, next } = over
    if (over.isOver) return false
    if (previous) previous.next = next
    if (next) next.previous = previous
    else this.#last = previous
    over.isOver = true
    // Once the garbage collector has moved it to the old generation, it must not keep its former neighbours alive.
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
      if (waiting.isOver) continue // removed by an earlier onPassed
      this.delete(waiting)
      waiting.onPassed()
    }
    if (this.#last) return
    clearInterval(this.#looking)
    this.#looking = undefined
  }
}
