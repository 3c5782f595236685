import type { CleanUps } from '../../../storage/clean-up-clock.js'
import { firstIdAt } from '../../../storage/event-ids.js'
import { cleanUps } from '../../../storage/postgres/clean-ups.js'
import { removalOfEvents } from '../../../storage/postgres/events.js'
import type { Database, Statement } from '../../../storage/postgres/transaction.js'
import { CLOCK_SKEW_MS, type TokenStore } from '../token-store.js'

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

/** $1: the id before which no event is from a clock that is ahead. By the primary key. */
const findAhead: Statement = {
  name: 'find_ahead',
  text: 'SELECT max(event_id) AS "eventId" FROM audit_events WHERE event_id > $1',
}
/** $1: now; $2: what is later is from a clock that was ahead. Each reads a whole table, which is needed after such a clock only. */
const shortenCodes: Statement = {
  name: 'shorten_codes',
  text: `
    WITH shortened AS (
      UPDATE codes SET expires_at_ms = expires_at_ms - greatest(0, issued_at_ms - $1), issued_at_ms = least(issued_at_ms, $1),
        used_at_ms = CASE WHEN used_at_ms > $1 THEN $1 ELSE used_at_ms END -- least() skips a null
      WHERE issued_at_ms > $2 OR used_at_ms > $2
      RETURNING 1
    )
    SELECT count(*) AS count FROM shortened`,
}
/** $3: the end of what a refresh now would mint. */
const shortenGrants: Statement = {
  name: 'shorten_grants',
  text: `
    WITH shortened AS (
      UPDATE grants SET expires_at_ms = expires_at_ms - greatest(0, created_at_ms - $1),
        created_at_ms = least(created_at_ms, $1), last_used_at_ms = least(last_used_at_ms, $1),
        answers_read_at_ms = least(answers_read_at_ms, $1)
      WHERE created_at_ms > $2 OR last_used_at_ms > $2
      RETURNING grant_id
    ), tokens AS (
      UPDATE access_tokens SET expires_at_ms = $3
      WHERE expires_at_ms > $3 AND grant_id = ANY (ARRAY(SELECT grant_id FROM shortened))
    )
    SELECT count(*) AS count FROM shortened`,
}
const shortenSessions: Statement = {
  name: 'shorten_sessions',
  text: `
    WITH shortened AS (
      UPDATE sessions SET expires_at_ms = expires_at_ms - greatest(0, started_at_ms - $1),
        started_at_ms = least(started_at_ms, $1), last_seen_at_ms = least(last_seen_at_ms, $1)
      WHERE started_at_ms > $2 OR last_seen_at_ms > $2
      RETURNING 1
    )
    SELECT count(*) AS count FROM shortened`,
}

type UpkeepMethods = Pick<
  TokenStore,
  'removeEnded' | 'shortenAhead' | keyof CleanUps | 'ping' | 'connections' | 'close'
>

export function createUpkeepMethods(database: Database): UpkeepMethods {
  /** The last event from a clock that was ahead, once all that it issued is mended. */
  let mendedUpTo = ''

  return {
    ...cleanUps(database, 'token'),

    async shortenAhead({ accessTokenMs }, now) {
      const aheadMs = now + CLOCK_SKEW_MS
      const found = await database.readOne<{ eventId: string | null }>(findAhead, [firstIdAt(aheadMs)])
      const eventId = found?.eventId ?? ''
      if (eventId <= mendedUpTo) return 0
      const count = await database.transaction(async (transaction) => {
        const shorten = async (statement: Statement, ...more: number[]) => {
          const [shortened] = await transaction.write<{ count: number }>(statement, [now, aheadMs, ...more])
          return shortened?.count ?? 0
        }
        // In the order of redemptions: session, codes, grants.
        return (
          (await shorten(shortenSessions)) +
          (await shorten(shortenCodes)) +
          (await shorten(shortenGrants, now + accessTokenMs))
        )
      })
      mendedUpTo = eventId
      return count
    },

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
    connections: () => database.connections(),
    close: () => database.close(),
  }
}
