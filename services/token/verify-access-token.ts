import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { VerifyAccessTokenRequest, VerifyAccessTokenResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
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

const answers = new WeakMap<AccessTokenRow, VerifyAccessTokenResponse>()

/** Without a validator; the same message when the store returns the same row again. */
function answerOf(row: AccessTokenRow): VerifyAccessTokenResponse {
  const known = answers.get(row)
  if (known) return known
  const { userId, openid, scope, expiresAtMs, grantId } = row
  const answer: VerifyAccessTokenResponse = {
    $typeName: 'surveyauth.v1.VerifyAccessTokenResponse',
    userId,
    openid,
    scope,
    expireTime: timestampFromMs(expiresAtMs),
    grantId,
    validator: NO_VALIDATOR,
  }
  answers.set(row, answer)
  return answer
}
