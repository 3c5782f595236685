import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type {
  VerifyAccessTokenRequest,
  VerifyAccessTokenResponseSchema,
} from '../../gen/surveyauth/v1/token_service_pb.js'
import { requireAccessToken } from './access-token.js'
import type { TokenDeps } from './deps.js'

export function verifyAccessToken(deps: TokenDeps) {
  return async (
    request: VerifyAccessTokenRequest,
  ): Promise<MessageInitShape<typeof VerifyAccessTokenResponseSchema>> => {
    const { token, validator } = await requireAccessToken(deps, request)
    const { userId, openid, scope, expiresAtMs, grantId } = token
    return { userId, openid, scope, expireTime: timestampFromMs(expiresAtMs), grantId, validator }
  }
}
