// That apps read answers: one audit event for each app, survey and hour, and each owner, if another gets the survey meanwhile. It is
// written before the first answer is handed out; how far the ids reach, which changes with every page, is written from time to time.
import type { AnswersRead } from './store/survey-event.js'
import type { SurveyStore } from './store/survey-store.js'

const HOUR_MS = 3_600_000
/** Apps and surveys that are remembered at a time: bounds memory. More cost a write each, which changes nothing. */
const MAX_KNOWN = 10_000

export interface ReadRecorder {
  /** Fulfils when the event is there. @throws StoreUnavailable: what cannot be audited is not handed out */
  record(read: Omit<AnswersRead, 'hourMs'>, now: number): Promise<void>
  /** Writes the ids that were collected; keeps them if the store is unavailable. */
  flush(): Promise<void>
}

interface Known {
  read: AnswersRead
  readonly written: Promise<void>
}

export function createReadRecorder(store: Pick<SurveyStore, 'recordAnswersRead'>): ReadRecorder {
  const known = new Map<string, Known>()
  /** Those whose ids reach further than what is written. */
  const widened = new Map<string, AnswersRead>()

  function begin(key: string, read: AnswersRead): Promise<void> {
    if (known.size >= MAX_KNOWN) known.clear()
    const written = store.recordAnswersRead(read)
    known.set(key, { read, written })
    written.catch(() => known.delete(key))
    return written
  }

  return {
    record(read, now) {
      const hourMs = now - (now % HOUR_MS)
      const key = `${read.appid} ${read.surveyId} ${read.ownerUserId} ${hourMs}`
      const before = known.get(key)
      if (!before) return begin(key, { ...read, hourMs })
      const [firstId, lastId] = [Math.min(before.read.firstId, read.firstId), Math.max(before.read.lastId, read.lastId)]
      if (firstId < before.read.firstId || lastId > before.read.lastId) {
        before.read = { ...before.read, firstId, lastId }
        widened.set(key, before.read)
      }
      return before.written
    },

    async flush() {
      for (const [key, read] of widened) {
        await store.recordAnswersRead(read)
        if (widened.get(key) === read) widened.delete(key)
      }
    },
  }
}
