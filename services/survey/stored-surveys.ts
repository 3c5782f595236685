import { create, fromBinary } from '@bufbuild/protobuf'
import { type Answer, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import {
  type Survey,
  SurveySchema,
  type SurveySummary,
  SurveySummarySchema,
} from '../../gen/surveyauth/v1/survey_pb.js'
import { onceForEach } from './once-for-each.js'
import type { AnswerRow } from './store/answer-store.js'
import type { SurveyList, SurveyRow, SurveyStore, SurveySummaryRow } from './store/survey-store.js'
import type { SurveyAnswers, Surveys } from './surveys.js'

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

/** The answers to them. */
export function storedAnswers(store: Pick<SurveyStore, 'listAnswers' | 'findAnswer'>): SurveyAnswers {
  return {
    async listAnswers({ userId }, surveyId, page) {
      const found = await store.listAnswers({ surveyId, ownerUserId: userId }, page)
      return found && { answers: found.rows.map((row) => toAnswer(surveyId, row)), total: found.total }
    },
    async findAnswer({ userId }, surveyId, answerId) {
      const row = await store.findAnswer({ surveyId, ownerUserId: userId }, answerId)
      return row && toAnswer(surveyId, row)
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

export function toAnswer(surveyId: number, { answerId, document }: AnswerRow): Answer {
  const answer = fromBinary(AnswerSchema, document)
  answer.answerId = BigInt(answerId)
  answer.surveyId = BigInt(surveyId)
  return answer
}
