import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { RefreshAccessTokenRequest, RefreshAccessTokenResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causedBy } from '../storage/cause.js'
import {
  invalidAppid,
  invalidSecret,
  type RecallSecret,
  recordUse,
  requireApp,
  requireSecret,
} from './app-authentication.js'
import { type Credential, deriveAccessToken, hashCredential, type Place, placeOf } from './credentials.js'
import type { TokenDeps } from './deps.js'

const invalidRefreshToken = () =>
  new ServiceError(
    ErrorReason.INVALID_REFRESH_TOKEN,
    'the refresh_token is unknown, expired, revoked or not for this app',
  )
const secretNeeded = () => new ServiceError(ErrorReason.INVALID_SECRET, 'this app must send its secret with a refresh')

/** An access token for a grant: a new one, or within a short time the same again (spec 4.3; decisions 11 to 13). */
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
    const now = deps.now()
    const { rules } = deps
    const accessToken = accessTokensOf(request.refreshToken, placeOf(refreshTokenHash))
    const result = await deps.store.mintAccessToken(
      {
        refreshTokenHash,
        appid,
        secretId: secret?.secretId,
        accessTokenHash: (grantId, expiresAtMs) => accessToken(grantId, expiresAtMs).hash,
        lifetimeMs: rules.accessTokenTtlSeconds * 1000,
        overlapMs: rules.accessTokenOverlapSeconds * 1000,
      },
      now,
      causedBy('app', call),
    )
    if (secret && (result.kind === 'good' || result.kind === 'refused')) recordUse(deps, secret)
    switch (result.kind) {
      case 'good':
        return {
          $typeName: 'surveyauth.v1.RefreshAccessTokenResponse',
          accessToken: accessToken(result.grantId, result.expiresAtMs).text,
          expiresIn: Math.min(rules.accessTokenTtlSeconds, Math.floor((result.expiresAtMs - now) / 1000)),
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

/** The grant's access token that ends at a time. The store asks last for the one that is answered, so that is remembered. */
function accessTokensOf(refreshToken: string, place: Place): (grantId: string, expiresAtMs: number) => Credential {
  let last: { readonly expiresAtMs: number; readonly token: Credential } | undefined
  return (grantId, expiresAtMs) => {
    if (last?.expiresAtMs !== expiresAtMs) {
      last = { expiresAtMs, token: deriveAccessToken(refreshToken, place, grantId, expiresAtMs) }
    }
    return last.token
  }
}
