import type { MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { DeleteSurveysRequest, DeleteSurveysResponseSchema } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causeOf } from './cause.js'
import type { SurveyDeps } from './deps.js'

/** Deletes surveys, all or none. */
export function deleteSurveys(deps: SurveyDeps) {
  return async (
    { surveyIds }: DeleteSurveysRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof DeleteSurveysResponseSchema>> => {
    const result = await deps.store.deleteSurveys(surveyIds.map(Number), deps.now(), causeOf(call))
    if (result.kind === 'not_found') {
      throw new ServiceError(ErrorReason.NOT_FOUND, `there is no survey ${result.surveyId}`)
    }
    return { alreadyDeleted: result.alreadyDeleted }
  }
}
