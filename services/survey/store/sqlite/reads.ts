import type { Connection } from '../../../sqlite/open.js'
import type { SurveyRow, SurveySummaryRow } from '../survey-store.js'

const SUMMARY = 'survey_id AS surveyId, hash, title, state'
const WHOLE = 'survey_id AS surveyId, owner_user_id AS ownerUserId, version, hash, document'

/** Every read of the survey store over one connection, its statements prepared. */
export function surveyStoreReads(db: Connection) {
  const find = db.prepare<[number], SurveyRow>(
    // Primary key.
    `SELECT ${WHOLE} FROM surveys WHERE survey_id = ?`,
  )
  const count = db.prepare<[string], { total: number }>(
    // Index surveys_by_owner, alone.
    'SELECT count(*) AS total FROM surveys WHERE owner_user_id = ?',
  )
  const list = db.prepare<[string, number, number], SurveySummaryRow>(
    // Index surveys_by_owner; rows skipped by the offset are not fetched.
    `SELECT ${SUMMARY} FROM surveys WHERE owner_user_id = ? ORDER BY survey_id LIMIT ? OFFSET ?`,
  )
  const exportAll = db.prepare<[number, number], SurveyRow>(
    // Primary key.
    `SELECT ${WHOLE} FROM surveys WHERE survey_id > ? ORDER BY survey_id LIMIT ?`,
  )
  const exportOwned = db.prepare<[string, number, number], SurveyRow>(
    // Index surveys_by_owner.
    `SELECT ${WHOLE} FROM surveys WHERE owner_user_id = ? AND survey_id > ? ORDER BY survey_id LIMIT ?`,
  )

  return {
    findSurvey: (surveyId: number) => find.get(surveyId),

    /** One read transaction: both numbers are of the same moment, whatever other processes write. */
    listSurveys: db.transaction((ownerUserId: string, window: { readonly offset: number; readonly limit: number }) => ({
      total: count.get(ownerUserId)?.total ?? 0,
      rows: list.all(ownerUserId, window.limit, window.offset),
    })),

    exportSurveys(
      ownerUserId: string | undefined,
      page: { readonly afterId: number; readonly limit: number },
    ): readonly SurveyRow[] {
      return ownerUserId === undefined
        ? exportAll.all(page.afterId, page.limit)
        : exportOwned.all(ownerUserId, page.afterId, page.limit)
    },
  }
}
