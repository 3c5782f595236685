import { removalOfEvents } from '../../../postgres/events.js'
import type { Database, Statement } from '../../../postgres/transaction.js'
import { firstIdAt } from '../../../store/event-ids.js'
import type { TokenStore } from '../token-store.js'

// Each statement removes a bounded number of rows, skips rows that others have locked (several janitors share the work instead
// of waiting for each other) and returns how many it removed. $1: rows that ended before this time; $2: the bound.

/** By the index codes_by_expiry. A used code stays until its expiry, to recognise replays. */
const removeCodes: Statement = {
  name: 'remove_codes',
  text: `
    WITH ended AS (
      SELECT code_hash FROM codes WHERE expires_at_ms < $1 ORDER BY expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
    ), removed AS (
      DELETE FROM codes c USING ended e WHERE c.code_hash = e.code_hash RETURNING 1
    )
    SELECT count(*) AS count FROM removed`,
}
/** By the indexes access_tokens_by_expiry, grants_by_end and access_tokens_by_grant: expired ones and revoked ones. */
const removeAccessTokens: Statement = {
  name: 'remove_access_tokens',
  text: `
    WITH expired AS (
      SELECT access_token_hash FROM access_tokens WHERE expires_at_ms < $1
      ORDER BY expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
    ), revoked AS (
      SELECT t.access_token_hash FROM grants g JOIN access_tokens t ON t.grant_id = g.grant_id
      WHERE coalesce(g.revoked_at_ms, g.expires_at_ms) < $1 AND g.revoked_at_ms IS NOT NULL
      LIMIT $2 FOR UPDATE OF t SKIP LOCKED
    ), removed AS (
      DELETE FROM access_tokens WHERE access_token_hash IN (
        SELECT access_token_hash FROM expired UNION SELECT access_token_hash FROM revoked LIMIT $2)
      RETURNING 1
    )
    SELECT count(*) AS count FROM removed`,
}
/** By the indexes grants_by_end and access_tokens_by_grant. A grant goes after the last of its tokens. */
const removeGrants: Statement = {
  name: 'remove_grants',
  text: `
    WITH ended AS (
      SELECT grant_id FROM grants g
      WHERE coalesce(revoked_at_ms, expires_at_ms) < $1
        AND NOT EXISTS (SELECT 1 FROM access_tokens t WHERE t.grant_id = g.grant_id)
      ORDER BY coalesce(revoked_at_ms, expires_at_ms) LIMIT $2 FOR UPDATE SKIP LOCKED
    ), removed AS (
      DELETE FROM grants g USING ended e WHERE g.grant_id = e.grant_id RETURNING 1
    )
    SELECT count(*) AS count FROM removed`,
}
/** By the index sessions_by_expiry. */
const removeSessions: Statement = {
  name: 'remove_sessions',
  text: `
    WITH ended AS (
      SELECT session_hash FROM sessions WHERE expires_at_ms < $1
      ORDER BY expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
    ), removed AS (
      DELETE FROM sessions s USING ended e WHERE s.session_hash = e.session_hash RETURNING 1
    )
    SELECT count(*) AS count FROM removed`,
}
const removeAuditEvents = removalOfEvents('audit_events')

export function createUpkeepMethods(database: Database): Pick<TokenStore, 'removeEnded' | 'ping' | 'close'> {
  return {
    removeEnded({ endedBeforeMs, auditBeforeMs, limit }) {
      return database.transaction(async (transaction) => {
        const remove = async (statement: Statement, before: number | string) => {
          const [removed] = await transaction.write<{ count: number }>(statement, [before, limit])
          return removed?.count ?? 0
        }
        return {
          codes: await remove(removeCodes, endedBeforeMs),
          accessTokens: await remove(removeAccessTokens, endedBeforeMs),
          grants: await remove(removeGrants, endedBeforeMs),
          sessions: await remove(removeSessions, endedBeforeMs),
          auditEvents: await remove(removeAuditEvents, firstIdAt(auditBeforeMs)),
        }
      })
    },

    ping: () => database.ping(),
    close: () => database.close(),
  }
}
