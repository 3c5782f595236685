// What a survey provider answers is checked record by record: an operator has to find the one that is wrong.
import { create } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import {
  GetSurveyRequestSchema,
  GetSurveyResponseSchema,
  ListAnswersRequestSchema,
  ListAnswersResponseSchema,
  ListSurveysRequestSchema,
  ListSurveysResponseSchema,
} from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { answersIn, surveyIn, surveysIn } from '../../services/survey/provider/received.js'

const owner = { externalId: 'ana' }
const title = 'x'.repeat(1_001)
const asked = create(GetSurveyRequestSchema, { owner, surveyId: 7n })
const surveyOf = (survey: object) => () => surveyIn(asked, create(GetSurveyResponseSchema, { owner, survey }))
const listOf = (survey: object) => () =>
  surveysIn(
    create(ListSurveysRequestSchema, { owner, limit: 9 }),
    create(ListSurveysResponseSchema, { surveys: [{ survey, owner }] }),
  )
const answersOf = (answer: object) => () =>
  answersIn(
    create(ListAnswersRequestSchema, { owner, surveyId: 7n, limit: 9 }),
    create(ListAnswersResponseSchema, { owner, answers: [answer] }),
  )
const endTime = { seconds: 1_767_225_600n }
/** 18 pages of 1,000 questions, of which the last options above make too many. */
const manyQuestions = Array.from({ length: 18 }, () => ({
  questions: Array.from({ length: 1_000 }, () => ({ options: [] })),
}))

test.each([
  ['a title', surveyOf({ id: 7n, title }), /^survey 7: title: /],
  [
    'an end before the start',
    surveyOf({ id: 7n, startTime: { seconds: 9n }, endTime: { seconds: 8n } }),
    /^survey 7: endTime is before startTime$/,
  ],
  ['a title in a list', listOf({ id: 8n, title }), /^survey 8: title: /],
  ['an answer', answersOf({ answerId: 5n, surveyId: 7n, endTime, score: Number.NaN }), /^answer 5 to survey 7: score /],
  ['an answer without an end', answersOf({ answerId: 5n, surveyId: 7n }), /^answer 5 to survey 7: endTime is missing/],
  [
    'an answer of very many parts',
    answersOf({
      answerId: 5n,
      surveyId: 7n,
      endTime,
      pages: [{ questions: [{ options: Array(2_000).fill({}) }] }].concat(manyQuestions),
    }),
    /^answer 5 to survey 7: at most 20000 questions, options, groups and blanks$/,
  ],
])('%s that is wrong is told with the id of its record', (_, read, message) => {
  expect(read).toThrow(message)
})
