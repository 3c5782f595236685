import { create } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { type SurveySummary, SurveySummarySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import type { ListSurveysRequest, ListSurveysResponse } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { onceForEach } from './once-for-each.js'
import type { SurveyList, SurveySummaryRow } from './store/survey-store.js'
import { verify } from './verify.js'

const MAX_PAGE_SIZE = 100

/** The surveys of the token's user (spec 4.5), ascending by id. */
export function listSurveys(deps: SurveyDeps) {
  return async (request: ListSurveysRequest, call: Call): Promise<ListSurveysResponse> => {
    const { userId } = await verify(deps, request, call)
    const limit = Math.min(request.pageSize || MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    const offset = offsetOf(request.pageToken) + request.skip
    const found = await deps.store.listSurveys(userId, { offset, limit })
    const end = offset + found.rows.length
    return {
      $typeName: 'surveyauth.v1.ListSurveysResponse',
      surveys: summariesOf(found),
      nextPageToken: end < found.total && found.rows.length > 0 ? String(end) : '',
      totalSize: found.total,
    }
  }
}

/** A page token is the number of surveys before the page. @throws ServiceError INVALID_ARGUMENT */
function offsetOf(pageToken: string): number {
  if (!/^\d{0,10}$/.test(pageToken)) throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'the page token is not valid')
  return Number(pageToken)
}

/** The same messages when the store returns the same page again, so that callers can keep what they made of them. */
const summariesOf = onceForEach(({ rows }: SurveyList): SurveySummary[] => rows.map(toSummary))

export function toSummary({ surveyId, hash, title, state }: SurveySummaryRow): SurveySummary {
  return create(SurveySummarySchema, { id: BigInt(surveyId), hash, title, state })
}
