import type { Rate } from '../limits.js'

/** Where a key stands in the current window. */
export interface Allowance {
  /** Requests a window allows. */
  readonly limit: number
  /** How many of them are left. */
  readonly remaining: number
  /** Seconds until the window ends, at least 1. */
  readonly resetSeconds: number
}

/** What one key has used in one window. */
export interface Count {
  readonly key: string
  readonly windowEndMs: number
  /** Requests this process admitted. */
  here: number
  /** How many of them have been reported to the other gateways. */
  reported: number
  /** Requests the other gateways admitted, as far as this process knows. */
  elsewhere: number
}

/**
 * Counts requests per key in windows of fixed length, which begin at the same moments in every process. Memory is
 * bounded: counts are dropped when their window ends, and when there are `maxKeys` of them, so a flood of keys makes the
 * limit laxer and never locks anybody out.
 */
export class WindowCounter {
  readonly #rate: Rate
  readonly #maxKeys: number
  readonly #isShared: boolean
  #counts = new Map<string, Count>()
  #unreported = new Set<Count>()
  #windowEndMs = 0

  constructor(rate: Rate, maxKeys: number, isShared: boolean) {
    this.#rate = rate
    this.#maxKeys = maxKeys
    this.#isShared = isShared
  }

  /** Counts nothing. */
  allowance(key: string, now: number): Allowance {
    const left = this.#left(key, now)
    return {
      limit: this.#rate.requests,
      remaining: Math.max(0, left),
      resetSeconds: Math.max(1, Math.ceil((this.#windowEndMs - now) / 1000)),
    }
  }

  /** Counts one request if the key has any left, and returns whether it had. */
  take(key: string, now: number): boolean {
    this.#enterWindow(now)
    const count = this.#countOf(key)
    if (count.here + count.elsewhere >= this.#rate.requests) return false
    count.here += 1
    if (this.#isShared && count.here === count.reported + 1) this.#unreported.add(count)
    return true
  }

  /** Whether the key has any left. Counts nothing. */
  has(key: string, now: number): boolean {
    return this.#left(key, now) > 0
  }

  /** At most `max` counts that grew since they were last taken. The caller sets `reported`, or gives them back. */
  takeUnreported(max: number): Count[] {
    const taken = [...this.#unreported.values()].slice(0, max)
    for (const count of taken) this.#unreported.delete(count)
    return taken
  }

  giveBack(counts: readonly Count[]): void {
    for (const count of counts) if (count.windowEndMs === this.#windowEndMs) this.#unreported.add(count)
  }

  /** Negative when the gateways together admitted more than the limit. */
  #left(key: string, now: number): number {
    this.#enterWindow(now)
    const count = this.#counts.get(key)
    return this.#rate.requests - (count ? count.here + count.elsewhere : 0)
  }

  #countOf(key: string): Count {
    const known = this.#counts.get(key)
    if (known) return known
    if (this.#counts.size >= this.#maxKeys) this.#forgetAll()
    const count = { key, windowEndMs: this.#windowEndMs, here: 0, reported: 0, elsewhere: 0 }
    this.#counts.set(key, count)
    return count
  }

  #enterWindow(now: number): void {
    const windowMs = this.#rate.seconds * 1000
    if (now < this.#windowEndMs && now >= this.#windowEndMs - windowMs) return
    this.#windowEndMs = (Math.floor(now / windowMs) + 1) * windowMs
    this.#forgetAll()
  }

  #forgetAll(): void {
    if (this.#counts.size > 0) this.#counts = new Map()
    this.#unreported.clear()
  }
}
