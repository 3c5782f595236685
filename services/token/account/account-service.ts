// AccountService: what a person does in a browser. Sessions live here; who may give an app access is decided by them.
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { AccountService } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { hashCredential } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import { requireSession } from '../session.js'
import { signIn } from './sign-in.js'

/** Longest list of connected apps; the cap of grants per app keeps real lists far below. */
const MAX_CONNECTED_APPS = 200

export function createAccountHandlers(deps: TokenDeps): Handlers<typeof AccountService> {
  return {
    signIn: signIn(deps),

    async signOut(request, call) {
      const sessionHash = hashCredential('session', request.sessionToken)
      if (sessionHash)
        await deps.store.endSession(sessionHash, deps.now(), { actor: 'user', requestId: call.requestId })
      return {}
    },

    async getSession(request) {
      const { username, nickname, avatar } = await requireSession(deps, request.sessionToken)
      return { username, nickname, avatar }
    },

    async listConnectedApps(request) {
      const { userId } = await requireSession(deps, request.sessionToken)
      const page = { limit: MAX_CONNECTED_APPS, after: undefined }
      const { rows } = await deps.store.listGrants({ userId, liveAtMs: deps.now() }, page)
      return {
        apps: rows.map((grant) => ({
          grantId: grant.grantId,
          appid: grant.appid,
          appName: grant.appName,
          scope: grant.scope,
          createTime: timestampFromMs(grant.createdAtMs),
          lastUseTime: timestampFromMs(grant.lastUsedAtMs),
          expireTime: timestampFromMs(grant.expiresAtMs),
        })),
      }
    },

    async disconnectApp(request, call) {
      const { userId } = await requireSession(deps, request.sessionToken)
      const cause = { actor: 'user', requestId: call.requestId } as const
      const outcome = await deps.store.revokeGrant(request.grantId, { userId }, deps.now(), cause)
      if (outcome === 'not_found') throw new ServiceError(ErrorReason.NOT_FOUND, 'there is no such grant')
      return {}
    },
  }
}
