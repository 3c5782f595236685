import type { Client } from '@connectrpc/connect'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Leases } from '../answers/leases.js'
import type { SurveyStore } from './store/survey-store.js'

/** What the handlers of SurveyService share. */
export interface SurveyDeps {
  readonly store: SurveyStore
  /** On what the store says; undefined where others write too. */
  readonly leases?: Leases | undefined
  /** TokenService, called as `survey`: whoever calls us, the token is verified there. */
  readonly token: Client<typeof TokenService>
  /** ms since 1970 UTC. */
  readonly now: () => number
}
