// AccountService: what a person does in a browser. It owns sessions, which decide who may give an app access.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { type Timestamp, timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { AccountService, ConnectedAppSchema } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { causedBy } from '../../storage/cause.js'
import { groupBy } from '../../storage/group-by.js'
import { hashCredential } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import { requireSession } from '../session.js'
import type { GrantRow } from '../store/token-store.js'
import { signIn } from './sign-in.js'

const GRANTS_PER_READ = 200

export function createAccountHandlers(deps: TokenDeps): Handlers<typeof AccountService> {
  return {
    signIn: signIn(deps),

    async signOut(request, call) {
      const sessionHash = hashCredential('session', request.sessionToken)
      if (sessionHash) await deps.store.endSession(sessionHash, deps.now(), causedBy('user', call))
      return {}
    },

    async getSession(request) {
      const { userId, username, nickname, avatar } = await requireSession(deps, request.sessionToken)
      const grants = request.appid === '' ? [] : await liveGrants(deps, userId, request.appid)
      return { username, nickname, avatar, ...(grants.length > 0 && { connectTime: startOf(grants) }) }
    },

    async listConnectedApps(request) {
      const { userId } = await requireSession(deps, request.sessionToken)
      const grants = await liveGrants(deps, userId)
      const apps = [...groupBy(grants, ({ appid }) => appid).values()]
      return { apps: await Promise.all(apps.map((ofApp) => toConnectedApp(deps, ofApp))) }
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

/** Newest first. */
async function liveGrants({ store, now }: TokenDeps, userId: string, appid?: string): Promise<GrantRow[]> {
  const filter = { userId, liveAtMs: now(), ...(appid !== undefined && { appid }) }
  const grants: GrantRow[] = []
  let after: string | undefined
  do {
    const page = await store.listGrants(filter, { limit: GRANTS_PER_READ, after })
    grants.push(...page.rows)
    after = page.next
  } while (after !== undefined)
  return grants
}

function startOf(grants: readonly GrantRow[]): Timestamp {
  return timestampFromMs(Math.min(...grants.map(({ createdAtMs }) => createdAtMs)))
}

/** `grants`: all live grants of a user to one app, newest first. */
async function toConnectedApp(
  { store }: TokenDeps,
  grants: readonly GrantRow[],
): Promise<MessageInitShape<typeof ConnectedAppSchema>> {
  const { grantId, appid, appName, scope } = grants[0] as GrantRow // there is one
  const app = await store.findApp(appid)
  const ends = grants.flatMap(({ expiresAtMs, accessExpiresAtMs }) => [expiresAtMs, accessExpiresAtMs])
  return {
    grantId,
    appid,
    appName,
    scope,
    createTime: startOf(grants),
    lastUseTime: timestampFromMs(Math.max(...grants.map(({ lastUsedAtMs }) => lastUsedAtMs))),
    expireTime: timestampFromMs(Math.max(...ends)),
    redirectUris: [...(app?.redirectUris ?? [])],
  }
}
