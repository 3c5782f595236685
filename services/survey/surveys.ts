// What SurveyService reads, wherever it is: in our own database, or at the provider of a platform.
import type { Survey, SurveySummary } from '../../gen/surveyauth/v1/survey_pb.js'
import type { Call } from '../rpc/dispatcher.js'
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

/** @throws StoreUnavailable, or ServiceError UNAVAILABLE, when they cannot be read now */
export interface Surveys {
  listSurveys(owner: Owner, window: Window, call: Call): Promise<SurveyPage>
  /** undefined unless the owner has it. Nobody may change the message. */
  findSurvey(owner: Owner, surveyId: number, call: Call): Promise<Survey | undefined>
}
