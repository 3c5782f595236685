import type { Cause } from '../../../storage/cause.js'
import { eventIds, firstIdAt } from '../../../storage/event-ids.js'
import { listEvents, removalOfEvents } from '../../../storage/postgres/events.js'
import { columnsOf, type Database, type Statement, type Transaction } from '../../../storage/postgres/transaction.js'
import type { SurveyEventRow, SurveyStore } from '../survey-store.js'

export type SurveyHappening = Pick<SurveyEventRow, 'kind' | 'surveyId' | 'ownerUserId'>

const insertEvents: Statement = {
  name: 'insert_survey_events',
  text: `
    INSERT INTO survey_events (event_id, at_ms, kind, actor, actor_id, actor_source, request_id, survey_id, owner_user_id)
    SELECT e.event_id, $1::bigint, e.kind, $2, $3, $4, $5, e.survey_id, e.owner_user_id
    FROM unnest($6::text[], $7::text[], $8::bigint[], $9::text[]) AS e (event_id, kind, survey_id, owner_user_id)`,
}
const removeEvents = removalOfEvents('survey_events')
const EVENTS = { table: 'survey_events', columns: 'survey_id AS "surveyId", owner_user_id AS "ownerUserId"' }

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
    ])
    transaction.write(insertEvents, [now, actor, actorId, actorSource, requestId, ...columns])
  }
}

export function createEventMethods(database: Database): Pick<SurveyStore, 'listEvents' | 'removeEvents'> {
  return {
    listEvents: ({ surveyId, ownerUserId }, page) =>
      listEvents<SurveyEventRow>(database, EVENTS, { survey_id: surveyId, owner_user_id: ownerUserId }, page),

    async removeEvents({ beforeMs, limit }) {
      return database.transaction(async (transaction) => {
        const [removed] = await transaction.write<{ count: number }>(removeEvents, [firstIdAt(beforeMs), limit])
        return removed?.count ?? 0
      })
    },
  }
}
