import type { Cause } from '../../../storage/cause.js'
import { cutPage, formatTimePosition, parseTimePosition, type TimePosition } from '../../../storage/page.js'
import { columnsOf, type Database, type Statement, type Transaction } from '../../../storage/postgres/transaction.js'
import { ENDED_AT, IS_NOT_ENDED, MAX_CODE_TTL_MS } from '../ended-codes.js'
import type { GrantRow, TokenStore } from '../token-store.js'
import { type Audit, INSERT_EVENTS } from './audit.js'

type GrantMethods = Pick<TokenStore, 'listGrants' | 'revokeGrant' | 'disconnectApp'>

const findGrant: Statement = {
  name: 'find_grant',
  text: 'SELECT appid, user_id AS "userId" FROM grants WHERE grant_id = $1',
}
export const lockGrant: Statement = {
  name: 'lock_grant',
  text: 'SELECT revoked_at_ms AS "revokedAtMs" FROM grants WHERE grant_id = $1 FOR NO KEY UPDATE',
}
/** Those that have ended meanwhile stay as they are, and get no event. */
const revokeGrants: Statement = {
  name: 'revoke_grants',
  text: `
    WITH ending AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
          $10::text[])
        AS ending (grant_id, event_id, now_ms, actor, actor_id, actor_source, request_id, appid, user_id, note)
    ), ended AS (
      UPDATE grants g SET revoked_at_ms = (SELECT now_ms FROM ending e WHERE e.grant_id = g.grant_id)
      WHERE grant_id = ANY ($1) AND revoked_at_ms IS NULL
      RETURNING grant_id
    )
    ${INSERT_EVENTS}
    SELECT event_id, now_ms, 'grant.revoked', actor, actor_id, actor_source, request_id, appid, user_id, grant_id, note
    FROM ending JOIN ended USING (grant_id)`,
}
/** Keeps codes from being issued meanwhile: the update would lock them only after the grant, out of order. */
const shareUser: Statement = {
  name: 'share_user',
  text: 'SELECT 1 FROM users WHERE user_id = $1 FOR SHARE',
}
/** By the index codes_by_user: all that can still be used, of which a user may have left many more. */
const UNUSED_CODES = `
  user_id = $1 AND appid = $2 AND issued_at_ms > $3 AND used_at_ms IS NULL AND ${IS_NOT_ENDED}`
const lockCodesOfUserAndApp: Statement = {
  name: 'lock_codes_of_user_and_app',
  text: `SELECT code_hash FROM codes WHERE ${UNUSED_CODES} ORDER BY code_hash FOR UPDATE`,
}
const endCodesOfUserAndApp: Statement = {
  name: 'end_codes_of_user_and_app',
  text: `UPDATE codes SET expires_at_ms = ${ENDED_AT} WHERE ${UNUSED_CODES}`,
}
/** By the index grants_by_user. Runs after the codes are locked, so that it finds the grants that some have just become. */
const lockGrantsOfUser: Statement = {
  name: 'lock_grants_of_user',
  text: `
    SELECT grant_id AS "grantId" FROM grants WHERE user_id = $1 AND appid = $2 AND revoked_at_ms IS NULL
    ORDER BY grant_id FOR NO KEY UPDATE`,
}
/** The position before the newest grant. */
export const FIRST: TimePosition = { atMs: Number.MAX_SAFE_INTEGER, id: '' }

type GrantColumns = Omit<GrantRow, 'revokedAtMs'> & { readonly revokedAtMs: number | null }

export interface EndedGrant {
  readonly appid: string
  readonly userId: string
  readonly grantId: string
  readonly note?: string
  readonly now: number
  readonly cause: Cause
}

/** Revokes grants, each with its event. */
export function endGrants(transaction: Transaction, audit: Audit, grants: readonly EndedGrant[]): void {
  if (grants.length === 0) return
  const columns = columnsOf(grants, [
    ({ grantId }) => grantId,
    ({ now }) => audit.newEventId(now),
    ({ now }) => now,
    ({ cause }) => cause.actor,
    ({ cause }) => cause.actorId,
    ({ cause }) => cause.actorSource,
    ({ cause }) => cause.requestId,
    ({ appid }) => appid,
    ({ userId }) => userId,
    ({ note = '' }) => note,
  ])
  transaction.write(revokeGrants, columns)
}

export function createGrantMethods(database: Database, audit: Audit): GrantMethods {
  return {
    async listGrants(filter, { limit, after }) {
      const { appid, userId, liveAtMs } = filter
      const { atMs, id } = after === undefined ? FIRST : parseTimePosition(after)
      const filters = [appid, userId, liveAtMs].filter((value) => value !== undefined)
      const statement = listGrants(appid !== undefined, userId !== undefined, liveAtMs !== undefined)
      const rows = await database.read<GrantColumns>(statement, [atMs, id, limit + 1, ...filters])
      const grants = rows.map((row): GrantRow => ({ ...row, revokedAtMs: row.revokedAtMs ?? undefined }))
      return cutPage(grants, limit, ({ createdAtMs, grantId }) =>
        formatTimePosition({ atMs: createdAtMs, id: grantId }),
      )
    },

    revokeGrant(grantId, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const found = await transaction.askOne<{ appid: string; userId: string }>(findGrant, [grantId])
        if (!found) return 'not_found'
        const { appid, userId } = found
        // In the order of redemptions: user, codes, grant. Waits for mintings in progress, which hold the grant.
        const [, , grant] = await Promise.all([
          transaction.ask(shareUser, [userId]),
          transaction.ask(lockCodesOfUserAndApp, [userId, appid, now - MAX_CODE_TTL_MS]),
          transaction.askOne<{ revokedAtMs: number | null }>(lockGrant, [grantId]),
        ])
        if (!grant) return 'not_found'
        if (grant.revokedAtMs !== null) return 'already_revoked'
        transaction.write(endCodesOfUserAndApp, [userId, appid, now - MAX_CODE_TTL_MS])
        endGrants(transaction, audit, [{ appid, userId, grantId, now, cause }])
        return 'revoked'
      })
    },

    disconnectApp(grantId, userId, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const found = await transaction.askOne<{ appid: string; userId: string }>(findGrant, [grantId])
        if (found?.userId !== userId) return 'not_found'
        const { appid } = found
        const [, , left] = await Promise.all([
          transaction.ask(shareUser, [userId]),
          transaction.ask(lockCodesOfUserAndApp, [userId, appid, now - MAX_CODE_TTL_MS]),
          transaction.ask<{ grantId: string }>(lockGrantsOfUser, [userId, appid]),
        ])
        transaction.write(endCodesOfUserAndApp, [userId, appid, now - MAX_CODE_TTL_MS])
        endGrants(
          transaction,
          audit,
          left.map((each) => ({ ...each, appid, userId, now, cause })),
        )
        return left.length > 0 ? 'revoked' : 'already_revoked'
      })
    },
  }
}

/** By the index access_tokens_by_grant. */
const NEWEST_EXPIRY = `
  coalesce((SELECT t.expires_at_ms FROM access_tokens t WHERE t.grant_id = g.grant_id ORDER BY t.serial DESC LIMIT 1), 0)`

/** By the index grants_by_user or grants_by_app when filtered, else grants_by_creation. */
export function listGrants(byApp: boolean, byUser: boolean, onlyLive: boolean): Statement {
  const filters = [
    byApp && 'g.appid =',
    byUser && 'g.user_id =',
    onlyLive && `g.revoked_at_ms IS NULL AND greatest(g.expires_at_ms, ${NEWEST_EXPIRY}) >`,
  ]
  const conditions = filters.filter((filter) => filter !== false).map((filter, index) => `AND ${filter} $${index + 4}`)
  return {
    name: ['list_grants', byApp && 'of_app', byUser && 'of_user', onlyLive && 'live'].filter(Boolean).join('_'),
    text: `
      SELECT g.grant_id AS "grantId", g.appid, a.name AS "appName", g.user_id AS "userId", u.username,
        u.external_id AS "externalId", g.openid, g.scope, g.permissions, g.consent_version AS "consentVersion",
        g.created_at_ms AS "createdAtMs", g.last_used_at_ms AS "lastUsedAtMs", g.answers_read_at_ms AS "answersReadAtMs",
        g.expires_at_ms AS "expiresAtMs", ${NEWEST_EXPIRY} AS "accessExpiresAtMs", g.revoked_at_ms AS "revokedAtMs"
      FROM grants g JOIN apps a ON a.appid = g.appid JOIN users u ON u.user_id = g.user_id
      WHERE (g.created_at_ms, g.grant_id) < ($1, $2) ${conditions.join(' ')}
      ORDER BY g.created_at_ms DESC, g.grant_id DESC LIMIT $3`,
  }
}
