import { create, fromBinary } from '@bufbuild/protobuf'
import {
  type Survey,
  SurveySchema,
  type SurveySummary,
  SurveySummarySchema,
} from '../../gen/surveyauth/v1/survey_pb.js'
import { onceForEach } from './once-for-each.js'
import type { SurveyList, SurveyRow, SurveyStore, SurveySummaryRow } from './store/survey-store.js'
import type { Surveys } from './surveys.js'

/** The surveys of our own database, which knows owners by `userId`. */
export function storedSurveys(store: Pick<SurveyStore, 'findSurvey' | 'listSurveys'>): Surveys {
  return {
    async listSurveys({ userId }, window) {
      const found = await store.listSurveys(userId, window)
      return { surveys: summariesOf(found), total: found.total }
    },
    async findSurvey({ userId }, surveyId) {
      const row = await store.findSurvey(surveyId)
      return row && row.ownerUserId === userId ? toSurvey(row) : undefined
    },
  }
}

/** The same messages when the store returns the same page again, so that callers can keep what they made of them. */
const summariesOf = onceForEach(({ rows }: SurveyList): SurveySummary[] => rows.map(toSummary))

export function toSummary({ surveyId, hash, title, state }: SurveySummaryRow): SurveySummary {
  return create(SurveySummarySchema, { id: BigInt(surveyId), hash, title, state })
}

/** Decoded once for a row object that the store returns again. Nobody may change the message. */
export const toSurvey = onceForEach(({ document, surveyId, hash }: SurveyRow): Survey => {
  const survey = fromBinary(SurveySchema, document)
  survey.id = BigInt(surveyId)
  survey.hash = hash
  return survey
})
