import { MAX_REQUESTS, type RequestCount } from '../token-store.js'

/** At this number the counts of the window that ends first are dropped, which only makes limits laxer until then. */
const MAX_KEYS = 200_000

/**
 * Counts of requests, in memory: everybody who shares them asks the one process that serves the SQLite database, and they
 * are not worth a write to disk.
 */
export class RequestCounts {
  /** The counts of each window, by its end. */
  readonly #windows = new Map<number, Map<string, number>>()
  #size = 0

  /** A count taken back to 0 is removed: refused attempts must not push out the failures of others. */
  add({ key, windowEndMs, requests }: RequestCount): number {
    const known = this.#windows.get(windowEndMs)?.get(key)
    const total = Math.min(Math.max(0, (known ?? 0) + requests), MAX_REQUESTS)
    if (total === 0) this.#remove(windowEndMs, key)
    else {
      if (known === undefined) this.#makeRoom()
      const counts = this.#windows.get(windowEndMs) ?? new Map<string, number>()
      this.#windows.set(windowEndMs, counts.set(key, total))
    }
    return total
  }

  /** Returns how many. */
  removeEnded(endedBeforeMs: number): number {
    const before = this.#size
    for (const windowEndMs of this.#windows.keys()) if (windowEndMs < endedBeforeMs) this.#forget(windowEndMs)
    return before - this.#size
  }

  #makeRoom(): void {
    if (this.#size >= MAX_KEYS) this.#forget(Math.min(...this.#windows.keys()))
    this.#size += 1
  }

  #remove(windowEndMs: number, key: string): void {
    const counts = this.#windows.get(windowEndMs)
    if (!counts?.delete(key)) return
    this.#size -= 1
    if (counts.size === 0) this.#windows.delete(windowEndMs)
  }

  #forget(windowEndMs: number): void {
    this.#size -= this.#windows.get(windowEndMs)?.size ?? 0
    this.#windows.delete(windowEndMs)
  }
}
