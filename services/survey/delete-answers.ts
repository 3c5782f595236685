import type { MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { DeleteAnswersRequest, DeleteAnswersResponseSchema } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causeOf } from './cause.js'
import type { SurveyDeps } from './deps.js'

/** Deletes answers to a survey, all that are named or none. */
export function deleteAnswers(deps: SurveyDeps) {
  return async (
    { surveyId, answerIds, all }: DeleteAnswersRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof DeleteAnswersResponseSchema>> => {
    if (all === answerIds.length > 0)
      throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'either answer_ids or all must be given')
    const ids = all ? undefined : answerIds.map(Number)
    const result = await deps.store.deleteAnswers(Number(surveyId), ids, deps.now(), causeOf(call))
    if (result.kind === 'not_found') {
      const what =
        result.answerId === undefined ? `survey ${surveyId}` : `answer ${result.answerId} to survey ${surveyId}`
      throw new ServiceError(ErrorReason.NOT_FOUND, `there is no ${what}`)
    }
    return { deleted: BigInt(result.deleted), alreadyDeleted: result.alreadyDeleted }
  }
}
