import type { RequestCount } from '../token-store.js'

/** With this many, all are forgotten: what is lost is laxer limits for one window. */
const MAX_KEYS = 200_000

/**
 * Counts of requests in memory. Whoever shares them asks the one process that serves a SQLite database, and they are not
 * worth a write to disk.
 */
export class RequestCounts {
  readonly #byKey = new Map<string, { windowEndMs: number; requests: number }>()

  add({ key, windowEndMs, requests }: RequestCount): number {
    const known = this.#byKey.get(key)
    if (known && known.windowEndMs > windowEndMs) return 0
    if (known?.windowEndMs === windowEndMs) {
      known.requests = Math.max(0, known.requests + requests)
      return known.requests
    }
    if (this.#byKey.size >= MAX_KEYS) this.#byKey.clear()
    const added = { windowEndMs, requests: Math.max(0, requests) }
    this.#byKey.set(key, added)
    return added.requests
  }

  /** Forgets at most `limit` windows that ended before; returns how many. */
  removeEnded(endedBeforeMs: number, limit: number): number {
    let removed = 0
    for (const [key, { windowEndMs }] of this.#byKey) {
      if (removed >= limit) break
      if (windowEndMs >= endedBeforeMs) continue
      this.#byKey.delete(key)
      removed += 1
    }
    return removed
  }
}
