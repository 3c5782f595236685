import type { Connection } from '../../../storage/sqlite/open.js'
import type { Removed, TokenStore } from '../token-store.js'
import { BLOCK } from './audit.js'
import { expiriesOf, NEWEST_EXPIRY, packTime } from './grant-row.js'
import type { KeptTokens } from './kept-tokens.js'

/** Events examined per event that may be removed: some at the front may be from a clock that was ahead. */
const LOOKS = 8

type Bounds = Parameters<TokenStore['removeEnded']>[0]

type EndedRecord = [place: bigint, codeExpiresAtMs: bigint, isGrant: bigint, isRevoked: bigint, tokens: Buffer]

/** Removal of rows that ended long ago: a bounded number at a time, found by when they ended. */
export function upkeepWrites(db: Connection, kept: KeptTokens) {
  const removeSessions = db.prepare<[number, number]>(
    // Index sessions_by_expiry.
    'DELETE FROM sessions WHERE session_hash IN (SELECT session_hash FROM sessions WHERE expires_at_ms < ? LIMIT ?)',
  )
  const findEndedGrants = db
    .prepare<[{ endedBeforeMs: number; packed: Buffer }], EndedRecord>(
      // Index grants_by_end. Finds unused codes too. An access token may outlive the refresh token it came from, and its grant
      // stays as long. The newest token nearly always ends last; findEnded checks all.
      `SELECT place, code_expires_at_ms, created_at_ms IS NOT NULL, revoked_at_ms IS NOT NULL, access_tokens FROM grants
       WHERE coalesce(revoked_at_ms, expires_at_ms) < :endedBeforeMs
         AND (revoked_at_ms IS NOT NULL OR ${NEWEST_EXPIRY} < :packed)`,
    )
    .raw()
    .safeIntegers()
  const removeGrant = db.prepare<[bigint]>(
    // Primary key.
    'DELETE FROM grants WHERE place = ?',
  )
  const removeAuditEvents = db.prepare<[{ limit: number; looks: number; auditBeforeMs: number }]>(
    // Primary key: the first rows are the oldest, unless a clock was wrong when they were written.
    `DELETE FROM audit_events WHERE number IN (
       SELECT number FROM (SELECT number, at_ms FROM audit_events ORDER BY number LIMIT :looks)
       WHERE at_ms < :auditBeforeMs LIMIT :limit)`,
  )
  const removeAuditBlocks = db.prepare<[]>(
    // Primary key. Blocks whose events are gone, and blocks that will be filled again because their last events are gone.
    `DELETE FROM audit_blocks
     WHERE block < (SELECT coalesce(min(number) / ${BLOCK}, ${Number.MAX_SAFE_INTEGER}) FROM audit_events)
       OR block > (SELECT (max(number) + 1) / ${BLOCK} - 1 FROM audit_events)`,
  )

  /** The places of the ended rows, and how many codes, grants and tokens they are. */
  function findEnded({ endedBeforeMs, limit }: Bounds) {
    const places: bigint[] = []
    const counts = { codes: 0, accessTokens: 0, grants: 0 }
    for (const [place, codeExpiresAtMs, isGrant, isRevoked, packed] of findEndedGrants.iterate({
      endedBeforeMs,
      packed: packTime(endedBeforeMs),
    })) {
      const ends = expiriesOf(packed)
      if (!isRevoked && ends.some((end) => end >= endedBeforeMs)) continue
      places.push(place)
      counts.accessTokens += ends.length
      counts.grants += Number(isGrant)
      if (codeExpiresAtMs < endedBeforeMs) counts.codes += 1
      if (places.length >= limit) break
    }
    return { places, counts }
  }

  return {
    removeEnded(bounds: Bounds): Removed {
      const { endedBeforeMs, auditBeforeMs, limit } = bounds
      const { places, counts } = findEnded(bounds)
      if (places.length > 0) kept.forgetAll()
      for (const place of places) removeGrant.run(place)
      const auditEvents = removeAuditEvents.run({ auditBeforeMs, limit, looks: LOOKS * limit }).changes
      if (auditEvents > 0) removeAuditBlocks.run()
      return {
        ...counts,
        sessions: removeSessions.run(endedBeforeMs, limit).changes,
        auditEvents,
      }
    },
  }
}
