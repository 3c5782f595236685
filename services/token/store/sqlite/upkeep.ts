import type { Connection } from '../../../storage/sqlite/open.js'
import type { Removed, TokenStore } from '../token-store.js'
import { BLOCK } from './audit.js'
import type { KeptTokens } from './kept-tokens.js'
import { expiriesOf, NEWEST_EXPIRY, packTime } from './packed-tokens.js'

/** Events examined per event that may be removed: some at the front may be from a clock that was ahead. */
const LOOKS = 8
/** Before the number of any event. */
const NONE = -1

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
  const firstEvents = 'SELECT number, at_ms FROM audit_events WHERE number > :after ORDER BY number LIMIT :looks'
  const removeAuditEvents = db.prepare<[{ after: number; limit: number; looks: number; auditBeforeMs: number }]>(
    // Primary key: the first rows are the oldest, unless a clock was wrong when they were written.
    `DELETE FROM audit_events WHERE number IN (
       SELECT number FROM (${firstEvents}) WHERE at_ms < :auditBeforeMs LIMIT :limit)`,
  )
  const findAhead = db
    .prepare<[{ after: number; looks: number }], number>(
      // Primary key. The last of the first events, if all of them are later than the newest event.
      `SELECT max(number) FROM (${firstEvents})
       HAVING min(at_ms) > (SELECT at_ms FROM audit_events ORDER BY number DESC LIMIT 1)`,
    )
    .pluck()
  const removeAuditBlocks = db.prepare<[{ after: number; from: number }]>(
    // Primary key. Blocks whose events are gone, and blocks that will be filled again because their last events are gone.
    `DELETE FROM audit_blocks
     WHERE block BETWEEN :from AND (
         SELECT coalesce(min(number) / ${BLOCK} - 1, ${Number.MAX_SAFE_INTEGER}) FROM audit_events WHERE number > :after)
       OR block > (SELECT (max(number) + 1) / ${BLOCK} - 1 FROM audit_events)`,
  )

  /** Events up to this number are from a clock that was ahead: later ones may be due before them. */
  let passedOver = NONE
  function passOverAhead(looks: number): void {
    const isAhead = findAhead.get({ after: NONE, looks: 1 }) !== undefined
    passedOver = isAhead ? (findAhead.get({ after: passedOver, looks }) ?? passedOver) : NONE
  }

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
      const looks = LOOKS * limit
      passOverAhead(looks)
      const auditEvents = removeAuditEvents.run({ after: passedOver, auditBeforeMs, limit, looks }).changes
      if (auditEvents > 0) removeAuditBlocks.run({ after: passedOver, from: Math.ceil((passedOver + 1) / BLOCK) })
      return {
        ...counts,
        sessions: removeSessions.run(endedBeforeMs, limit).changes,
        auditEvents,
      }
    },
  }
}
