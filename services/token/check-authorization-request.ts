import type { MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type {
  CheckAuthorizationRequestRequest,
  CheckAuthorizationRequestResponseSchema,
} from '../../gen/surveyauth/v1/token_service_pb.js'
import { type AskedChallenge, isChallengeGood } from '../protocol/codes.js'
import { ServiceError } from '../rpc/service-error.js'
import { requireApp } from './app-authentication.js'
import type { TokenDeps } from './deps.js'
import { permissionsAskedBy } from './permissions.js'
import type { AppRow } from './store/token-store.js'

/** The only scope (spec 5.6). */
const SCOPE_USER = 'snsapi_user'

const STATE = /^[A-Za-z0-9]{0,128}$/ // spec 4.1

/** spec 4.1. appid and redirect_uri come first: until both are right, nothing may be sent to the redirect_uri. */
export function checkAuthorizationRequest(deps: TokenDeps) {
  return async (
    request: CheckAuthorizationRequestRequest,
  ): Promise<MessageInitShape<typeof CheckAuthorizationRequestResponseSchema>> => {
    const app = await requireApp(deps, request.appid)
    requireRedirectUri(app, request.redirectUri)
    if (request.responseType !== 'code') {
      throw new ServiceError(ErrorReason.INVALID_RESPONSE_TYPE, 'response_type must be code')
    }
    requireScope(request.scope)
    if (!STATE.test(request.state)) {
      throw new ServiceError(ErrorReason.INVALID_STATE, 'state may hold a-z, A-Z, 0-9, at most 128 of them')
    }
    requireChallenge(app, request)
    const face = await deps.store.findAppFace(app.appid)
    const permissions = permissionsAskedBy(app, deps.rules)
    return { appName: app.name, refreshTokenTtlSeconds: deps.rules.refreshTokenTtlSeconds, face, permissions }
  }
}

/** Must equal a registered one byte for byte (decisions 20). @throws ServiceError INVALID_REDIRECT_URI */
export function requireRedirectUri(app: AppRow, redirectUri: string): void {
  if (!app.redirectUris.includes(redirectUri)) throw invalidRedirectUri()
}

export function invalidRedirectUri(): ServiceError {
  return new ServiceError(ErrorReason.INVALID_REDIRECT_URI, 'the redirect_uri is not registered for this app')
}

/** @throws ServiceError INVALID_SCOPE */
export function requireScope(scope: string): void {
  if (scope !== SCOPE_USER) throw new ServiceError(ErrorReason.INVALID_SCOPE, `scope must be ${SCOPE_USER}`)
}

/** @throws ServiceError INVALID_CODE_CHALLENGE */
export function requireChallenge(app: AppRow, asked: AskedChallenge): void {
  if (isChallengeGood(asked, app.requiresPkce)) return
  const message = 'code_challenge must be 43 of A-Z, a-z, 0-9, - and _, with the method S256, or absent if it may be'
  throw new ServiceError(ErrorReason.INVALID_CODE_CHALLENGE, message)
}
