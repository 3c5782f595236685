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
import { areAnswersOn } from './permissions.js'
import { requireAccessToken } from './require-access-token.js'
import type { AccessTokenRow } from './store/token-store.js'

/** Counts as reading answers. @throws ServiceError ANSWERS_NOT_GRANTED */
function requireAnswers({ rules, uses, now }: TokenDeps, token: AccessTokenRow): void {
  if (!mayReadAnswers({ ...token, areAnswersOn: areAnswersOn(rules) })) {
    throw new ServiceError(
      ErrorReason.ANSWERS_NOT_GRANTED,
      'the user has not consented to answers being read, or the app may not ask for them',
    )
  }
  uses.answersRead(token.grantId, now(), token.answersReadAtMs)
}

export function verifyAccessToken(deps: TokenDeps) {
  return async (request: VerifyAccessTokenRequest): Promise<VerifyAccessTokenResponse> => {
    const token = await requireAccessToken(deps, request)
    if (request.permission === Permission.READ_ANSWERS) requireAnswers(deps, token)
    const { userId, openid, scope, expiresAtMs, grantId, externalId } = token
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
