import { hash } from 'node:crypto'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { ExchangeCodeRequest, ExchangeCodeResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causedBy } from '../storage/cause.js'
import { invalidAppid, invalidSecret, type RecallSecret, recordUse, requireSecret } from './app-authentication.js'
import { hashCredential, newCredential, newId, placeOf } from './credentials.js'
import type { TokenDeps } from './deps.js'

const invalidCode = () =>
  new ServiceError(
    ErrorReason.INVALID_CODE,
    'the code is unknown, used, expired, not for this app, or not for the redirect_uri or code_verifier that was sent or left out',
  )

/** Step 2 of the flow (spec 4.2). The app is authenticated before the code is looked at (decisions 9). */
export function exchangeCode(deps: TokenDeps, recallSecret: RecallSecret) {
  return async (request: ExchangeCodeRequest, call: Call): Promise<ExchangeCodeResponse> => {
    const { appid } = request
    const codeHash = hashCredential('code', request.code)
    if (!codeHash) {
      await requireSecret(deps, appid, request.secret)
      throw invalidCode()
    }

    const secret = await recallSecret(appid, request.secret)
    const now = deps.now()
    const place = placeOf(codeHash)
    const accessToken = newCredential('accessToken', deps.randomBytes, place)
    const refreshToken = newCredential('refreshToken', deps.randomBytes, place)
    const { rules } = deps
    const result = await deps.store.redeemCode(
      {
        codeHash,
        appid,
        secretId: secret.secretId,
        redirectUri: request.redirectUri === '' ? undefined : request.redirectUri,
        codeChallenge: challengeOf(request.codeVerifier),
        replayGraceMs: rules.codeReplayGraceSeconds * 1000,
        grantId: newId('grant', deps.randomBytes, place),
        accessTokenHash: accessToken.hash,
        accessTokenExpiresAtMs: now + rules.accessTokenTtlSeconds * 1000,
        refreshTokenHash: refreshToken.hash,
        refreshTokenExpiresAtMs: now + rules.refreshTokenTtlSeconds * 1000,
        newOpenid: newId('o', deps.randomBytes),
        maxGrants: rules.maxGrantsPerUserAndApp,
      },
      now,
      causedBy('app', call),
    )
    if (result.kind === 'redeemed' || result.kind === 'refused') recordUse(deps, secret)
    switch (result.kind) {
      case 'redeemed':
        return {
          $typeName: 'surveyauth.v1.ExchangeCodeResponse',
          accessToken: accessToken.text,
          refreshToken: refreshToken.text,
          expiresIn: rules.accessTokenTtlSeconds,
          openid: result.openid,
        }
      case 'refused':
        if (result.replay !== 'none') deps.onReplayed?.(result.replay)
        throw invalidCode()
      case 'app_ended':
        throw invalidAppid()
      case 'secret_ended':
        throw invalidSecret()
    }
  }
}

/** RFC 7636 §4.2, S256; empty without a verifier. */
function challengeOf(codeVerifier: string): string {
  return codeVerifier === '' ? '' : hash('sha256', codeVerifier, 'base64url')
}
