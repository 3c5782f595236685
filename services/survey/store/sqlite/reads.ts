import type { Kept } from '../../../storage/sqlite/kept.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import {
  type ExportPage,
  NOBODY,
  type OwnedSummaryRow,
  type SurveyList,
  type SurveyRow,
  type SurveySummaryRow,
  type Window,
} from '../survey-store.js'
import { sizeOfList, sizeOfSurvey } from './kept-sizes.js'
import { upToBytes } from './up-to-bytes.js'

const SUMMARY = 'survey_id AS surveyId, hash, title, state'
const OWNED_SUMMARY = `${SUMMARY}, owner_user_id AS ownerUserId`
const WHOLE = 'survey_id AS surveyId, owner_user_id AS ownerUserId, hash, document'

/** Every read of the survey store over one connection, its statements prepared. */
export function surveyStoreReads(db: Connection, kept: Kept<object>) {
  const find = db.prepare<[number], SurveyRow>(
    // Primary key.
    `SELECT ${WHOLE} FROM surveys WHERE survey_id = ? AND owner_user_id <> '${NOBODY}'`,
  )
  const count = db.prepare<[string], { total: number }>(
    // Index surveys_by_owner, alone.
    'SELECT count(*) AS total FROM surveys WHERE owner_user_id = ?',
  )
  const list = db.prepare<[string, number, number], SurveySummaryRow>(
    // Index surveys_by_owner; rows skipped by the offset are not fetched.
    `SELECT ${SUMMARY} FROM surveys WHERE owner_user_id = +? ORDER BY survey_id LIMIT +? OFFSET +?`,
  )
  const exportAll = db.prepare<[number, number], SurveyRow>(
    // Primary key.
    `SELECT ${WHOLE} FROM surveys WHERE survey_id > ? AND owner_user_id <> '${NOBODY}' ORDER BY survey_id LIMIT ?`,
  )
  const exportOwned = db.prepare<[string, number, number], SurveyRow>(
    // Index surveys_by_owner.
    `SELECT ${WHOLE} FROM surveys WHERE owner_user_id = ? AND survey_id > ? ORDER BY survey_id LIMIT ?`,
  )
  const summariesOfAll = db.prepare<[number, number], OwnedSummaryRow>(
    // Primary key.
    `SELECT ${OWNED_SUMMARY} FROM surveys WHERE survey_id > ? AND owner_user_id <> '${NOBODY}' ORDER BY survey_id LIMIT ?`,
  )
  const summariesOfOwner = db.prepare<[string, number, number], OwnedSummaryRow>(
    // Index surveys_by_owner.
    `SELECT ${OWNED_SUMMARY} FROM surveys WHERE owner_user_id = ? AND survey_id > ? ORDER BY survey_id LIMIT ?`,
  )

  /** One read transaction: total and rows are of the same moment, whatever other processes write. */
  const readList = db.transaction((ownerUserId: string, { offset, limit }: Window) => ({
    total: count.get(ownerUserId)?.total ?? 0,
    rows: list.all(ownerUserId, limit, offset),
  }))

  return {
    findSurvey: (surveyId: number) => kept.find(`survey ${surveyId}`, () => find.get(surveyId), sizeOfSurvey),

    listSurveys(ownerUserId: string, window: Window): SurveyList {
      const key = `list ${window.offset} ${window.limit} ${ownerUserId}`
      return kept.find(key, () => readList(ownerUserId, window), sizeOfList) ?? { total: 0, rows: [] }
    },

    exportSurveys(ownerUserId: string | undefined, { afterId, limit, maxBytes }: ExportPage): readonly SurveyRow[] {
      const found =
        ownerUserId === undefined ? exportAll.iterate(afterId, limit) : exportOwned.iterate(ownerUserId, afterId, limit)
      return upToBytes(maxBytes, found)
    },

    exportSummaries(
      ownerUserId: string | undefined,
      { afterId, limit }: Pick<ExportPage, 'afterId' | 'limit'>,
    ): readonly OwnedSummaryRow[] {
      return ownerUserId === undefined
        ? summariesOfAll.all(afterId, limit)
        : summariesOfOwner.all(ownerUserId, afterId, limit)
    },
  }
}
