import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { isGoodFor } from '../protocol/access-token.js'
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

interface Presented {
  readonly appid: string
  readonly accessToken: string
  readonly openid: string
}

/**
 * The presented access token if it is good; counts as a use of its grant. An openid that is not empty must be its user's.
 * @throws ServiceError INVALID_APPID, INVALID_TOKEN, CLAIM_ERROR
 */
export async function requireAccessToken(deps: TokenDeps, presented: Presented): Promise<AccessTokenRow> {
  const { appid, openid } = presented
  const credential = new PresentedCredential('accessToken', presented.accessToken)
  let token = await deps.store.findAccessToken(credential)
  if (!token || !isGoodFor(appid, token, deps.now())) {
    await requireApp(deps, appid) // an unknown or disabled app is told so first
    if (token?.isRevoked) token = await deps.store.findAccessToken(credential) // the app may have been enabled meanwhile
    if (!token || !isGoodFor(appid, token, deps.now())) throw invalidToken()
  }
  if (openid !== '' && openid !== token.openid) {
    throw new ServiceError(ErrorReason.CLAIM_ERROR, 'the openid is not that of the access_token')
  }
  deps.uses.grantUsed(token.grantId, deps.now(), token.grantLastUsedAtMs)
  return token
}
