import type { MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { ExportAnswersRequest, ExportAnswersResponseSchema } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { pageOf } from './list-answers.js'
import { toAnswer } from './stored-surveys.js'

/** Answers as they are stored, ascending by id. */
export function exportAnswers({ store }: SurveyDeps) {
  return async (request: ExportAnswersRequest): Promise<MessageInitShape<typeof ExportAnswersResponseSchema>> => {
    const surveyId = Number(request.surveyId)
    const found = await store.listAnswers({ surveyId }, pageOf(request))
    if (!found) throw new ServiceError(ErrorReason.NOT_FOUND, `there is no survey ${surveyId}`)
    return { answers: found.rows.map((row) => toAnswer(surveyId, row)), totalSize: BigInt(found.total) }
  }
}
