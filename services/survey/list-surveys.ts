import { create } from '@bufbuild/protobuf'
import {
  type ListSurveysRequest,
  type ListSurveysResponse,
  ListSurveysResponseSchema,
  type SurveySummary,
  SurveySummarySchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { onceForEach } from '../collections/once-for-each.js'
import type { Call } from '../rpc/dispatcher.js'
import type { SurveyDeps } from './deps.js'
import type { SurveyList, SurveySummaryRow } from './store/survey-store.js'
import { verify } from './verify.js'

/** decisions 24: more is clamped, not refused. */
const MAX_PER_PAGE = 100

/** The surveys of the token's user (spec 4.5), ascending by id. */
export function listSurveys(deps: SurveyDeps) {
  return async (request: ListSurveysRequest, call: Call): Promise<ListSurveysResponse> => {
    const { userId } = await verify(deps, request, call)
    const limit = Math.min(request.perPage, MAX_PER_PAGE)
    return responseOf(await deps.store.listSurveys(userId, { offset: (request.page - 1) * limit, limit }))
  }
}

/** The same message when the store returns the same page again, so that it is encoded once. */
const responseOf = onceForEach(
  ({ total, rows }: SurveyList): ListSurveysResponse =>
    create(ListSurveysResponseSchema, { total, list: rows.map(toSummary) }),
)

export function toSummary({ surveyId, hash, title, state }: SurveySummaryRow): SurveySummary {
  return create(SurveySummarySchema, { id: BigInt(surveyId), hash, title, state })
}
