import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import {
  type AnswerDraft,
  type AnswerList,
  type AnswerPage,
  type AnswerRow,
  type AnswerStore,
  byHour,
  FEW_ANSWERS,
  type Hour,
  hoursOf,
  type Interval,
  judgeDrafts,
} from '../answer-store.js'
import { NOBODY } from '../survey-store.js'
import type { RecordEvent } from './events.js'
import { upToBytes } from './up-to-bytes.js'

interface SetRow {
  readonly ownerUserId: string
  /** null if no answer was ever stored. */
  readonly setId: number | null
  readonly highestId: number
  readonly total: number
}

interface InHours {
  readonly answers: number
  readonly firstId: number
  readonly lastId: number
}

interface Bounds extends Interval {
  readonly setId: number
  readonly afterId: number
  readonly lastId: number
  readonly limit: number
}

const NO_BOUNDS = { since: 0, until: 0, lastId: Number.MAX_SAFE_INTEGER }

function findSet(db: Connection) {
  return db.prepare<[number], SetRow>(
    // Primary key of surveys; index of survey_id.
    `SELECT s.owner_user_id AS ownerUserId, a.set_id AS setId, coalesce(a.highest_id, 0) AS highestId, coalesce(a.total, 0) AS total
     FROM surveys s LEFT JOIN answer_sets a ON a.survey_id = s.survey_id
     WHERE s.survey_id = ? AND s.owner_user_id <> '${NOBODY}'`,
  )
}

export function answerReads(db: Connection) {
  const find = findSet(db)
  const findOne = db.prepare<[number, number], AnswerRow>(
    // Primary key.
    'SELECT answer_id AS answerId, document FROM answers WHERE set_id = ? AND answer_id = ?',
  )
  const inHours = db.prepare<[number, number, number], InHours>(
    // Primary key.
    `SELECT coalesce(sum(answers), 0) AS answers, coalesce(min(first_id), 0) AS firstId, coalesce(max(last_id), 0) AS lastId
     FROM answer_hours WHERE set_id = ? AND hour >= ? AND hour < ?`,
  )
  const count = db.prepare<[number, number, number], { readonly answers: number }>(
    // Index answers_by_end, alone.
    'SELECT count(*) AS answers FROM answers WHERE set_id = ? AND end_seconds >= ? AND end_seconds < ?',
  )
  const page = (condition: string) =>
    db.prepare<[Bounds], AnswerRow>(
      // Primary key, or index answers_by_end for the ids alone.
      `SELECT answer_id AS answerId, document FROM answers
       WHERE set_id = :setId AND answer_id > :afterId AND answer_id <= :lastId ${condition}
       ORDER BY answer_id LIMIT :limit`,
    )
  const all = page('')
  const many = page('AND +end_seconds >= :since AND +end_seconds < :until')
  const few = page(`AND answer_id IN (
    SELECT answer_id FROM answers INDEXED BY answers_by_end
    WHERE set_id = :setId AND end_seconds >= :since AND end_seconds < :until)`)

  function totalIn(setId: number, interval: Interval): InHours {
    const { first, end, before, after } = hoursOf(interval)
    const hours = inHours.get(setId, first, end) ?? { answers: 0, firstId: 0, lastId: 0 }
    const outside =
      (count.get(setId, before, interval.since)?.answers ?? 0) + (count.get(setId, interval.until, after)?.answers ?? 0)
    return { ...hours, answers: hours.answers - outside }
  }

  function list({ setId, total }: SetRow, { interval, afterId, limit, maxBytes }: AnswerPage): AnswerList {
    if (setId === null) return { total: 0, rows: [] }
    if (!interval) return { total, rows: upToBytes(maxBytes, all.iterate({ ...NO_BOUNDS, setId, afterId, limit })) }
    const { answers, firstId, lastId } = totalIn(setId, interval)
    const bounds = { ...interval, setId, afterId: Math.max(afterId, firstId - 1), lastId, limit }
    return { total: answers, rows: upToBytes(maxBytes, (answers > FEW_ANSWERS ? many : few).iterate(bounds)) }
  }

  return {
    /** One read transaction: the total and the rows are of one moment. */
    listAnswers: db.transaction(
      (survey: Parameters<AnswerStore['listAnswers']>[0], page: AnswerPage): AnswerList | undefined => {
        const set = find.get(survey.surveyId)
        const isOwner = survey.ownerUserId === undefined || set?.ownerUserId === survey.ownerUserId
        return set && isOwner ? list(set, page) : undefined
      },
    ),

    findAnswer({ surveyId, ownerUserId }: Parameters<AnswerStore['findAnswer']>[0], answerId: number) {
      const set = find.get(surveyId)
      return set?.setId && set.ownerUserId === ownerUserId ? findOne.get(set.setId, answerId) : undefined
    },
  }
}

export function answerWrites(db: Connection, record: RecordEvent) {
  const find = findSet(db)
  const insertSet = db.prepare<[number, number]>(
    'INSERT INTO answer_sets (survey_id, highest_id, total) VALUES (?, ?, 0)',
  )
  const updateSet = db.prepare<[number, number, number]>(
    // Primary key.
    'UPDATE answer_sets SET highest_id = ?, total = total + ? WHERE set_id = ?',
  )
  const forsake = db.prepare<[number]>(
    // Primary key.
    'UPDATE answer_sets SET survey_id = NULL WHERE set_id = ?',
  )
  const findDocument = db.prepare<[number, number], { readonly document: Uint8Array }>(
    // Primary key.
    'SELECT document FROM answers WHERE set_id = ? AND answer_id = ?',
  )
  const insert = db.prepare<[number, number, number, Uint8Array]>(
    'INSERT INTO answers (set_id, answer_id, end_seconds, document) VALUES (?, ?, ?, ?)',
  )
  const remove = db.prepare<[number, number], Pick<AnswerDraft, 'answerId' | 'endSeconds'>>(
    // Primary key.
    'DELETE FROM answers WHERE set_id = ? AND answer_id = ? RETURNING answer_id AS answerId, end_seconds AS endSeconds',
  )
  const addHour = db.prepare<[Hour & { readonly setId: number }]>(
    // Primary key. New ids are above all others.
    `INSERT INTO answer_hours (set_id, hour, answers, first_id, last_id) VALUES (:setId, :hour, :answers, :firstId, :lastId)
     ON CONFLICT (set_id, hour) DO UPDATE SET answers = answers + excluded.answers, last_id = excluded.last_id`,
  )
  const lessenHour = db.prepare<[number, number, number]>(
    // Primary key. The others are still within these ids.
    'UPDATE answer_hours SET answers = answers - ? WHERE set_id = ? AND hour = ?',
  )

  function knownOf(setId: number, drafts: readonly AnswerDraft[], highestId: number): Map<number, Uint8Array> {
    const passed = drafts.filter(({ answerId }) => answerId !== 0 && answerId <= highestId)
    return new Map(
      passed.flatMap(({ answerId }) => {
        const found = findDocument.get(setId, answerId)
        return found ? [[answerId, found.document]] : []
      }),
    )
  }

  return {
    putAnswers(surveyId: number, drafts: readonly AnswerDraft[], now: number, cause: Cause) {
      const set = find.get(surveyId)
      if (!set) return { kind: 'not_found' } as const
      const judged = judgeDrafts(
        drafts,
        set.highestId,
        set.setId ? knownOf(set.setId, drafts, set.highestId) : new Map(),
      )
      if (judged.kind !== 'good') return judged
      const { answerIds, fresh } = judged
      const [first, last] = [fresh[0], fresh.at(-1)]
      if (first && last) {
        const setId = set.setId ?? Number(insertSet.run(surveyId, 0).lastInsertRowid)
        for (const { answerId, endSeconds, document } of fresh) insert.run(setId, answerId, endSeconds, document)
        for (const hour of byHour(fresh)) addHour.run({ ...hour, setId })
        updateSet.run(last.answerId, fresh.length, setId)
        const ids = { firstAnswerId: first.answerId, lastAnswerId: last.answerId }
        record({ kind: 'answers.imported', surveyId, ownerUserId: set.ownerUserId, ...ids }, now, cause)
      }
      return { kind: 'stored', answerIds, alreadyStored: drafts.length - fresh.length } as const
    },

    deleteAnswers(surveyId: number, answerIds: readonly number[] | undefined, now: number, cause: Cause) {
      const set = find.get(surveyId)
      if (!set) return { kind: 'not_found' } as const
      const { setId, highestId, ownerUserId } = set
      const unknown = answerIds?.find((answerId) => answerId > highestId)
      if (unknown !== undefined) return { kind: 'not_found', answerId: unknown } as const
      const happened = { kind: 'answers.deleted', surveyId, ownerUserId } as const
      if (setId === null || (!answerIds && set.total === 0))
        return { kind: 'deleted', deleted: 0, alreadyDeleted: 0 } as const
      if (!answerIds) {
        forsake.run(setId)
        insertSet.run(surveyId, highestId)
        record({ ...happened, firstAnswerId: 1, lastAnswerId: highestId }, now, cause)
        return { kind: 'deleted', deleted: set.total, alreadyDeleted: 0 } as const
      }
      const ids = [...new Set(answerIds)]
      const removed = ids.flatMap((answerId) => remove.get(setId, answerId) ?? [])
      for (const { hour, answers } of byHour(removed)) lessenHour.run(answers, setId, hour)
      updateSet.run(highestId, -removed.length, setId)
      for (const { answerId } of removed)
        record({ ...happened, firstAnswerId: answerId, lastAnswerId: answerId }, now, cause)
      return { kind: 'deleted', deleted: removed.length, alreadyDeleted: ids.length - removed.length } as const
    },
  }
}

export function answerUpkeep(db: Connection) {
  const findSet = db.prepare<[], { readonly setId: number }>(
    // Index of survey_id.
    'SELECT set_id AS setId FROM answer_sets WHERE survey_id IS NULL LIMIT 1',
  )
  const removeFrom = (table: 'answers' | 'answer_hours', key: string) =>
    db.prepare<{ readonly setId: number; readonly limit: number }>(
      // Primary key.
      `DELETE FROM ${table} WHERE set_id = :setId
         AND ${key} IN (SELECT ${key} FROM ${table} WHERE set_id = :setId ORDER BY ${key} LIMIT :limit)`,
    )
  const parts = [removeFrom('answers', 'answer_id'), removeFrom('answer_hours', 'hour')]
  const removeSet = db.prepare<[number]>('DELETE FROM answer_sets WHERE set_id = ?') // primary key
  const keepKey = db.prepare<[Uint8Array]>('INSERT OR IGNORE INTO respondent_keys (only_row, key) VALUES (1, ?)')
  const findKey = db.prepare<[], Uint8Array>('SELECT key FROM respondent_keys WHERE only_row = 1').pluck()
  return {
    removeAnswers({ limit }: { readonly limit: number }): number {
      const set = findSet.get()
      if (!set) return 0
      let removed = 0
      for (const part of parts) removed += part.run({ ...set, limit: limit - removed }).changes
      if (removed < limit) removed += removeSet.run(set.setId).changes
      return removed
    },

    respondentKey(candidate: Uint8Array): Uint8Array {
      keepKey.run(candidate)
      return findKey.get() ?? candidate
    },
  }
}
