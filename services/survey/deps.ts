import type { Client } from '@connectrpc/connect'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { ReadRecorder } from './read-recorder.js'
import type { Respondents } from './respondents.js'
import type { SurveyStore } from './store/survey-store.js'
import type { SurveyAnswers, Surveys } from './surveys.js'

/** What the handlers share that apps' users cause to be called. */
export interface ReadDeps {
  readonly surveys: Surveys
  /** TokenService, called as `survey`: tokens are verified there, whoever calls us. */
  readonly token: Client<typeof TokenService>
}

/** What those share that hand out answers. */
export interface AnswerDeps extends Pick<ReadDeps, 'token'> {
  readonly answers: SurveyAnswers
  readonly respondents: Respondents
  readonly reads: ReadRecorder
  /** ms since 1970 UTC. */
  readonly now: () => number
}

/** What those share that are for operators and the services that write surveys. */
export interface SurveyDeps {
  readonly store: SurveyStore
  /** ms since 1970 UTC. */
  readonly now: () => number
}
