// The clock of a process: the system's, but never backwards. What has ended must stay ended.

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
 * ms since 1970 UTC. When the clock is set back, time goes on from where it was, at the usual pace, until the clock has caught
 * up or the process ends.
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
