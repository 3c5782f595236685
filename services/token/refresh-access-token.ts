import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { RefreshAccessTokenRequest, RefreshAccessTokenResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causedBy } from '../store/cause.js'
import {
  invalidAppid,
  invalidSecret,
  type RecallSecret,
  recordUse,
  requireApp,
  requireSecret,
} from './app-authentication.js'
import { hashCredential, newCredential, placeOf } from './credentials.js'
import type { TokenDeps } from './deps.js'

const invalidRefreshToken = () =>
  new ServiceError(
    ErrorReason.INVALID_REFRESH_TOKEN,
    'the refresh_token is unknown, expired, revoked or not for this app',
  )
const secretNeeded = () => new ServiceError(ErrorReason.INVALID_SECRET, 'this app must send its secret with a refresh')

/** A new access token for a grant (spec 4.3; decisions 11 to 13). */
export function refreshAccessToken(deps: TokenDeps, recallSecret: RecallSecret) {
  return async (request: RefreshAccessTokenRequest, call: Call): Promise<RefreshAccessTokenResponse> => {
    const { appid } = request
    const refreshTokenHash = hashCredential('refreshToken', request.refreshToken)
    if (!refreshTokenHash) {
      if (request.secret !== '') await requireSecret(deps, appid, request.secret)
      else if ((await requireApp(deps, appid)).requiresSecretOnRefresh) throw secretNeeded()
      throw invalidRefreshToken()
    }

    const secret = request.secret === '' ? undefined : await recallSecret(appid, request.secret)
    const accessToken = newCredential('accessToken', deps.randomBytes, placeOf(refreshTokenHash))
    const now = deps.now()
    const { rules } = deps
    const result = await deps.store.mintAccessToken(
      {
        refreshTokenHash,
        appid,
        secretId: secret?.secretId,
        accessTokenHash: accessToken.hash,
        accessTokenExpiresAtMs: now + rules.accessTokenTtlSeconds * 1000,
        overlapMs: rules.accessTokenOverlapSeconds * 1000,
        maxLive: rules.maxLiveTokensPerGrant,
      },
      now,
      causedBy('app', call),
    )
    if (secret && (result === 'minted' || result === 'refused')) recordUse(deps, secret)
    switch (result) {
      case 'minted':
        return {
          $typeName: 'surveyauth.v1.RefreshAccessTokenResponse',
          accessToken: accessToken.text,
          expiresIn: rules.accessTokenTtlSeconds,
        }
      case 'refused':
        throw invalidRefreshToken()
      case 'app_ended':
        throw invalidAppid()
      case 'secret_ended':
        throw secret ? invalidSecret() : secretNeeded()
    }
  }
}
