// Time and chance: what a process takes from its system, and a test gives it instead.
import { randomFillSync } from 'node:crypto'

export interface TimeAndChance {
  /** ms since 1970 UTC. */
  readonly now: () => number
  /** ms since some moment; never goes back and does not jump. */
  readonly elapsed: () => number
  readonly randomBytes: (size: number) => Uint8Array
}

/** A clock set back by less, in ms, is not reported: time synchronization does that. */
const TOLD_FROM_MS = 1_000

export interface ForwardClockOptions {
  /** ms since 1970 UTC; may go back. */
  readonly now: () => number
  /** ms since some moment; never goes back. */
  readonly elapsed?: () => number
  /** Called when the clock was set back, with by how many ms. */
  readonly onSetBack: (ms: number) => void
}

/**
 * The system's clock, but never backwards: what has ended must stay ended. When it is set back, time goes on from where it was,
 * at the usual pace, until the clock has caught up or the process ends.
 */
export function forwardClock(options: ForwardClockOptions): () => number {
  const { now, elapsed = () => performance.now(), onSetBack } = options
  let latestMs = Number.NEGATIVE_INFINITY
  /** What is added to `elapsed` while the clock is behind; undefined while it is not. */
  let aheadMs: number | undefined
  return () => {
    const systemMs = now()
    if (aheadMs === undefined) {
      if (systemMs >= latestMs) {
        latestMs = systemMs
        return systemMs
      }
      aheadMs = latestMs - elapsed()
      if (latestMs - systemMs >= TOLD_FROM_MS) onSetBack(latestMs - systemMs)
    }
    const goneOnMs = Math.floor(elapsed() + aheadMs)
    if (systemMs >= goneOnMs) aheadMs = undefined
    latestMs = Math.max(systemMs, goneOnMs)
    return latestMs
  }
}

/** A call of the system for 32 bytes costs 2 to 3 µs, and an exchange needs five: they are fetched a few KiB at a time. */
const POOL_BYTES = 4096

/** A generator like `crypto.randomBytes`: what it returned is kept nowhere else, not even in the pool. */
export function pooledRandomBytes(): (size: number) => Uint8Array {
  const pool = new Uint8Array(POOL_BYTES)
  let used = POOL_BYTES
  return (size) => {
    if (size > POOL_BYTES) return randomFillSync(new Uint8Array(size))
    if (used + size > POOL_BYTES) {
      randomFillSync(pool)
      used = 0
    }
    const bytes = pool.slice(used, used + size)
    pool.fill(0, used, used + size)
    used += size
    return bytes
  }
}
