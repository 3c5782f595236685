import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../rpc/service-error.js'
import { requireApp } from './app-authentication.js'
import { PresentedCredential } from './credentials.js'
import type { TokenDeps } from './deps.js'
import type { AccessTokenRow } from './store/token-store.js'

const invalidToken = () =>
  new ServiceError(
    ErrorReason.INVALID_TOKEN,
    'the access_token is unknown, expired, replaced, revoked or not for this app',
  )

/**
 * The good access token this is; counts as a use of its grant. An openid that is not empty must be its user's.
 * @throws ServiceError INVALID_APPID, INVALID_TOKEN, CLAIM_ERROR
 */
export async function requireAccessToken(
  deps: TokenDeps,
  presented: { readonly appid: string; readonly accessToken: string; readonly openid: string },
): Promise<AccessTokenRow> {
  const token = await deps.store.findAccessToken(new PresentedCredential('accessToken', presented.accessToken))
  const now = deps.now()
  if (!token || token.appid !== presented.appid || token.isRevoked || now >= token.expiresAtMs) {
    await requireApp(deps, presented.appid) // an unknown or disabled app is told so first
    throw invalidToken()
  }
  if (presented.openid !== '' && presented.openid !== token.openid) {
    throw new ServiceError(ErrorReason.CLAIM_ERROR, 'the openid is not that of the access_token')
  }
  deps.uses.grantUsed(token.grantId, now, token.grantLastUsedAtMs)
  return token
}
