import type { Connection } from '../../../sqlite/open.js'
import type { Removed, TokenStore } from '../token-store.js'
import { firstIdAt } from './audit.js'
import type { KeptRows } from './kept-rows.js'

type Bounds = Parameters<TokenStore['removeEnded']>[0]

/** Removal of what ended long ago: a few rows at a time, found by when they ended. */
export function upkeepWrites(db: Connection, kept: KeptRows) {
  const removeCodes = db.prepare<[number, number]>(
    // Index codes_by_expiry. A used code counts until its expiry: until then its replay ends the grant.
    'DELETE FROM codes WHERE code_hash IN (SELECT code_hash FROM codes WHERE expires_at_ms < ? LIMIT ?)',
  )
  const removeSessions = db.prepare<[number, number]>(
    // Index sessions_by_expiry.
    'DELETE FROM sessions WHERE session_hash IN (SELECT session_hash FROM sessions WHERE expires_at_ms < ? LIMIT ?)',
  )
  const removeAccessTokens = db.prepare<[number, number]>(
    // Index access_tokens_by_expiry.
    `DELETE FROM access_tokens WHERE access_token_hash IN (
       SELECT access_token_hash FROM access_tokens WHERE expires_at_ms < ? LIMIT ?)`,
  )
  const findEndedGrants = db.prepare<[{ endedBeforeMs: number; limit: number }], { grantId: string }>(
    // Index grants_by_end, then access_tokens_by_grant: an access token may outlive the refresh token it came from.
    `SELECT g.grant_id AS grantId FROM grants g
     WHERE coalesce(g.revoked_at_ms, g.expires_at_ms) < :endedBeforeMs
       AND (g.revoked_at_ms IS NOT NULL OR NOT EXISTS (
         SELECT 1 FROM access_tokens t WHERE t.grant_id = g.grant_id AND t.expires_at_ms >= :endedBeforeMs))
     LIMIT :limit`,
  )
  const removeTokensOfGrant = db.prepare<[{ grantId: string; limit: number }]>(
    // Index access_tokens_by_grant.
    `DELETE FROM access_tokens WHERE access_token_hash IN (
       SELECT access_token_hash FROM access_tokens WHERE grant_id = :grantId LIMIT :limit)`,
  )
  const removeGrant = db.prepare<[string]>(
    // Primary key.
    'DELETE FROM grants WHERE grant_id = ?',
  )
  const removeAuditEvents = db.prepare<[string, number]>(
    // Primary key: event ids sort by time.
    'DELETE FROM audit_events WHERE event_id IN (SELECT event_id FROM audit_events WHERE event_id < ? LIMIT ?)',
  )

  return {
    removeEnded({ bounds }: { bounds: Bounds }): Omit<Removed, 'requestCounts'> {
      const { endedBeforeMs, limit } = bounds
      kept.forgetAll()
      let accessTokens = removeAccessTokens.run(endedBeforeMs, limit).changes
      let grants = 0
      for (const { grantId } of findEndedGrants.all({ endedBeforeMs, limit })) {
        if (accessTokens >= limit) break
        accessTokens += removeTokensOfGrant.run({ grantId, limit: limit - accessTokens }).changes
        if (accessTokens >= limit) break // it may have more: the next batch goes on here
        grants += removeGrant.run(grantId).changes
      }
      return {
        codes: removeCodes.run(endedBeforeMs, limit).changes,
        accessTokens,
        grants,
        sessions: removeSessions.run(endedBeforeMs, limit).changes,
        auditEvents: removeAuditEvents.run(firstIdAt(bounds.auditBeforeMs), limit).changes,
      }
    },
  }
}
