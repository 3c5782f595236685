import { MAX_REQUESTS, type RequestCount } from '../token-store.js'

/** With this many, those whose windows end first are forgotten: what is lost is laxer limits until then. */
const MAX_KEYS = 200_000

/**
 * Counts of requests in memory. Whoever shares them asks the one process that serves a SQLite database, and they are not
 * worth a write to disk.
 */
export class RequestCounts {
  /** Of each window, by its end. */
  readonly #windows = new Map<number, Map<string, number>>()
  #size = 0

  /** What is taken back to 0 leaves nothing: attempts that were refused must not push out the failures of others. */
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

  removeEnded(endedBeforeMs: number): void {
    for (const windowEndMs of this.#windows.keys()) if (windowEndMs < endedBeforeMs) this.#forget(windowEndMs)
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
