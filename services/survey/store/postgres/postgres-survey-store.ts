// The survey store on PostgreSQL: the same rules and round trips as the token store.
import { cleanUps } from '../../../storage/postgres/clean-ups.js'
import { openDatabase } from '../../../storage/postgres/open.js'
import type { PoolOptions } from '../../../storage/postgres/pool.js'
import type { Statement, Transaction } from '../../../storage/postgres/transaction.js'
import type { SurveyHappening } from '../survey-event.js'
import {
  higherId,
  NOBODY,
  nextId,
  type OwnedSummaryRow,
  type SurveyRow,
  type SurveyStore,
  type SurveySummaryRow,
  surveyHash,
} from '../survey-store.js'
import { createAnswerMethods } from './answers.js'
import { Audit, createEventMethods } from './events.js'
import { surveySchema } from './schema.js'

const WHOLE = 'survey_id AS "surveyId", owner_user_id AS "ownerUserId", hash, document'

const findSurvey: Statement = {
  name: 'find_survey',
  text: `SELECT ${WHOLE} FROM surveys WHERE survey_id = $1 AND owner_user_id <> '${NOBODY}'`,
}
/** By the index surveys_by_owner. One statement, so one moment; a row without an id means that the page is empty. */
const listSurveys: Statement = {
  name: 'list_surveys',
  text: `
    SELECT c.total, p.survey_id AS "surveyId", p.hash, p.title, p.state
    FROM (SELECT count(*) AS total FROM surveys WHERE owner_user_id = $1) c
      LEFT JOIN (
        SELECT survey_id, hash, title, state FROM surveys WHERE owner_user_id = $1
        ORDER BY survey_id LIMIT $2 OFFSET $3
      ) p ON true
    ORDER BY p.survey_id`,
}
const exportAll: Statement = { name: 'export_all', text: exportOf(`survey_id > $1 AND owner_user_id <> '${NOBODY}'`) }
/** By the index surveys_by_owner. */
const exportOwned: Statement = { name: 'export_owned', text: exportOf('survey_id > $1 AND owner_user_id = $4') }
const summariesOfAll: Statement = {
  name: 'summaries_of_all',
  text: summariesOf(`survey_id > $1 AND owner_user_id <> '${NOBODY}'`),
}
/** By the index surveys_by_owner. */
const summariesOfOwner: Statement = {
  name: 'summaries_of_owner',
  text: summariesOf('survey_id > $1 AND owner_user_id = $3'),
}
const lockIds: Statement = {
  name: 'lock_ids',
  text: 'SELECT highest_id AS "highestId" FROM survey_ids WHERE only_row FOR UPDATE',
}
const findOwners: Statement = {
  name: 'find_owners',
  text: 'SELECT survey_id AS "surveyId", owner_user_id AS "ownerUserId" FROM surveys WHERE survey_id = ANY ($1::bigint[])',
}
const putSurvey: Statement = {
  name: 'put_survey',
  text: `
    INSERT INTO surveys (survey_id, owner_user_id, hash, title, state, document) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (survey_id) DO UPDATE SET owner_user_id = excluded.owner_user_id, hash = excluded.hash,
      title = excluded.title, state = excluded.state, document = excluded.document`,
}
const emptySurveys: Statement = {
  name: 'empty_surveys',
  text: `
    UPDATE surveys SET owner_user_id = '${NOBODY}', hash = '', title = '', state = 0, document = ''
    WHERE survey_id = ANY ($1::bigint[])`,
}
const forsakeAnswers: Statement = {
  name: 'forsake_answers',
  text: 'UPDATE answer_sets SET survey_id = NULL WHERE survey_id = ANY ($1::bigint[])',
}
const setHighestId: Statement = {
  name: 'set_highest_id',
  text: 'UPDATE survey_ids SET highest_id = $1 WHERE only_row AND highest_id < $1',
}

/** The first $2 surveys, up to the one with which the documents reach $3 bytes. Documents of later ones are not read. */
function exportOf(condition: string): string {
  const columns = 'survey_id, owner_user_id, hash, document'
  return `
    SELECT ${WHOLE} FROM (
      SELECT ${columns}, sum(octet_length(document)) OVER (ORDER BY survey_id) - octet_length(document) AS bytes_before
      FROM (SELECT ${columns} FROM surveys WHERE ${condition} ORDER BY survey_id LIMIT $2) found
    ) counted
    WHERE bytes_before < $3 ORDER BY survey_id`
}

/** The first $2 surveys without their documents. */
function summariesOf(condition: string): string {
  return `
    SELECT survey_id AS "surveyId", owner_user_id AS "ownerUserId", hash, title, state
    FROM surveys WHERE ${condition} ORDER BY survey_id LIMIT $2`
}

interface ListedColumns extends Omit<SurveySummaryRow, 'surveyId'> {
  readonly total: number
  readonly surveyId: number | null
}

/**
 * Takes the one lock of all who change surveys, so that two that touch the same ones in a different order cannot deadlock.
 * Returns the owners of these, NOBODY included, and the highest id.
 */
async function lockSurveys(transaction: Transaction, surveyIds: readonly number[]) {
  const [ids, found] = await Promise.all([
    transaction.askOne<{ highestId: number }>(lockIds, []),
    transaction.ask<{ surveyId: number; ownerUserId: string }>(findOwners, [surveyIds]),
  ])
  const owners = new Map(found.map(({ surveyId, ownerUserId }) => [surveyId, ownerUserId]))
  return { highestId: ids?.highestId ?? 0, owners }
}

/** Connects and brings the schema up to date. @throws StoreUnavailable, DatabaseRefused */
export async function openPostgresSurveyStore(options: PoolOptions): Promise<SurveyStore> {
  const database = await openDatabase(options, surveySchema)
  const audit = new Audit()
  return {
    findSurvey: (surveyId) => database.readOne<SurveyRow>(findSurvey, [surveyId]),

    async listSurveys(ownerUserId, { offset, limit }) {
      const listed = await database.read<ListedColumns>(listSurveys, [ownerUserId, limit, offset])
      const rows = listed.flatMap(({ total, surveyId, ...rest }) => (surveyId === null ? [] : [{ surveyId, ...rest }]))
      return { total: listed[0]?.total ?? 0, rows }
    },

    putSurveys(ownerUserId, drafts, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const given = drafts.map((draft) => draft.surveyId).filter((id) => id !== 0)
        const { highestId: lastId, owners } = await lockSurveys(transaction, given)
        const taken = given.find((id) => ![undefined, NOBODY, ownerUserId].includes(owners.get(id)))
        if (taken !== undefined) return { kind: 'id_taken', surveyId: taken }

        let highestId = given.reduce(higherId, lastId)
        const rows = drafts.map((draft): SurveySummaryRow => {
          const surveyId = draft.surveyId === 0 ? nextId(highestId) : draft.surveyId
          highestId = higherId(highestId, surveyId)
          const { title, state, document } = draft
          const hash = draft.hash || surveyHash(surveyId)
          transaction.write(putSurvey, [surveyId, ownerUserId, hash, title, state, document])
          return { surveyId, hash, title, state }
        })
        transaction.write(setHighestId, [highestId])
        const happened = rows.map(({ surveyId }): SurveyHappening => {
          return {
            kind: owners.get(surveyId) === ownerUserId ? 'survey.replaced' : 'survey.created',
            surveyId,
            ownerUserId,
          }
        })
        audit.write(transaction, now, cause, happened)
        return { kind: 'stored', rows }
      })
    },

    deleteSurveys(surveyIds, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const { owners } = await lockSurveys(transaction, surveyIds)
        const missing = surveyIds.find((surveyId) => !owners.has(surveyId))
        if (missing !== undefined) return { kind: 'not_found', surveyId: missing }
        const there = [...owners].filter(([, ownerUserId]) => ownerUserId !== NOBODY)
        const ids = there.map(([surveyId]) => surveyId)
        transaction.write(emptySurveys, [ids])
        transaction.write(forsakeAnswers, [ids])
        const happened = there.map(([surveyId, ownerUserId]): SurveyHappening => {
          return { kind: 'survey.deleted', surveyId, ownerUserId }
        })
        audit.write(transaction, now, cause, happened)
        return { kind: 'deleted', alreadyDeleted: owners.size - there.length }
      })
    },

    exportSurveys(ownerUserId, { afterId, limit, maxBytes }) {
      return ownerUserId === undefined
        ? database.read<SurveyRow>(exportAll, [afterId, limit, maxBytes])
        : database.read<SurveyRow>(exportOwned, [afterId, limit, maxBytes, ownerUserId])
    },

    exportSummaries(ownerUserId, { afterId, limit }) {
      return ownerUserId === undefined
        ? database.read<OwnedSummaryRow>(summariesOfAll, [afterId, limit])
        : database.read<OwnedSummaryRow>(summariesOfOwner, [afterId, limit, ownerUserId])
    },

    ...createAnswerMethods(database, audit),
    ...createEventMethods(database),
    ...cleanUps(database, 'survey'),

    ping: () => database.ping(),
    connections: () => database.connections(),
    close: () => database.close(),
  }
}
