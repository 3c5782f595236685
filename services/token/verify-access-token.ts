import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import {
  Permission,
  type VerifyAccessTokenRequest,
  type VerifyAccessTokenResponse,
} from '../../gen/surveyauth/v1/token_service_pb.js'
import { mayReadAnswers } from '../protocol/consent.js'
import { ServiceError } from '../rpc/service-error.js'
import type { TokenDeps } from './deps.js'
import { requireAccessToken } from './require-access-token.js'

const answersNotGranted = () =>
  new ServiceError(
    ErrorReason.ANSWERS_NOT_GRANTED,
    'the user has not consented to answers being read, or the app may not read them: send the user through authorization again',
  )

export function verifyAccessToken(deps: TokenDeps) {
  return async (request: VerifyAccessTokenRequest): Promise<VerifyAccessTokenResponse> => {
    const { userId, openid, scope, expiresAtMs, grantId, externalId } = await requireAccessToken(deps, request)
    const facts = { permissions: '', appReadsAnswers: false } as const // no grant has recorded a permission
    if (request.permission === Permission.READ_ANSWERS && !mayReadAnswers(facts)) throw answersNotGranted()
    const expireTime = timestampFromMs(expiresAtMs)
    return {
      $typeName: 'surveyauth.v1.VerifyAccessTokenResponse',
      userId,
      openid,
      scope,
      expireTime,
      grantId,
      externalId,
    }
  }
}
