import { type MessageInitShape, toBinary } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import {
  type ImportSurveysRequest,
  type ImportSurveysResponseSchema,
  type Survey,
  SurveySchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { toSummary } from './list-surveys.js'
import type { SurveyDraft } from './store/survey-store.js'

/** Stores surveys of one user, all or none. */
export function importSurveys(deps: SurveyDeps) {
  return async (request: ImportSurveysRequest): Promise<MessageInitShape<typeof ImportSurveysResponseSchema>> => {
    const now = deps.now()
    const ids = request.surveys.map((survey) => survey.id).filter((id) => id !== 0n)
    if (new Set(ids).size < ids.length) {
      throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'two of the surveys have the same id')
    }
    const drafts = request.surveys.map((survey) => toDraft(survey, now))
    const result = await deps.store.putSurveys(request.ownerUserId, drafts, now)
    if (result.kind === 'id_taken') {
      throw new ServiceError(ErrorReason.ALREADY_EXISTS, `survey ${result.surveyId} belongs to another user`)
    }
    return { surveys: result.rows.map(toSummary) }
  }
}

function toDraft(survey: Survey, now: number): SurveyDraft {
  const nowSeconds = BigInt(Math.floor(now / 1000))
  const document: Survey = {
    ...survey,
    id: 0n,
    hash: '',
    createTimeSeconds: survey.createTimeSeconds || nowSeconds,
    updateTimeSeconds: survey.updateTimeSeconds || nowSeconds,
  }
  return {
    surveyId: Number(survey.id),
    hash: survey.hash,
    title: survey.title,
    state: survey.state,
    document: toBinary(SurveySchema, document),
  }
}
