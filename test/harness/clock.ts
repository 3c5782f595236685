const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

export interface Duration {
  readonly days?: number
  readonly hours?: number
  readonly minutes?: number
  readonly seconds?: number
  readonly ms?: number
}

export function toMs({ days = 0, hours = 0, minutes = 0, seconds = 0, ms = 0 }: Duration): number {
  return days * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND + ms
}

/** A clock that stands still until a test moves it. It starts in the future, so that no cookie is born expired. */
export class Clock {
  #nowMs = Date.UTC(2040, 0, 1)
  #elapsedMs = 0

  readonly now = (): number => this.#nowMs
  /** For how long tests have let time pass. */
  readonly elapsed = (): number => this.#elapsedMs

  /** Lets time pass; a negative duration sets the clock back. */
  advance(duration: Duration): void {
    this.#elapsedMs += Math.max(0, toMs(duration))
    this.set(duration)
  }

  /** Sets the clock by so much, while no time passes. */
  set(duration: Duration): void {
    this.#nowMs += toMs(duration)
  }
}
