import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { ListSurveysRequest, ListSurveysResponse } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { ReadDeps } from './deps.js'
import { verify } from './verify.js'

const MAX_PAGE_SIZE = 100

/** The surveys of the token's user (spec 4.5), ascending by id. */
export function listSurveys(deps: ReadDeps) {
  return async (request: ListSurveysRequest, call: Call): Promise<ListSurveysResponse> => {
    const user = await verify(deps, request, call)
    const limit = Math.min(request.pageSize || MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    const offset = offsetOf(request.pageToken) + request.skip
    const { surveys, total } = await deps.surveys.listSurveys(user, { offset, limit }, call)
    const end = offset + surveys.length
    return {
      $typeName: 'surveyauth.v1.ListSurveysResponse',
      surveys,
      nextPageToken: end < total && surveys.length > 0 ? String(end) : '',
      totalSize: total,
    }
  }
}

/** A page token is the number of surveys before the page. @throws ServiceError INVALID_ARGUMENT */
function offsetOf(pageToken: string): number {
  if (!/^\d{0,10}$/.test(pageToken)) throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'the page token is not valid')
  return Number(pageToken)
}
