// AccountService: what a person does in a browser. It owns sessions, which decide who may give an app access.
import type { AccountService } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { causedBy } from '../../storage/cause.js'
import { connectedApps, liveGrants, startOf } from '../connected-apps.js'
import { hashCredential } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import { permissionsIn } from '../permissions.js'
import { requireSession } from '../session.js'
import { changePassword, endSessions, getAccount, providerFor, wayFor } from './account-page.js'
import { beginLink, unlink } from './linking.js'
import { endProviderSessions } from './provider-logout.js'
import { completeProviderSignIn } from './provider-sign-in.js'
import { signIn } from './sign-in.js'
import { beginSignIn, completeSignIn } from './sign-in-elsewhere.js'

export function createAccountHandlers(deps: TokenDeps): Handlers<typeof AccountService> {
  const fromPlatform = completeSignIn(deps)
  const fromProvider = completeProviderSignIn(deps)
  return {
    signIn: signIn(deps),
    beginSignIn: beginSignIn(deps),
    completeSignIn: (request, call) => (request.provider === '' ? fromPlatform : fromProvider)(request, call),

    async listSignInMethods() {
      const { password, platform, providers } = deps.signInMethods
      const named = [...providers.keys()].map((id) => providerFor(deps.signInMethods, id))
      return { password, platform: platform !== undefined, providers: named }
    },

    async signOut(request, call) {
      const sessionHash = hashCredential('session', request.sessionToken)
      if (!sessionHash) return {}
      const session = await deps.store.findSession(sessionHash)
      await deps.store.endSession(sessionHash, deps.now(), causedBy('user', call))
      return session ? { way: wayFor(deps.signInMethods, session) } : {}
    },

    getAccount: getAccount(deps),
    endSessions: endSessions(deps),
    changePassword: changePassword(deps),
    beginLink: beginLink(deps),
    unlink: unlink(deps),
    endProviderSessions: endProviderSessions(deps),

    async getSession(request) {
      const { userId, username, nickname, avatar } = await requireSession(deps, request.sessionToken)
      const grants = request.appid === '' ? [] : await liveGrants(deps, userId, request.appid)
      const permissions = [...new Set(grants.flatMap((grant) => permissionsIn(grant.permissions)))]
      return { username, nickname, avatar, permissions, ...(grants.length > 0 && { connectTime: startOf(grants) }) }
    },

    async listConnectedApps(request) {
      const { userId } = await requireSession(deps, request.sessionToken)
      return { apps: await connectedApps(deps, userId) }
    },

    async getAppLogo({ appid }) {
      const found = await deps.store.findAppLogo(appid)
      if (!found) throw new ServiceError(ErrorReason.NOT_FOUND, 'there is no such logo')
      return { contentType: found.contentType, logo: found.body }
    },

    async disconnectApp(request, call) {
      const { userId } = await requireSession(deps, request.sessionToken)
      const cause = causedBy('user', call)
      const outcome = await deps.store.disconnectApp(request.grantId, userId, deps.now(), cause)
      if (outcome === 'not_found') throw new ServiceError(ErrorReason.NOT_FOUND, 'there is no such grant')
      return {}
    },
  }
}
