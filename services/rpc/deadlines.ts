// Deadlines of calls, nearly all of which end long before: one timer looks at all of them, and to add one or to end one costs
// next to nothing.

/** How often they are looked at, in ms. */
const LOOK_EVERY_MS = 10

export interface Deadline {
  /** By performance.now(). */
  readonly atMs: number
  /** It has passed, or what it was for has ended before. */
  isOver: boolean
}

interface Waiting extends Deadline {
  readonly onPassed: () => void
}

export class Deadlines {
  #waiting: Waiting[] = []
  #looking: NodeJS.Timeout | undefined

  /** Calls `onPassed` once, at `atMs` by performance.now() or soon after, unless `isOver` of the result was set before. */
  add(atMs: number, onPassed: () => void): Deadline {
    const deadline = { atMs, onPassed, isOver: false }
    this.#waiting.push(deadline)
    this.#looking ??= setInterval(() => this.#look(), LOOK_EVERY_MS)
    return deadline
  }

  /**
   * A deadline passes only when everything that arrived before it has been read. Otherwise a process that was stalled for
   * seconds would fail calls, exchanges among them, whose answers have already arrived.
   */
  #look(): void {
    this.#waiting = this.#waiting.filter(({ isOver }) => !isOver)
    if (this.#waiting.length === 0) {
      clearInterval(this.#looking)
      this.#looking = undefined
      return
    }
    const now = performance.now()
    setImmediate(() => {
      for (const deadline of this.#waiting) {
        if (deadline.isOver || deadline.atMs > now) continue
        deadline.isOver = true
        deadline.onPassed()
      }
    })
  }
}
