import { createHash } from 'node:crypto'
import { fromBinary, type MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import {
  type GetSurveyRequest,
  type GetSurveyResponseSchema,
  type Survey,
  SurveySchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import type { SurveyRow } from './store/survey-store.js'
import { verify } from './verify.js'

/** One survey of the token's user (spec 4.5). */
export function getSurvey(deps: SurveyDeps) {
  return async (request: GetSurveyRequest, call: Call): Promise<MessageInitShape<typeof GetSurveyResponseSchema>> => {
    const { userId, openid } = await verify(deps, request, call)
    const row = await deps.store.findSurvey(Number(request.surveyId))
    if (!row || row.ownerUserId !== userId) {
      throw new ServiceError(ErrorReason.SURVEY_NOT_FOUND, 'there is no such survey of this user')
    }
    return { survey: toSurvey(row), creatorUserId: creatorUserId(openid) }
  }
}

const decoded = new WeakMap<SurveyRow, Survey>()

/** A row that the store returns again is decoded once. Nobody may change the message. */
export function toSurvey(row: SurveyRow): Survey {
  const known = decoded.get(row)
  if (known) return known
  const survey = fromBinary(SurveySchema, row.document)
  survey.id = BigInt(row.surveyId)
  survey.hash = row.hash
  decoded.set(row, survey)
  return survey
}

/** The public survey shape names its creator by number; this one follows from the openid, so apps cannot compare theirs. */
function creatorUserId(openid: string): bigint {
  return BigInt(createHash('sha256').update(openid).digest().readUIntBE(0, 6))
}
