import type { Client } from '@connectrpc/connect'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { SurveyStore } from './store/survey-store.js'

/** What the handlers of SurveyService share. */
export interface SurveyDeps {
  readonly store: SurveyStore
  /** TokenService, called as `survey`: tokens are verified there, whoever calls us. */
  readonly token: Client<typeof TokenService>
  /** ms since 1970 UTC. */
  readonly now: () => number
}
