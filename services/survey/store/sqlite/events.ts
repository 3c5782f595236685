import type { Cause } from '../../../storage/cause.js'
import { eventIds, firstIdAt } from '../../../storage/event-ids.js'
import { cutPage, eventIdBefore, type Page, type PageOf } from '../../../storage/page.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import type { SurveyEventKind, SurveyEventRow, SurveyStore } from '../survey-store.js'

/** Writes an event inside the transaction in progress. */
export type RecordEvent = (
  kind: SurveyEventKind,
  survey: { readonly surveyId: number; readonly ownerUserId: string },
  now: number,
  cause: Cause,
) => void

export function eventRecorder(db: Connection): RecordEvent {
  const newEventId = eventIds()
  const insert = db.prepare<[SurveyEventRow]>(
    `INSERT INTO survey_events (event_id, at_ms, kind, actor, actor_id, actor_source, request_id, survey_id, owner_user_id)
     VALUES (:eventId, :atMs, :kind, :actor, :actorId, :actorSource, :requestId, :surveyId, :ownerUserId)`,
  )
  return (kind, { surveyId, ownerUserId }, now, { actor, actorId, actorSource, requestId }) => {
    const by = { actor, actorId, actorSource, requestId }
    insert.run({ eventId: newEventId(now), atMs: now, kind, ...by, surveyId, ownerUserId })
  }
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
         owner_user_id AS ownerUserId
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
