import { CleanUpClock, type CleanUpClockOptions } from '../storage/clean-up-clock.js'
import { type Rounds, startRounds } from '../storage/rounds.js'
import type { SurveyStore } from './store/survey-store.js'

export interface JanitorOptions {
  readonly store: SurveyStore
  readonly now: () => number
  /** As in RoundsOptions. */
  readonly everyMs: number
  /** How long audit events are kept, in ms. */
  readonly keepAuditMs: number
  /** As in CleanUpClockOptions. */
  readonly elapsed?: CleanUpClockOptions['elapsed']
  readonly onWaiting?: CleanUpClockOptions['onWaiting']
  /** Called after a round that removed something. */
  readonly onRemoved: (removed: { readonly surveyEvents: number }) => void
  /** Called when a round failed; the next one tries again. */
  readonly onError: (error: unknown) => void
}

/** Rows per transaction: few enough that no other write waits noticeably. */
const BATCH = 500

/** Each round removes the audit events that are due. */
export function startJanitor(options: JanitorOptions): Rounds<void> {
  const { store, keepAuditMs, onRemoved } = options
  const clock = new CleanUpClock(options)

  async function round(isStopped: () => boolean): Promise<void> {
    const { asOfMs } = await clock.begin()
    let surveyEvents = 0
    let isMore = true
    while (isMore && !isStopped()) {
      const removed = await store.removeEvents({ beforeMs: asOfMs - keepAuditMs, limit: BATCH })
      surveyEvents += removed
      isMore = removed === BATCH
    }
    if (surveyEvents > 0) onRemoved({ surveyEvents })
  }

  return startRounds({ round, everyMs: options.everyMs, onError: options.onError })
}
