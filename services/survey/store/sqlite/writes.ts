import type { Cause } from '../../../storage/cause.js'
import type { Kept } from '../../../storage/sqlite/kept.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import {
  higherId,
  NEW_IDS_END,
  NOBODY,
  nextId,
  type SurveyDraft,
  type SurveyStore,
  type SurveySummaryRow,
  surveyHash,
} from '../survey-store.js'
import type { RecordEvent } from './events.js'

type PutResult = Awaited<ReturnType<SurveyStore['putSurveys']>>
type DeleteResult = Awaited<ReturnType<SurveyStore['deleteSurveys']>>

/** Every write of the survey store over one connection, its statements prepared: each runs inside a transaction. */
export function surveyStoreWrites(db: Connection, kept: Pick<Kept<object>, 'forgetAll'>, record: RecordEvent) {
  const findOwner = db.prepare<[number], { ownerUserId: string }>(
    // Primary key.
    'SELECT owner_user_id AS ownerUserId FROM surveys WHERE survey_id = ?',
  )
  const findHighest = db.prepare<[], { surveyId: number }>(
    // Primary key, backwards.
    `SELECT survey_id AS surveyId FROM surveys WHERE survey_id < ${NEW_IDS_END} ORDER BY survey_id DESC LIMIT 1`,
  )
  const put = db.prepare<[SurveyDraft & { readonly ownerUserId: string }]>(
    // Primary key.
    `INSERT INTO surveys (survey_id, owner_user_id, hash, title, state, document)
     VALUES (:surveyId, :ownerUserId, :hash, :title, :state, :document)
     ON CONFLICT (survey_id) DO UPDATE SET owner_user_id = excluded.owner_user_id, hash = excluded.hash,
       title = excluded.title, state = excluded.state, document = excluded.document`,
  )
  const empty = db.prepare<[number]>(
    // Primary key.
    `UPDATE surveys SET owner_user_id = '${NOBODY}', hash = '', title = '', state = 0, document = x''
     WHERE survey_id = ?`,
  )

  const forsake = db.prepare<[number]>(
    // Index of survey_id.
    'UPDATE answer_sets SET survey_id = NULL WHERE survey_id = ?',
  )

  return {
    putSurveys(ownerUserId: string, drafts: readonly SurveyDraft[], now: number, cause: Cause): PutResult {
      kept.forgetAll()
      const replaced = new Set<number>()
      for (const { surveyId } of drafts) {
        const owner = surveyId === 0 ? NOBODY : (findOwner.get(surveyId)?.ownerUserId ?? NOBODY)
        if (owner === ownerUserId) replaced.add(surveyId)
        else if (owner !== NOBODY) return { kind: 'id_taken', surveyId }
      }
      let highestId = drafts.reduce((id, draft) => higherId(id, draft.surveyId), findHighest.get()?.surveyId ?? 0)
      const rows = drafts.map((draft): SurveySummaryRow => {
        const surveyId = draft.surveyId === 0 ? nextId(highestId) : draft.surveyId
        highestId = higherId(highestId, surveyId)
        const row = { surveyId, hash: draft.hash || surveyHash(surveyId), title: draft.title, state: draft.state }
        put.run({ ...row, document: draft.document, ownerUserId })
        record(
          { kind: replaced.has(surveyId) ? 'survey.replaced' : 'survey.created', surveyId, ownerUserId },
          now,
          cause,
        )
        return row
      })
      return { kind: 'stored', rows }
    },

    deleteSurveys(surveyIds: readonly number[], now: number, cause: Cause): DeleteResult {
      kept.forgetAll()
      const found = surveyIds.map((surveyId) => [surveyId, findOwner.get(surveyId)?.ownerUserId] as const)
      const missing = found.find(([, ownerUserId]) => ownerUserId === undefined)
      if (missing) return { kind: 'not_found', surveyId: missing[0] }
      const owners = new Map(found)
      const there = [...owners].filter(([, ownerUserId]) => ownerUserId !== NOBODY)
      for (const [surveyId, ownerUserId = NOBODY] of there) {
        empty.run(surveyId)
        forsake.run(surveyId)
        record({ kind: 'survey.deleted', surveyId, ownerUserId }, now, cause)
      }
      return { kind: 'deleted', alreadyDeleted: owners.size - there.length }
    },
  }
}
