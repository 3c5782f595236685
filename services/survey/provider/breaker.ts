/** So many failures in a row open it. */
export const FAILURES_THAT_OPEN = 5
/** While it is open, one call in this time finds out whether the provider answers again. */
export const TRIED_EVERY_MS = 2_000
/** A failure longer ago says nothing about now, so that it does not stay open where nobody calls. */
const FORGOTTEN_AFTER_MS = 60_000

/** Keeps callers from waiting for a provider that does not answer: open, it lets only one through now and then. */
export class Breaker {
  readonly #elapsed: () => number
  /** In a row. */
  #failures = 0
  #lastFailureMs = 0
  /** When it was opened, or last let a call through since. */
  #lastTryMs = 0

  /** @param elapsed ms since some moment */
  constructor(elapsed = () => performance.now()) {
    this.#elapsed = elapsed
  }

  get isOpen(): boolean {
    return this.#failures >= FAILURES_THAT_OPEN && this.#elapsed() - this.#lastFailureMs < FORGOTTEN_AFTER_MS
  }

  /** Whether a call may be made now. It is followed by `answered`, `failed`, or neither if its caller went away. */
  letsThrough(): boolean {
    if (!this.isOpen) return true
    if (this.#elapsed() - this.#lastTryMs < TRIED_EVERY_MS) return false
    this.#lastTryMs = this.#elapsed()
    return true
  }

  answered(): void {
    this.#failures = 0
  }

  failed(): void {
    const now = this.#elapsed()
    if (now - this.#lastFailureMs >= FORGOTTEN_AFTER_MS) this.#failures = 0
    this.#failures += 1
    this.#lastFailureMs = now
    if (this.#failures === FAILURES_THAT_OPEN) this.#lastTryMs = now
  }
}
