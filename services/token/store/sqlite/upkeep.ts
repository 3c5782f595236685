import type { Connection } from '../../../sqlite/open.js'
import type { Removed, TokenStore } from '../token-store.js'
import { BLOCK } from './audit.js'
import type { KeptRows } from './kept-rows.js'
import { countTokens } from './packed-tokens.js'

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
  const findEndedGrants = db
    .prepare<[number], [place: bigint, revokedAtMs: bigint | null, tokens: Buffer]>(
      // Index grants_by_end.
      `SELECT place, revoked_at_ms, access_tokens FROM grants
       WHERE coalesce(revoked_at_ms, expires_at_ms) < ? ORDER BY coalesce(revoked_at_ms, expires_at_ms)`,
    )
    .raw()
    .safeIntegers()
  const removeGrant = db.prepare<[bigint]>(
    // Primary key.
    'DELETE FROM grants WHERE place = ?',
  )
  const removeAuditEvents = db.prepare<[{ limit: number; auditBeforeMs: number }]>(
    // Primary key: of the first ones, which are the oldest.
    `DELETE FROM audit_events
     WHERE number < (SELECT min(number) FROM audit_events) + :limit AND at_ms < :auditBeforeMs`,
  )

  const removeAuditBlocks = db.prepare<[]>(
    // Primary key.
    `DELETE FROM audit_blocks
     WHERE block < (SELECT coalesce(min(number) / ${BLOCK}, ${Number.MAX_SAFE_INTEGER}) FROM audit_events)`,
  )

  /** An access token may outlive the refresh token it came from, and its grant stays as long. */
  function findGrants({ endedBeforeMs, limit }: Bounds): { place: bigint; tokens: number }[] {
    const found = []
    for (const [place, revokedAtMs, packed] of findEndedGrants.iterate(endedBeforeMs)) {
      const { count, lastEndMs } = countTokens(packed)
      if (revokedAtMs === null && lastEndMs >= endedBeforeMs) continue
      found.push({ place, tokens: count })
      if (found.length >= limit) break
    }
    return found
  }

  return {
    removeEnded({ bounds }: { bounds: Bounds }): Omit<Removed, 'requestCounts'> {
      const { endedBeforeMs, limit } = bounds
      kept.forgetAll()
      const grants = findGrants(bounds)
      for (const { place } of grants) removeGrant.run(place)
      const auditEvents = removeAuditEvents.run({ auditBeforeMs: bounds.auditBeforeMs, limit }).changes
      if (auditEvents > 0) removeAuditBlocks.run()
      return {
        codes: removeCodes.run(endedBeforeMs, limit).changes,
        accessTokens: grants.reduce((sum, { tokens }) => sum + tokens, 0),
        grants: grants.length,
        sessions: removeSessions.run(endedBeforeMs, limit).changes,
        auditEvents,
      }
    },
  }
}
