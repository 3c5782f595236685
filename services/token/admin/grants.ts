// Grants and the audit trail, as operators see them.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { AdminService, AuditEventSchema, GrantSchema } from '../../../gen/surveyauth/v1/admin_service_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { pageOf } from '../../storage/page.js'
import type { TokenDeps } from '../deps.js'
import { permissionsIn } from '../permissions.js'
import type { AuditRow, GrantRow } from '../store/token-store.js'
import { byOperator, notFound } from './apps.js'
import { findUser, found, noUser, requireOneName, type Which } from './which-user.js'

type GrantMethods = Pick<Handlers<typeof AdminService>, 'listGrants' | 'revokeGrant' | 'listAuditEvents'>

export function createGrantMethods(deps: TokenDeps): GrantMethods {
  const { store } = deps

  /** The filter of a list; an app or user that does not exist is NOT_FOUND rather than an empty list. */
  async function filterOf(request: Which & { readonly appid: string }) {
    const { appid, username, externalId } = request
    requireOneName(request, { orNone: true })
    if (appid !== '' && !(await store.isAppid(appid))) throw notFound('app', appid)
    const isNamed = username !== '' || externalId !== ''
    const userId = isNamed ? found(await findUser(store, request), request).userId : request.userId
    if (!isNamed && userId !== '' && !(await store.isUserId(userId))) throw noUser(request)
    return { ...(appid !== '' && { appid }), ...(userId !== '' && { userId }) }
  }

  return {
    async listGrants(request) {
      const { rows, next } = await store.listGrants(await filterOf(request), pageOf(request))
      return { grants: rows.map(toGrant), nextPageToken: next ?? '' }
    },

    async revokeGrant({ grantId }, call) {
      const outcome = await store.revokeGrant(grantId, deps.now(), byOperator(call))
      if (outcome === 'not_found') throw notFound('grant', grantId)
      return { alreadyRevoked: outcome === 'already_revoked' }
    },

    async listAuditEvents(request) {
      const { rows, next } = await store.listAuditEvents(await filterOf(request), pageOf(request))
      return { events: rows.map(toAuditEvent), nextPageToken: next ?? '' }
    },
  }
}

function toGrant(row: GrantRow): MessageInitShape<typeof GrantSchema> {
  return {
    grantId: row.grantId,
    appid: row.appid,
    appName: row.appName,
    userId: row.userId,
    username: row.username,
    externalId: row.externalId,
    openid: row.openid,
    scope: row.scope,
    permissions: permissionsIn(row.permissions),
    consentVersion: row.consentVersion,
    createTime: timestampFromMs(row.createdAtMs),
    lastUseTime: timestampFromMs(row.lastUsedAtMs),
    expireTime: timestampFromMs(row.expiresAtMs),
    ...(row.answersReadAtMs > 0 && { answersReadTime: timestampFromMs(row.answersReadAtMs) }),
    ...(row.revokedAtMs !== undefined && { revokeTime: timestampFromMs(row.revokedAtMs) }),
  }
}

function toAuditEvent(row: AuditRow): MessageInitShape<typeof AuditEventSchema> {
  return {
    eventId: row.eventId,
    createTime: timestampFromMs(row.atMs),
    kind: row.kind,
    actor: row.actor,
    actorId: row.actorId || { app: row.appid, user: row.userId }[row.actor as string] || '',
    actorSource: row.actorSource || row.actor,
    appid: row.appid,
    userId: row.userId,
    grantId: row.grantId,
    requestId: row.requestId,
    note: row.note,
  }
}
