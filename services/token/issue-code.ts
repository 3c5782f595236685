import type { MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { IssueCodeRequest, IssueCodeResponseSchema } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causedBy } from '../storage/cause.js'
import { invalidAppid, requireApp } from './app-authentication.js'
import {
  invalidRedirectUri,
  requireChallenge,
  requireRedirectUri,
  requireScope,
} from './check-authorization-request.js'
import { deriveCode } from './credentials.js'
import type { TokenDeps } from './deps.js'
import { recordedAs } from './permissions.js'
import { invalidSession, requireSession } from './session.js'

/** How many codes one form may yield, each after the one before was used or had expired; then the page must be opened again. */
const MAX_ATTEMPTS = 16

/** Step 1 of the flow, after the user's confirmation. */
export function issueCode(deps: TokenDeps) {
  return async (request: IssueCodeRequest, call: Call): Promise<MessageInitShape<typeof IssueCodeResponseSchema>> => {
    const session = await requireSession(deps, request.sessionToken)
    const app = await requireApp(deps, request.appid)
    requireRedirectUri(app, request.redirectUri)
    requireScope(request.scope)
    const { appid, redirectUri, scope, codeChallenge, consentVersion } = request
    const permissions = recordedAs(request.permissions)
    requireChallenge(app, { codeChallenge, codeChallengeMethod: codeChallenge && 'S256' })

    const form = [request.requestId, appid, redirectUri, scope, codeChallenge, permissions, consentVersion] as const
    const now = deps.now()
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const code = deriveCode(request.sessionToken, form, attempt, now)
      const outcome = await deps.store.issueCode(
        {
          codeHash: code.hash,
          appid,
          userId: session.userId,
          sessionHash: session.sessionHash,
          redirectUri,
          scope,
          codeChallenge,
          permissions,
          consentVersion,
          expiresAtMs: now + deps.rules.codeTtlSeconds * 1000,
          maxLive: deps.rules.maxLiveCodesPerUserAndApp,
        },
        now,
        causedBy('user', call),
      )
      if (outcome === 'app_ended') throw invalidAppid()
      if (outcome === 'redirect_uri_ended') throw invalidRedirectUri()
      if (outcome === 'session_ended') throw invalidSession()
      if (outcome !== 'exists_ended') return { code: code.text }
    }
    throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'this form was confirmed too often, open the page again')
  }
}
