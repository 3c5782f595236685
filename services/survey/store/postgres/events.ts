import type { Cause } from '../../../storage/cause.js'
import { eventIds, firstIdAt } from '../../../storage/event-ids.js'
import { listEvents, removalOfEvents } from '../../../storage/postgres/events.js'
import { columnsOf, type Database, type Statement, type Transaction } from '../../../storage/postgres/transaction.js'
import { readEvent, type SurveyEventRow, type SurveyHappening } from '../survey-event.js'
import type { SurveyStore } from '../survey-store.js'

const insertEvents: Statement = {
  name: 'insert_survey_events',
  text: `
    INSERT INTO survey_events (event_id, at_ms, kind, actor, actor_id, actor_source, request_id, survey_id, owner_user_id,
      appid, first_answer_id, last_answer_id)
    SELECT e.event_id, $1::bigint, e.kind, $2, $3, $4, $5, e.survey_id, e.owner_user_id, '', e.first_answer_id, e.last_answer_id
    FROM unnest($6::text[], $7::text[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[])
      AS e (event_id, kind, survey_id, owner_user_id, first_answer_id, last_answer_id)`,
}
/** Or widens the ids of what is written about that hour. */
const recordAnswersRead: Statement = {
  name: 'record_answers_read',
  text: `
    INSERT INTO survey_events AS e (event_id, at_ms, kind, actor, actor_id, actor_source, request_id, survey_id, owner_user_id,
      appid, first_answer_id, last_answer_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    ON CONFLICT (event_id) DO UPDATE SET first_answer_id = least(e.first_answer_id, excluded.first_answer_id),
      last_answer_id = greatest(e.last_answer_id, excluded.last_answer_id)`,
}
const removeEvents = removalOfEvents('survey_events')
const EVENTS = {
  table: 'survey_events',
  columns: `survey_id AS "surveyId", owner_user_id AS "ownerUserId", appid, first_answer_id AS "firstAnswerId",
    last_answer_id AS "lastAnswerId"`,
}

/** Writes audit events. */
export class Audit {
  readonly #newEventId = eventIds()

  write(transaction: Transaction, now: number, cause: Cause, all: readonly SurveyHappening[]): void {
    const { actor, actorId, actorSource, requestId } = cause
    const columns = columnsOf(all, [
      () => this.#newEventId(now),
      ({ kind }) => kind,
      ({ surveyId }) => surveyId,
      ({ ownerUserId }) => ownerUserId,
      ({ firstAnswerId = 0 }) => firstAnswerId,
      ({ lastAnswerId = 0 }) => lastAnswerId,
    ])
    transaction.write(insertEvents, [now, actor, actorId, actorSource, requestId, ...columns])
  }
}

export function createEventMethods(
  database: Database,
): Pick<SurveyStore, 'listEvents' | 'recordAnswersRead' | 'removeEvents'> {
  return {
    listEvents: ({ surveyId, ownerUserId }, page) =>
      listEvents<SurveyEventRow>(database, EVENTS, { survey_id: surveyId, owner_user_id: ownerUserId }, page),

    async recordAnswersRead(read) {
      const { eventId, atMs, kind, actor, actorId, actorSource, requestId, surveyId, ownerUserId, appid, ...ids } =
        readEvent(read)
      const event = [eventId, atMs, kind, actor, actorId, actorSource, requestId, surveyId, ownerUserId, appid]
      await database.transaction(async (transaction) => {
        transaction.write(recordAnswersRead, [...event, ids.firstAnswerId, ids.lastAnswerId])
      })
    },

    async removeEvents({ beforeMs, limit }) {
      return database.transaction(async (transaction) => {
        const [removed] = await transaction.write<{ count: number }>(removeEvents, [firstIdAt(beforeMs), limit])
        return removed?.count ?? 0
      })
    },
  }
}
