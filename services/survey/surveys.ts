// What SurveyService reads, wherever it is: in our own database, or at the provider of a platform.
import type { Answer } from '../../gen/surveyauth/v1/answer_pb.js'
import type { Survey, SurveySummary } from '../../gen/surveyauth/v1/survey_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import type { AnswerPage } from './store/answer-store.js'
import type { Window } from './store/survey-store.js'

/** A user, by both ids: ours, and the platform's, which is empty if there is none. */
export interface Owner {
  readonly userId: string
  readonly externalId: string
}

/** Part of a list, ascending by id; `total` counts all surveys of the owner. Nobody may change it. */
export interface SurveyPage {
  readonly surveys: SurveySummary[]
  readonly total: number
}

/** Part of the answers to a survey, ascending by id, with the platform's ids of respondents; `total` counts those in its interval. */
export interface Answers {
  readonly answers: readonly Answer[]
  readonly total: number
}

/** @throws StoreUnavailable, or ServiceError UNAVAILABLE, when they cannot be read now */
export interface Surveys {
  listSurveys(owner: Owner, window: Window, call: Call): Promise<SurveyPage>
  /** undefined unless the owner has it. Nobody may change the message. */
  findSurvey(owner: Owner, surveyId: number, call: Call): Promise<Survey | undefined>
}

/** @throws as Surveys */
export interface SurveyAnswers {
  /** undefined unless the owner has the survey. */
  listAnswers(owner: Owner, surveyId: number, page: AnswerPage, call: Call): Promise<Answers | undefined>
  /** undefined unless the owner has the survey, and it that answer. */
  findAnswer(owner: Owner, surveyId: number, answerId: number, call: Call): Promise<Answer | undefined>
}
