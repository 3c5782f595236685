import type { Connection } from '../../../storage/sqlite/open.js'
import { CLOCK_SKEW_MS } from '../token-store.js'
import { packTokens, unpackTokens } from './grant-row.js'
import type { KeptTokens } from './kept-tokens.js'

/** The events among which those of a clock that was ahead are looked for: the last written. */
const EVENTS = 1_000

/** Mends what a clock that was ahead has issued. */
export function aheadWrites(db: Connection, kept: KeptTokens) {
  const findAhead = db
    .prepare<[{ aheadMs: number; events: number }], string | null>(
      // Primary key, backwards.
      `SELECT max(event_id) FROM (SELECT event_id, at_ms FROM audit_events ORDER BY number DESC LIMIT :events)
       WHERE at_ms > :aheadMs`,
    )
    .pluck()
  const shortenGrants = db.prepare<[{ now: number; aheadMs: number }], { place: bigint; tokens: Buffer }>(
    // The whole table, after a clock that was ahead.
    `UPDATE grants
     SET code_expires_at_ms = code_expires_at_ms - max(0, issued_at_ms - :now),
       expires_at_ms = expires_at_ms - max(0, coalesce(created_at_ms, issued_at_ms) - :now),
       issued_at_ms = min(issued_at_ms, :now), created_at_ms = min(created_at_ms, :now),
       last_used_at_ms = min(last_used_at_ms, :now), answers_read_at_ms = min(answers_read_at_ms, :now),
       revoked_at_ms = min(revoked_at_ms, :now)
     WHERE max(issued_at_ms, coalesce(created_at_ms, 0), coalesce(last_used_at_ms, 0)) > :aheadMs
     RETURNING place, access_tokens AS tokens`,
  )
  shortenGrants.safeIntegers()
  const setTokens = db.prepare<[Buffer, bigint]>(
    // Primary key.
    'UPDATE grants SET access_tokens = ? WHERE place = ?',
  )
  const shortenSessions = db.prepare<[{ now: number; aheadMs: number }]>(
    // The whole table.
    `UPDATE sessions
     SET expires_at_ms = expires_at_ms - max(0, started_at_ms - :now), started_at_ms = min(started_at_ms, :now),
       last_seen_at_ms = min(last_seen_at_ms, :now)
     WHERE max(started_at_ms, last_seen_at_ms) > :aheadMs`,
  )
  /** The last event from a clock that was ahead, once all that it issued is mended. */
  let mendedUpTo = ''

  return {
    shortenAhead({ accessTokenMs }: { readonly accessTokenMs: number }, now: number): number {
      const aheadMs = now + CLOCK_SKEW_MS
      const eventId = findAhead.get({ aheadMs, events: EVENTS }) ?? ''
      if (eventId <= mendedUpTo) return 0
      kept.forgetAll()
      const grants = shortenGrants.all({ now, aheadMs })
      for (const { place, tokens } of grants) {
        const ends = unpackTokens(tokens).map(({ hash, expiresAtMs }) => {
          return { hash, expiresAtMs: Math.min(expiresAtMs, now + accessTokenMs) }
        })
        setTokens.run(packTokens(ends), place)
      }
      mendedUpTo = eventId // if this is rolled back, the next process mends it
      return grants.length + shortenSessions.run({ now, aheadMs }).changes
    },
  }
}
