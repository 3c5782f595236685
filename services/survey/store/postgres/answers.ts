import { columnsOf, type Database, type Statement, type Transaction } from '../../../storage/postgres/transaction.js'
import {
  type AnswerList,
  type AnswerPage,
  type AnswerRow,
  type AnswerStore,
  byHour,
  FEW_ANSWERS,
  type Hour,
  hoursOf,
  judgeDrafts,
} from '../answer-store.js'
import { NOBODY } from '../survey-store.js'
import type { Audit } from './events.js'

const SURVEY = `s.survey_id = $1 AND s.owner_user_id <> '${NOBODY}'`

/** What a page needs of a set, and the first $4 rows of `page`, up to the one with which documents reach $5 bytes. */
function listOf(name: string, total: string, page: string): Statement {
  return {
    name,
    // One statement, so one moment; a row without an id means that the page is empty.
    text: `
    SELECT c.total, p.answer_id AS "answerId", p.document
    FROM (SELECT a.set_id, ${total} AS total FROM surveys s LEFT JOIN answer_sets a ON a.survey_id = s.survey_id
          WHERE ${SURVEY} AND s.owner_user_id = coalesce($2, s.owner_user_id)) c
      LEFT JOIN LATERAL (
        SELECT answer_id, document FROM (
          SELECT answer_id, document,
            sum(octet_length(document)) OVER (ORDER BY answer_id) - octet_length(document) AS bytes_before
          FROM (${page} ORDER BY answer_id LIMIT $4) found
        ) counted
        WHERE bytes_before < $5
      ) p ON true
    ORDER BY p.answer_id`,
  }
}

const ROWS = 'SELECT answer_id, document FROM answers WHERE set_id = c.set_id AND answer_id > $3'
const listAll = listOf('list_answers', 'coalesce(a.total, 0)', ROWS)
/** By the primary key: what is added to end_seconds keeps the planner from sorting all that ended then. */
const listMany = listOf(
  'list_many_answers',
  '$8::bigint',
  `${ROWS} AND answer_id <= $9 AND end_seconds + 0 >= $6 AND end_seconds + 0 < $7`,
)
/** By the index answers_by_end. */
const listFew = listOf(
  'list_few_answers',
  '$8::bigint',
  `SELECT answer_id, document FROM answers WHERE set_id = c.set_id AND answer_id > $3 AND answer_id <= $9 AND answer_id IN (
     SELECT answer_id FROM answers WHERE set_id = c.set_id AND end_seconds >= $6 AND end_seconds < $7)`,
)
/** How many answers end from $2 to $3, and within which ids they are; nothing is counted for others than the owner. */
const countAnswers: Statement = {
  name: 'count_answers',
  text: `
    SELECT h.answers
        - (SELECT count(*) FROM answers WHERE set_id = a.set_id AND end_seconds >= $6 AND end_seconds < $2)
        - (SELECT count(*) FROM answers WHERE set_id = a.set_id AND end_seconds >= $3 AND end_seconds < $7) AS answers,
      h."firstId", h."lastId"
    FROM surveys s JOIN answer_sets a ON a.survey_id = s.survey_id, LATERAL (
      SELECT coalesce(sum(answers), 0)::bigint AS answers, coalesce(min(first_id), 0) AS "firstId", coalesce(max(last_id), 0) AS "lastId"
      FROM answer_hours WHERE set_id = a.set_id AND hour >= $4 AND hour < $5) h
    WHERE ${SURVEY} AND s.owner_user_id = coalesce($8, s.owner_user_id)`,
}
const findAnswer: Statement = {
  name: 'find_answer',
  text: `
    SELECT r.answer_id AS "answerId", r.document
    FROM surveys s JOIN answer_sets a ON a.survey_id = s.survey_id JOIN answers r ON r.set_id = a.set_id
    WHERE ${SURVEY} AND s.owner_user_id = $2 AND r.answer_id = $3`,
}
/** The one lock of all who change the answers of a survey, so that ids appear in their order; it keeps the survey, too. */
const lockSurvey: Statement = {
  name: 'lock_survey',
  text: `SELECT s.owner_user_id AS "ownerUserId" FROM surveys s WHERE ${SURVEY} FOR NO KEY UPDATE`,
}
/** Behind the lock, as a statement of its own: it sees what others have committed before. */
const findSet: Statement = {
  name: 'find_answer_set',
  text: 'SELECT set_id AS "setId", highest_id AS "highestId", total FROM answer_sets WHERE survey_id = $1',
}
const makeSet: Statement = {
  name: 'make_answer_set',
  text: 'INSERT INTO answer_sets (survey_id, highest_id, total) VALUES ($1, $2, 0) RETURNING set_id AS "setId"',
}
const updateSet: Statement = {
  name: 'update_answer_set',
  text: 'UPDATE answer_sets SET highest_id = $2, total = total + $3 WHERE set_id = $1',
}
const forsakeSet: Statement = {
  name: 'forsake_answer_set',
  text: 'UPDATE answer_sets SET survey_id = NULL WHERE set_id = $1',
}
const findDocuments: Statement = {
  name: 'find_answer_documents',
  text: 'SELECT answer_id AS "answerId", document FROM answers WHERE set_id = $1 AND answer_id = ANY ($2::bigint[])',
}
const insertAnswers: Statement = {
  name: 'insert_answers',
  text: `
    INSERT INTO answers (set_id, answer_id, end_seconds, document)
    SELECT $1, r.answer_id, r.end_seconds, r.document
    FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS r (answer_id, end_seconds, document)`,
}
const deleteAnswers: Statement = {
  name: 'delete_answers',
  text: `
    DELETE FROM answers WHERE set_id = $1 AND answer_id = ANY ($2::bigint[])
    RETURNING answer_id AS "answerId", end_seconds AS "endSeconds"`,
}
/** New ids are above all others. */
const addHours: Statement = {
  name: 'add_answer_hours',
  text: `
    INSERT INTO answer_hours AS h (set_id, hour, answers, first_id, last_id)
    SELECT $1, r.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS r (hour, answers, first_id, last_id)
    ON CONFLICT (set_id, hour) DO UPDATE SET answers = h.answers + excluded.answers, last_id = excluded.last_id`,
}
/** The other answers are still within these ids. */
const lessenHours: Statement = {
  name: 'lessen_answer_hours',
  text: `
    UPDATE answer_hours h SET answers = h.answers - r.answers
    FROM unnest($2::bigint[], $3::bigint[]) AS r (hour, answers) WHERE h.set_id = $1 AND h.hour = r.hour`,
}
/** One janitor at a time: others skip the set. */
const findForsaken: Statement = {
  name: 'find_forsaken_answer_set',
  text: 'SELECT set_id AS "setId" FROM answer_sets WHERE survey_id IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED',
}
const removeAnswers = removalFrom('answers', 'answer_id')
const removeHours = removalFrom('answer_hours', 'hour')
const removeSet: Statement = { name: 'remove_answer_set', text: 'DELETE FROM answer_sets WHERE set_id = $1' }
const keepKey: Statement = {
  name: 'keep_respondent_key',
  text: 'INSERT INTO respondent_keys (only_row, key) VALUES (1, $1) ON CONFLICT DO NOTHING',
}
const findKey: Statement = { name: 'find_respondent_key', text: 'SELECT key FROM respondent_keys WHERE only_row = 1' }

function removalFrom(table: string, key: string): Statement {
  return {
    name: `remove_${table}`,
    text: `
      WITH removed AS (
        DELETE FROM ${table} WHERE set_id = $1
          AND ${key} IN (SELECT ${key} FROM ${table} WHERE set_id = $1 ORDER BY ${key} LIMIT $2) RETURNING 1
      )
      SELECT count(*) AS count FROM removed`,
  }
}

interface SetRow {
  readonly setId: number
  readonly highestId: number
  readonly total: number
}

interface ListedColumns {
  readonly total: number
  readonly answerId: number | null
  readonly document: Uint8Array
}

interface LockedSurvey extends SetRow {
  readonly ownerUserId: string
}

/** `setId` 0: no answer was ever stored. */
async function lock(transaction: Transaction, surveyId: number): Promise<LockedSurvey | undefined> {
  const [survey, set] = await Promise.all([
    transaction.askOne<{ readonly ownerUserId: string }>(lockSurvey, [surveyId]),
    transaction.askOne<SetRow>(findSet, [surveyId]),
  ])
  return survey && { setId: 0, highestId: 0, total: 0, ...set, ...survey }
}

function hourColumns(hours: readonly Hour[], ...names: readonly (keyof Hour)[]) {
  return columnsOf(
    hours,
    names.map((name) => (hour: Hour) => hour[name]),
  )
}

export function createAnswerMethods(database: Database, audit: Audit): Omit<AnswerStore, 'recordAnswersRead'> {
  async function countIn(surveyId: number, ownerUserId: string | null, { interval }: AnswerPage) {
    if (!interval) return undefined
    const { first, end, before, after } = hoursOf(interval)
    const values = [surveyId, interval.since, interval.until, first, end, before, after, ownerUserId]
    const counted = await database.readOne<{ answers: number; firstId: number; lastId: number }>(countAnswers, values)
    return { answers: 0, firstId: 0, lastId: 0, ...counted, ...interval }
  }

  return {
    async listAnswers({ surveyId, ownerUserId = null }, page) {
      const { afterId, limit, maxBytes } = page
      const counted = await countIn(surveyId, ownerUserId, page)
      const statement = !counted ? listAll : counted.answers > FEW_ANSWERS ? listMany : listFew
      const from = Math.max(afterId, (counted?.firstId ?? 0) - 1)
      const bounds = counted ? [counted.since, counted.until, counted.answers, counted.lastId] : []
      const values = [surveyId, ownerUserId, from, limit, maxBytes, ...bounds]
      const listed = await database.read<ListedColumns>(statement, values)
      const [first] = listed
      if (!first) return undefined
      const rows = listed.flatMap(({ answerId, document }) => (answerId === null ? [] : [{ answerId, document }]))
      return { total: first.total, rows } satisfies AnswerList
    },

    findAnswer: ({ surveyId, ownerUserId }, answerId) =>
      database.readOne<AnswerRow>(findAnswer, [surveyId, ownerUserId, answerId]),

    putAnswers(surveyId, drafts, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const set = await lock(transaction, surveyId)
        if (!set) return { kind: 'not_found' }
        const { highestId, ownerUserId } = set
        const passed = drafts.map(({ answerId }) => answerId).filter((id) => id !== 0 && id <= highestId)
        const found =
          passed.length > 0 ? await transaction.ask<AnswerRow & object>(findDocuments, [set.setId, passed]) : []
        const judged = judgeDrafts(drafts, highestId, new Map(found.map((row) => [row.answerId, row.document])))
        if (judged.kind !== 'good') return judged
        const { answerIds, fresh } = judged
        const [first, last] = [fresh[0], fresh.at(-1)]
        if (first && last) {
          const setId = set.setId || (await transaction.write<{ setId: number }>(makeSet, [surveyId, 0]))[0]?.setId || 0
          const columns = columnsOf(fresh, [
            ({ answerId }) => answerId,
            ({ endSeconds }) => endSeconds,
            ({ document }) => document,
          ])
          transaction.write(insertAnswers, [setId, ...columns])
          transaction.write(addHours, [setId, ...hourColumns(byHour(fresh), 'hour', 'answers', 'firstId', 'lastId')])
          transaction.write(updateSet, [setId, last.answerId, fresh.length])
          const ids = { firstAnswerId: first.answerId, lastAnswerId: last.answerId }
          audit.write(transaction, now, cause, [{ kind: 'answers.imported', surveyId, ownerUserId, ...ids }])
        }
        return { kind: 'stored', answerIds, alreadyStored: drafts.length - fresh.length }
      })
    },

    deleteAnswers(surveyId, answerIds, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const set = await lock(transaction, surveyId)
        if (!set) return { kind: 'not_found' }
        const { setId, highestId, total, ownerUserId } = set
        const unknown = answerIds?.find((answerId) => answerId > highestId)
        if (unknown !== undefined) return { kind: 'not_found', answerId: unknown }
        const happened = { kind: 'answers.deleted', surveyId, ownerUserId } as const
        if (!answerIds && total === 0) return { kind: 'deleted', deleted: 0, alreadyDeleted: 0 }
        if (!answerIds) {
          transaction.write(forsakeSet, [setId])
          transaction.write(makeSet, [surveyId, highestId])
          audit.write(transaction, now, cause, [{ ...happened, firstAnswerId: 1, lastAnswerId: highestId }])
          return { kind: 'deleted', deleted: total, alreadyDeleted: 0 }
        }
        const ids = [...new Set(answerIds)]
        const removed = await transaction.write<{ answerId: number; endSeconds: number }>(deleteAnswers, [setId, ids])
        transaction.write(lessenHours, [setId, ...hourColumns(byHour(removed), 'hour', 'answers')])
        transaction.write(updateSet, [setId, highestId, -removed.length])
        const each = removed.map(({ answerId }) => ({ ...happened, firstAnswerId: answerId, lastAnswerId: answerId }))
        audit.write(transaction, now, cause, each)
        return { kind: 'deleted', deleted: removed.length, alreadyDeleted: ids.length - removed.length }
      })
    },

    removeAnswers({ limit }) {
      return database.transaction(async (transaction) => {
        const set = await transaction.askOne<{ readonly setId: number }>(findForsaken, [])
        if (!set) return 0
        let removed = 0
        for (const part of [removeAnswers, removeHours]) {
          const [row] = await transaction.write<{ count: number }>(part, [set.setId, limit - removed])
          removed += row?.count ?? 0
        }
        if (removed === limit) return removed
        transaction.write(removeSet, [set.setId])
        return removed + 1
      })
    },

    respondentKey(candidate) {
      return database.transaction(async (transaction) => {
        await transaction.write(keepKey, [candidate])
        return (await transaction.askOne<{ readonly key: Uint8Array }>(findKey, []))?.key ?? candidate
      })
    },
  }
}
