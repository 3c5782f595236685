import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { VerifyAccessTokenRequest, VerifyAccessTokenResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { TokenDeps } from './deps.js'
import { requireAccessToken } from './require-access-token.js'

export function verifyAccessToken(deps: TokenDeps) {
  return async (request: VerifyAccessTokenRequest): Promise<VerifyAccessTokenResponse> => {
    const { userId, openid, scope, expiresAtMs, grantId, externalId } = await requireAccessToken(deps, request)
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
