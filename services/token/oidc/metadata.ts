// What a provider publishes about itself: asked for when it is needed and again after an hour. A provider that is down takes
// nothing with it: the last good answer serves for a day, and a failed attempt is not repeated at once.
import type { Configuration } from 'openid-client'

export interface MetadataState {
  /** ms since the last good answer, if there was one. */
  readonly ageMs: number | undefined
  /** Why the last attempt failed, if it did. */
  readonly failure: Error | undefined
}

export interface Metadata {
  /** @throws what the last attempt threw, while no good answer of the last day is known */
  get(): Promise<Configuration>
  /** Asks now. @throws what the attempt throws */
  refresh(): Promise<Configuration>
  state(): MetadataState
}

const HOUR_MS = 3_600_000
const REFRESHED_AFTER_MS = HOUR_MS
const KEPT_MS = 24 * HOUR_MS
const SHORTEST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 60_000

export function createMetadata(discover: () => Promise<Configuration>, now: () => number): Metadata {
  let good: { readonly configuration: Configuration; readonly atMs: number } | undefined
  let failed: { readonly error: Error; readonly untilMs: number; readonly pauseMs: number } | undefined
  let asking: Promise<Configuration> | undefined

  async function ask(): Promise<Configuration> {
    try {
      const configuration = await discover()
      good = { configuration, atMs: now() }
      failed = undefined
      return configuration
    } catch (cause) {
      const error = cause instanceof Error ? cause : new Error(String(cause))
      const pauseMs = failed ? Math.min(failed.pauseMs * 2, LONGEST_PAUSE_MS) : SHORTEST_PAUSE_MS
      failed = { error, pauseMs, untilMs: now() + pauseMs }
      throw error
    } finally {
      asking = undefined
    }
  }

  /** All who ask at once wait for one answer. */
  function refresh(): Promise<Configuration> {
    asking ??= ask()
    return asking
  }

  return {
    refresh,

    async get() {
      const isPaused = failed !== undefined && now() < failed.untilMs
      if (good && now() - good.atMs < KEPT_MS) {
        if (now() - good.atMs >= REFRESHED_AFTER_MS && !isPaused) refresh().catch(() => undefined) // told by state()
        return good.configuration
      }
      if (isPaused) throw failed?.error
      return refresh()
    },

    state: () => ({ ageMs: good && now() - good.atMs, failure: failed?.error }),
  }
}
