import { createHash } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { Survey } from '../../gen/surveyauth/v1/survey_pb.js'
import {
  type GetSurveyRequest,
  type GetSurveyResponse,
  GetSurveyResponseSchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { ReadDeps } from './deps.js'
import { verify } from './verify.js'

/** One survey of the token's user (spec 4.5). */
export function getSurvey(deps: ReadDeps) {
  return async (request: GetSurveyRequest, call: Call): Promise<GetSurveyResponse> => {
    const user = await verify(deps, request, call)
    const survey = await deps.surveys.findSurvey(user, Number(request.surveyId), call)
    if (!survey) throw new ServiceError(ErrorReason.SURVEY_NOT_FOUND, 'there is no such survey of this user')
    return responseOf(survey, user.openid)
  }
}

const responses = new WeakMap<Survey, { readonly openid: string; readonly response: GetSurveyResponse }>()

/** Made once for a message that is returned again, as long as the same openid asks: a hash is most of what it costs. */
function responseOf(survey: Survey, openid: string): GetSurveyResponse {
  const known = responses.get(survey)
  if (known?.openid === openid) return known.response
  const response = create(GetSurveyResponseSchema, { survey, creatorUserId: creatorUserId(openid) })
  responses.set(survey, { openid, response })
  return response
}

/** Surveys name their creator by number. It is derived from the openid, so that apps cannot join their users by it. */
function creatorUserId(openid: string): bigint {
  return BigInt(createHash('sha256').update(openid).digest().readUIntBE(0, 6))
}
