import { columnsOf, type Database, type Statement, type Transaction } from '../../../postgres/transaction.js'
import type { Cause } from '../../../store/cause.js'
import { eventIds, firstIdAt } from '../../../store/event-ids.js'
import { cutPage, eventIdBefore } from '../../../store/page.js'
import type { SurveyEventRow, SurveyStore } from '../survey-store.js'

export type SurveyHappening = Pick<SurveyEventRow, 'kind' | 'surveyId' | 'ownerUserId'>

const insertEvents: Statement = {
  name: 'insert_survey_events',
  text: `
    INSERT INTO survey_events (event_id, at_ms, kind, actor, request_id, survey_id, owner_user_id)
    SELECT e.event_id, $1::bigint, e.kind, $2, $3, e.survey_id, e.owner_user_id
    FROM unnest($4::text[], $5::text[], $6::bigint[], $7::text[]) AS e (event_id, kind, survey_id, owner_user_id)`,
}
/** By the primary key, which begins with the time. $1 is the first id of that time. */
const removeEvents: Statement = {
  name: 'remove_survey_events',
  text: `
    WITH ended AS (
      SELECT event_id FROM survey_events WHERE event_id < $1 ORDER BY event_id LIMIT $2 FOR UPDATE SKIP LOCKED
    ), removed AS (
      DELETE FROM survey_events s USING ended e WHERE s.event_id = e.event_id RETURNING 1
    )
    SELECT count(*) AS count FROM removed`,
}

/** Writes audit events. */
export class Audit {
  readonly #newEventId = eventIds()

  write(transaction: Transaction, now: number, { actor, requestId }: Cause, all: readonly SurveyHappening[]): void {
    const columns = columnsOf(all, [
      () => this.#newEventId(now),
      ({ kind }) => kind,
      ({ surveyId }) => surveyId,
      ({ ownerUserId }) => ownerUserId,
    ])
    transaction.write(insertEvents, [now, actor, requestId, ...columns])
  }
}

export function createEventMethods(database: Database): Pick<SurveyStore, 'listEvents' | 'removeEvents'> {
  return {
    async listEvents({ surveyId, ownerUserId }, page) {
      const rows = await database.read<SurveyEventRow>(listEvents(surveyId !== undefined, ownerUserId !== undefined), [
        eventIdBefore(page),
        page.limit + 1,
        ...[surveyId, ownerUserId].filter((value) => value !== undefined),
      ])
      return cutPage(rows, page.limit, (row) => row.eventId)
    },

    async removeEvents({ beforeMs, limit }) {
      return database.transaction(async (transaction) => {
        const [removed] = await transaction.write<{ count: number }>(removeEvents, [firstIdAt(beforeMs), limit])
        return removed?.count ?? 0
      })
    },
  }
}

/** By the index of the survey's or the owner's events, or by the primary key. */
function listEvents(bySurvey: boolean, byOwner: boolean): Statement {
  const conditions = [bySurvey && 'survey_id', byOwner && 'owner_user_id'].filter((column) => column !== false)
  return {
    name: ['list_survey_events', ...conditions].join('_'),
    text: `
      SELECT event_id AS "eventId", at_ms AS "atMs", kind, actor, request_id AS "requestId",
        survey_id AS "surveyId", owner_user_id AS "ownerUserId"
      FROM survey_events
      WHERE event_id < $1 ${conditions.map((column, index) => `AND ${column} = $${index + 3}`).join(' ')}
      ORDER BY event_id DESC LIMIT $2`,
  }
}
