import type { Statement } from 'better-sqlite3'
import type { Cause } from '../../../storage/cause.js'
import { cutPage, formatTimePosition, type Page, type PageOf, parseTimePosition } from '../../../storage/page.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import type { GrantRow, Revocation, TokenStore } from '../token-store.js'
import type { RecordEvent } from './audit.js'
import { NEWEST_EXPIRY, packTime, unpackTime } from './grant-row.js'

/** SQL: not just a code any more. */
export const IS_GRANT = 'created_at_ms IS NOT NULL'

/** Revokes a grant that is not revoked yet; does nothing to any other. */
export type EndGrant = (grantId: string, now: number, cause: Cause, note: string) => void

export function grantEnder(db: Connection, record: RecordEvent): EndGrant {
  const revoke = db.prepare<[number, string], { appid: string; userId: string }>(
    // Index grants_by_id.
    `UPDATE grants SET revoked_at_ms = ? WHERE grant_id = ? AND revoked_at_ms IS NULL
     RETURNING appid, user_id AS userId`,
  )
  return (grantId, now, cause, note) => {
    const grant = revoke.get(now, grantId)
    if (grant) record({ kind: 'grant.revoked', now, cause, ...grant, grantId, note })
  }
}

/** Revokes all grants of a user that are not revoked yet. */
export function userGrantsEnder(db: Connection, endGrant: EndGrant) {
  const find = db
    .prepare<[string], string>(
      // Index grants_open.
      `SELECT grant_id FROM grants WHERE user_id = ? AND ${IS_GRANT} AND revoked_at_ms IS NULL`,
    )
    .pluck()
  return (userId: string, now: number, cause: Cause, note: string): void => {
    for (const grantId of find.all(userId)) endGrant(grantId, now, cause, note)
  }
}

/** GrantRow as the database has it, with the time it is sorted by. */
type GrantRecord = Omit<GrantRow, 'revokedAtMs' | 'accessExpiresAtMs'> & {
  readonly revokedAtMs: number | null
  readonly accessExpiry: Buffer
  readonly atMs: number
}
type GrantFilter = Parameters<TokenStore['listGrants']>[0]

/** One condition per part of a filter; list statements are built from these constants only. */
const conditions = {
  isGrant: `g.${IS_GRANT}`,
  userId: 'g.user_id = :userId',
  appid: 'g.appid = :appid',
  liveAtMs: `g.revoked_at_ms IS NULL AND (g.expires_at_ms > :liveAtMs OR ${NEWEST_EXPIRY} > :packedLiveAt)`,
  after: '(g.created_at_ms, g.grant_id) < (:atMs, :id)',
  afterByIssue: '(g.issued_at_ms, g.grant_id) < (:atMs, :id)',
} as const

function conditionsOf(filter: GrantFilter, page: PageOf): string {
  const { userId, appid, liveAtMs } = filter
  const where: string[] = [conditions.isGrant]
  if (userId !== undefined) where.push(conditions.userId)
  if (appid !== undefined) where.push(conditions.appid)
  if (liveAtMs !== undefined) where.push(conditions.liveAtMs)
  if (page.after !== undefined) where.push(userId === undefined ? conditions.afterByIssue : conditions.after)
  return where.join(' AND ')
}

export function grantReads(db: Connection) {
  const statements = new Map<string, Statement<[object], GrantRecord>>()

  /** The few grants of one user are sorted: an index in the order in which grants began would slow down every exchange. */
  function listStatement(where: string, by: 'created_at_ms' | 'issued_at_ms'): Statement<[object], GrantRecord> {
    const known = statements.get(where)
    if (known) return known
    const statement = db.prepare<[object], GrantRecord>(
      // Index grants_open or grants_by_user, or backwards along grants_by_app or grants_by_issue; primary keys of apps and users.
      `SELECT g.grant_id AS grantId, g.appid, a.name AS appName, g.user_id AS userId, u.username, u.external_id AS externalId, g.openid, g.scope,
         g.permissions, g.consent_version AS consentVersion, g.created_at_ms AS createdAtMs, g.last_used_at_ms AS lastUsedAtMs,
         g.answers_read_at_ms AS answersReadAtMs, g.expires_at_ms AS expiresAtMs,
         ${NEWEST_EXPIRY} AS accessExpiry, g.revoked_at_ms AS revokedAtMs, g.${by} AS atMs
       FROM grants g CROSS JOIN apps a ON a.appid = g.appid CROSS JOIN users u ON u.user_id = g.user_id
       WHERE ${where} ORDER BY g.${by} DESC, g.grant_id DESC LIMIT :limit`,
    )
    statements.set(where, statement)
    return statement
  }

  return {
    listGrants(filter: GrantFilter, page: PageOf): Page<GrantRow> {
      const position = page.after === undefined ? {} : parseTimePosition(page.after)
      const by = filter.userId === undefined ? 'issued_at_ms' : 'created_at_ms'
      const statement = listStatement(conditionsOf(filter, page), by)
      const live = filter.liveAtMs === undefined ? {} : { packedLiveAt: packTime(filter.liveAtMs) }
      const found = statement.all({ ...filter, ...live, ...position, limit: page.limit + 1 })
      const { rows, next } = cutPage(found, page.limit, (row) =>
        formatTimePosition({ atMs: row.atMs, id: row.grantId }),
      )
      return { rows: rows.map(toGrantRow), next }
    },
  }
}

function toGrantRow({ atMs, accessExpiry, revokedAtMs, ...row }: GrantRecord): GrantRow {
  return { ...row, accessExpiresAtMs: unpackTime(accessExpiry), revokedAtMs: revokedAtMs ?? undefined }
}

export function grantWrites(
  db: Connection,
  endGrant: EndGrant,
  endUnusedCodes: (of: { readonly appid: string; readonly userId: string; readonly now: number }) => void,
) {
  const find = db.prepare<[string], { appid: string; userId: string; revokedAtMs: number | null }>(
    // Index grants_by_id.
    'SELECT appid, user_id AS userId, revoked_at_ms AS revokedAtMs FROM grants WHERE grant_id = ?',
  )
  const findOthers = db.prepare<[string, string], { grantId: string }>(
    // Index grants_open.
    `SELECT grant_id AS grantId FROM grants
     WHERE user_id = ? AND appid = ? AND ${IS_GRANT} AND revoked_at_ms IS NULL`,
  )

  return {
    revokeGrant(grantId: string, now: number, cause: Cause): Revocation {
      const grant = find.get(grantId)
      if (!grant) return 'not_found'
      if (grant.revokedAtMs !== null) return 'already_revoked'
      endGrant(grantId, now, cause, '')
      endUnusedCodes({ appid: grant.appid, userId: grant.userId, now })
      return 'revoked'
    },

    disconnectApp(grantId: string, userId: string, now: number, cause: Cause): Revocation {
      const grant = find.get(grantId)
      if (grant?.userId !== userId) return 'not_found'
      const left = findOthers.all(userId, grant.appid)
      for (const each of left) endGrant(each.grantId, now, cause, '')
      endUnusedCodes({ appid: grant.appid, userId, now })
      return left.length > 0 ? 'revoked' : 'already_revoked'
    },
  }
}
