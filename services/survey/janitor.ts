import { CleanUpClock, type CleanUpClockOptions } from '../storage/clean-up-clock.js'
import { type Rounds, startRounds } from '../storage/rounds.js'
import type { ReadRecorder } from './read-recorder.js'
import type { SurveyStore } from './store/survey-store.js'

export interface JanitorOptions {
  readonly store: SurveyStore
  readonly reads: ReadRecorder
  readonly now: () => number
  /** As in RoundsOptions. */
  readonly everyMs: number
  /** How long audit events are kept, in ms. */
  readonly keepAuditMs: number
  /** As in CleanUpClockOptions. */
  readonly elapsed?: CleanUpClockOptions['elapsed']
  readonly onWaiting?: CleanUpClockOptions['onWaiting']
  /** Called after a round that removed something. */
  readonly onRemoved: (removed: { readonly surveyEvents: number; readonly answers: number }) => void
  /** Called when a round failed; the next one tries again. */
  readonly onError: (error: unknown) => void
}

/** Rows per transaction: few enough that no other write waits noticeably. */
const BATCH = 500

/** Each round writes which answers were read, and removes the audit events that are due and the answers that are nobody's. */
export function startJanitor(options: JanitorOptions): Rounds<void> {
  const { store, reads, keepAuditMs, onRemoved } = options
  const clock = new CleanUpClock(options)

  async function round(isStopped: () => boolean): Promise<void> {
    await reads.flush()
    const { asOfMs } = await clock.begin()
    const due = { beforeMs: asOfMs - keepAuditMs, limit: BATCH }
    const surveyEvents = await all(isStopped, () => store.removeEvents(due), BATCH)
    const answers = await all(isStopped, () => store.removeAnswers({ limit: BATCH }), 1) // of one set at a time
    if (surveyEvents + answers > 0) onRemoved({ surveyEvents, answers })
  }

  return startRounds({ round, everyMs: options.everyMs, onError: options.onError })
}

/** Removes one batch after the other, up to one of fewer than `enough` rows; returns how many there were. */
async function all(isStopped: () => boolean, removeBatch: () => Promise<number>, enough: number): Promise<number> {
  let total = 0
  for (let isMore = true; isMore && !isStopped(); ) {
    const removed = await removeBatch()
    total += removed
    isMore = removed >= enough
  }
  return total
}
