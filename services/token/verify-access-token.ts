import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { VerifyAccessTokenRequest, VerifyAccessTokenResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { onceForEach } from '../collections/once-for-each.js'
import { NO_VALIDATOR, requireAccessToken } from './access-token.js'
import type { TokenDeps } from './deps.js'
import type { AccessTokenRow } from './store/token-store.js'

export function verifyAccessToken(deps: TokenDeps) {
  return async (request: VerifyAccessTokenRequest): Promise<VerifyAccessTokenResponse> => {
    const { token, validator } = await requireAccessToken(deps, request)
    const answer = answerOf(token)
    return validator.length === 0 ? answer : { ...answer, validator }
  }
}

/** The answer without a validator; the same message object when the store returns the same row again. */
const answerOf = onceForEach(
  ({ userId, openid, scope, expiresAtMs, grantId }: AccessTokenRow): VerifyAccessTokenResponse => ({
    $typeName: 'surveyauth.v1.VerifyAccessTokenResponse',
    userId,
    openid,
    scope,
    expireTime: timestampFromMs(expiresAtMs),
    grantId,
    validator: NO_VALIDATOR,
  }),
)
