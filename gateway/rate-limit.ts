import type { Rate } from './limits.js'

/**
 * Counts requests per key in windows of fixed length. Memory is bounded: the counts go when their window ends, and
 * beyond `maxKeys` the oldest key is forgotten, so a flood of keys makes the limit laxer and never locks anybody out.
 */
export class RateLimiter {
  readonly #rate: Rate
  readonly #maxKeys: number
  #counts = new Map<string, number>()
  #windowEndMs = 0

  constructor(rate: Rate, maxKeys: number) {
    this.#rate = rate
    this.#maxKeys = maxKeys
  }

  /** Seconds until `key` may try again, at least 1; 0 when it may now. Counts nothing. */
  waitSeconds(key: string, now: number): number {
    this.#turnWindow(now)
    if ((this.#counts.get(key) ?? 0) < this.#rate.requests) return 0
    return Math.max(1, Math.ceil((this.#windowEndMs - now) / 1000))
  }

  count(key: string, now: number): void {
    this.#turnWindow(now)
    const count = this.#counts.get(key)
    if (count === undefined && this.#counts.size >= this.#maxKeys) this.#forgetOldest()
    this.#counts.set(key, (count ?? 0) + 1)
  }

  #turnWindow(now: number): void {
    const windowMs = this.#rate.seconds * 1000
    const isOver = now >= this.#windowEndMs || now < this.#windowEndMs - windowMs // the clock may jump back
    if (!isOver) return
    this.#windowEndMs = now + windowMs
    if (this.#counts.size > 0) this.#counts = new Map()
  }

  #forgetOldest(): void {
    const oldest = this.#counts.keys().next()
    if (!oldest.done) this.#counts.delete(oldest.value)
  }
}
