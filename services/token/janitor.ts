// The janitor: removes what ended long ago, in small batches, and writes last uses. It never touches a live grant.
import { CleanUpClock, type CleanUpClockOptions, type CleanUpTime } from '../storage/clean-up-clock.js'
import { type Rounds, startRounds } from '../storage/rounds.js'
import type { TimeFloor } from './password/time-floor.js'
import type { Removed, TokenStore } from './store/token-store.js'
import type { UseRecorder } from './use-recorder.js'

export interface JanitorOptions {
  readonly store: TokenStore
  readonly uses: UseRecorder
  readonly timeFloor: TimeFloor
  readonly now: () => number
  /** As in RoundsOptions. */
  readonly everyMs: number
  /** How long ended codes, sessions and grants with their tokens are kept, in ms; a code must outlive its form (30 min). */
  readonly keepEndedMs: number
  /** How long audit events are kept, in ms. */
  readonly keepAuditMs: number
  /** How long a token is good from when it was issued, in ms. */
  readonly accessTokenMs: number
  readonly refreshTokenMs: number
  /** As in CleanUpClockOptions. */
  readonly elapsed?: CleanUpClockOptions['elapsed']
  readonly onWaiting?: CleanUpClockOptions['onWaiting']
  /** Called after a round that shortened what a clock that was ahead had issued. */
  readonly onShortened?: ((rows: number) => void) | undefined
  /** Called after a round that removed something. */
  readonly onRemoved: (removed: Removed) => void
  /** Called when a round failed; the next one tries again. */
  readonly onError: (error: unknown) => void
}

/** Rows per table and transaction: small enough that no other write waits noticeably. */
const BATCH = 500
/** So that a platform's page that was open for long still learns where to begin anew. */
const KEEP_SIGN_INS_MS = 86_400_000
/** Counts that have ended are nobody's any more, and a million take seconds. */
const COUNTS_BATCH = 10_000
/** So that a round ends, and the next writes last uses, however fast counts are added. */
const MAX_COUNTS_BATCHES = 200
/** Several processes count requests, each by its own clock. */
const CLOCKS_DIFFER_MS = 60_000

/** Each round flushes last uses, measures the floor of sign-ins, mends what a clock that was ahead has issued, and removes everything that is due. */
export function startJanitor(options: JanitorOptions): Rounds<Removed> {
  const clock = new CleanUpClock(options)

  async function round(isStopped: () => boolean): Promise<Removed> {
    await options.uses.flush()
    await options.timeFloor.measure().catch(options.onError)
    const time = await clock.begin()
    if (mayShorten(time)) await shortenAhead()
    const total = { codes: 0, accessTokens: 0, grants: 0, sessions: 0, auditEvents: 0 }
    let isMore = true
    while (isMore && !isStopped()) {
      const removed = await options.store.removeEnded({
        endedBeforeMs: time.asOfMs - options.keepEndedMs,
        auditBeforeMs: time.asOfMs - options.keepAuditMs,
        limit: BATCH,
      })
      for (const table of Object.keys(total) as (keyof Removed)[]) total[table] += removed[table]
      isMore = Object.values(removed).reduce((sum, count) => sum + count) >= BATCH // codes and grants may share a table
    }
    const signIns = { expiredBeforeMs: time.asOfMs - KEEP_SIGN_INS_MS, limit: BATCH }
    while (!isStopped() && (await options.store.removeSignIns(signIns)) >= BATCH);
    await removeRequestCounts(isStopped)
    if (Object.values(total).some((count) => count > 0)) options.onRemoved(total)
    return total
  }

  /** By a clock that is behind by less than a grant lives, tokens end sooner than they should, but no grant of today does. */
  function mayShorten({ isBelieved, behindMs }: CleanUpTime): boolean {
    return isBelieved || behindMs < options.refreshTokenMs
  }

  async function shortenAhead(): Promise<void> {
    const rows = await options.store.shortenAhead(options, options.now())
    if (rows > 0) options.onShortened?.(rows)
  }

  async function removeRequestCounts(isStopped: () => boolean): Promise<void> {
    const bounds = { endedBeforeMs: options.now() - CLOCKS_DIFFER_MS, limit: COUNTS_BATCH }
    for (let batch = 0; batch < MAX_COUNTS_BATCHES && !isStopped(); batch += 1) {
      if ((await options.store.removeRequestCounts(bounds)) < COUNTS_BATCH) return
    }
  }

  return startRounds({ round, everyMs: options.everyMs, onError: options.onError })
}
