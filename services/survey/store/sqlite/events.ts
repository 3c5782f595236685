import type { Cause } from '../../../storage/cause.js'
import { eventIds, firstIdAt } from '../../../storage/event-ids.js'
import { cutPage, eventIdBefore, type Page, type PageOf } from '../../../storage/page.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { type AnswersRead, readEvent, type SurveyEventRow, type SurveyHappening } from '../survey-event.js'
import type { SurveyStore } from '../survey-store.js'

/** Writes an event inside the transaction in progress. */
export type RecordEvent = (happening: SurveyHappening, now: number, cause: Cause) => void

const INSERT = `
  INSERT INTO survey_events (event_id, at_ms, kind, actor, actor_id, actor_source, request_id, survey_id, owner_user_id,
    appid, first_answer_id, last_answer_id)
  VALUES (:eventId, :atMs, :kind, :actor, :actorId, :actorSource, :requestId, :surveyId, :ownerUserId,
    :appid, :firstAnswerId, :lastAnswerId)`

export function eventRecorder(db: Connection): RecordEvent {
  const newEventId = eventIds()
  const insert = db.prepare<[SurveyEventRow]>(INSERT)
  return (happening, now, { actor, actorId, actorSource, requestId }) => {
    const by = { actor, actorId, actorSource, requestId }
    const about = { appid: '', firstAnswerId: 0, lastAnswerId: 0, ...happening }
    insert.run({ eventId: newEventId(now), atMs: now, ...by, ...about })
  }
}

/** Writes that an app read answers, or widens the ids of what is written about that hour. */
export function readRecorder(db: Connection): (read: AnswersRead) => void {
  const upsert = db.prepare<[SurveyEventRow]>(
    // Primary key.
    `${INSERT} ON CONFLICT (event_id) DO UPDATE SET first_answer_id = min(first_answer_id, excluded.first_answer_id),
       last_answer_id = max(last_answer_id, excluded.last_answer_id)`,
  )
  return (read) => void upsert.run(readEvent(read))
}

interface Listing {
  readonly surveyId: number | null
  readonly ownerUserId: string | null
  readonly before: string
  readonly limit: number
}

export function eventReads(db: Connection) {
  const listing = (conditions: string) =>
    db.prepare<[Listing], SurveyEventRow>(
      // Primary key, or the index of the survey's or the owner's events; backwards.
      `SELECT event_id AS eventId, at_ms AS atMs, kind, actor, actor_id AS actorId, actor_source AS actorSource, request_id AS requestId, survey_id AS surveyId,
         owner_user_id AS ownerUserId, appid, first_answer_id AS firstAnswerId, last_answer_id AS lastAnswerId
       FROM survey_events WHERE event_id < :before ${conditions} ORDER BY event_id DESC LIMIT :limit`,
    )
  const listAll = listing('')
  const listOfOwner = listing('AND owner_user_id = :ownerUserId')
  const listOfSurvey = listing('AND survey_id = :surveyId AND (:ownerUserId IS NULL OR owner_user_id = :ownerUserId)')

  return {
    listEvents(filter: Parameters<SurveyStore['listEvents']>[0], page: PageOf): Page<SurveyEventRow> {
      const { surveyId = null, ownerUserId = null } = filter
      const list = surveyId !== null ? listOfSurvey : ownerUserId !== null ? listOfOwner : listAll
      const rows = list.all({ surveyId, ownerUserId, before: eventIdBefore(page), limit: page.limit + 1 })
      return cutPage(rows, page.limit, ({ eventId }) => eventId)
    },
  }
}

export function eventUpkeep(db: Connection) {
  const remove = db.prepare<[string, number]>(
    // Primary key.
    `DELETE FROM survey_events
     WHERE event_id IN (SELECT event_id FROM survey_events WHERE event_id < ? ORDER BY event_id LIMIT ?)`,
  )
  return {
    removeEvents: ({ beforeMs, limit }: { readonly beforeMs: number; readonly limit: number }): number =>
      remove.run(firstIdAt(beforeMs), limit).changes,
  }
}
