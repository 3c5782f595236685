import { createHash } from 'node:crypto'
import { create, fromBinary } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { type Survey, SurveySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import {
  type GetSurveyRequest,
  type GetSurveyResponse,
  GetSurveyResponseSchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { onceForEach } from './once-for-each.js'
import type { SurveyRow } from './store/survey-store.js'
import { verify } from './verify.js'

/** One survey of the token's user (spec 4.5). */
export function getSurvey(deps: SurveyDeps) {
  return async (request: GetSurveyRequest, call: Call): Promise<GetSurveyResponse> => {
    const { userId, openid } = await verify(deps, request, call)
    const row = await deps.store.findSurvey(Number(request.surveyId))
    if (!row || row.ownerUserId !== userId) {
      throw new ServiceError(ErrorReason.SURVEY_NOT_FOUND, 'there is no such survey of this user')
    }
    return responseOf(row, openid)
  }
}

const responses = new WeakMap<SurveyRow, { readonly openid: string; readonly response: GetSurveyResponse }>()

/** Made once for a row object that the store returns again, as long as the same openid asks: a hash is most of what it costs. */
function responseOf(row: SurveyRow, openid: string): GetSurveyResponse {
  const known = responses.get(row)
  if (known?.openid === openid) return known.response
  const survey = toSurvey(row)
  const response = create(GetSurveyResponseSchema, { survey, creatorUserId: creatorUserId(openid) })
  responses.set(row, { openid, response })
  return response
}

/** Decoded once for a row object that the store returns again. Nobody may change the message. */
export const toSurvey = onceForEach(({ document, surveyId, hash }: SurveyRow): Survey => {
  const survey = fromBinary(SurveySchema, document)
  survey.id = BigInt(surveyId)
  survey.hash = hash
  return survey
})

/** Surveys name their creator by number. It is derived from the openid, so that apps cannot join their users by it. */
function creatorUserId(openid: string): bigint {
  return BigInt(createHash('sha256').update(openid).digest().readUIntBE(0, 6))
}
