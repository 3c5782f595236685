import type { Cause } from '../../../storage/cause.js'
import { eventIds } from '../../../storage/event-ids.js'
import { cutPage, type Page, type PageOf, parseNumber } from '../../../storage/page.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import type { AuditKind, AuditRow } from '../token-store.js'
import type { KeptTokens } from './kept-tokens.js'

/** Events per block; its row has five characters for each user and app among them, and fits a page of 4 KiB. */
export const BLOCK = 768

export interface NewAuditEvent {
  readonly kind: AuditKind
  readonly now: number
  readonly cause: Cause
  readonly appid?: string
  readonly userId?: string
  readonly grantId?: string
  readonly note?: string
}

/** Writes an event inside the transaction in progress. */
export type RecordEvent = (event: NewAuditEvent) => void

/**
 * Rows are numbered as they are written. Their apps and users have no index: each event would change a page of its own in
 * it, which costs as much as the rest of a refresh. Instead, when a block of events is full, a row records whom they concern,
 * and lists read only the blocks that may contain matching events.
 */
export function eventRecorder(db: Connection, kept: KeptTokens): RecordEvent {
  const newEventId = eventIds()
  const insert = db.prepare<[string, number, string, string, string, string, string, string, string, string, string]>(
    `INSERT INTO audit_events (event_id, at_ms, kind, actor, actor_id, actor_source, request_id, appid, user_id, grant_id, note)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  const insertBlock = db.prepare<[{ first: number; last: number }]>(
    // Primary key. A row exists already if somebody has removed the last events by hand.
    `INSERT OR REPLACE INTO audit_blocks (block, ids)
     SELECT :first / ${BLOCK}, group_concat(DISTINCT substr(appid, -4)) || ',' || group_concat(DISTINCT substr(user_id, -4))
     FROM audit_events WHERE number BETWEEN :first AND :last`,
  )
  return ({ kind, now, cause, appid = '', userId = '', grantId = '', note = '' }) => {
    kept.changed(kind, grantId)
    const { actor, actorId, actorSource, requestId } = cause
    const by = [actor, actorId, actorSource, requestId] as const
    const written = insert.run(newEventId(now), now, kind, ...by, appid, userId, grantId, note)
    const number = Number(written.lastInsertRowid)
    if (number % BLOCK === BLOCK - 1) insertBlock.run({ first: number - BLOCK + 1, last: number })
  }
}

const COLUMNS = `number, event_id AS eventId, at_ms AS atMs, kind, actor, actor_id AS actorId, actor_source AS actorSource, request_id AS requestId, appid, user_id AS userId,
  grant_id AS grantId, note`
type EventRecord = AuditRow & { readonly number: number }

/** The conditions of a filter, null for a column that it does not name, and the number of the last event that is wanted. */
interface Listing {
  readonly appid: string | null
  readonly userId: string | null
  readonly last: number
  readonly limit: number
}

export function auditReads(db: Connection) {
  const matches = 'number <= :last AND (:appid IS NULL OR appid = :appid) AND (:userId IS NULL OR user_id = :userId)'
  const findNewest = db.prepare<[Listing], EventRecord>(
    // Primary keys, backwards. What is in no block yet.
    `SELECT ${COLUMNS} FROM audit_events
     WHERE number >= (SELECT coalesce(max(block) + 1, 0) FROM audit_blocks) * ${BLOCK} AND ${matches}
     ORDER BY number DESC LIMIT :limit`,
  )
  const findInBlocks = db.prepare<[Listing], EventRecord>(
    // Primary keys, backwards.
    `SELECT ${COLUMNS}
     FROM audit_blocks CROSS JOIN audit_events ON number BETWEEN block * ${BLOCK} AND block * ${BLOCK} + ${BLOCK - 1}
     WHERE block <= :last / ${BLOCK} AND (:appid IS NULL OR instr(ids, substr(:appid, -4)))
       AND (:userId IS NULL OR instr(ids, substr(:userId, -4))) AND ${matches}
     ORDER BY block DESC, number DESC LIMIT :limit`,
  )
  /** Newest first. One read transaction, in which no event moves into a block. */
  const find = db.transaction((listing: Listing): EventRecord[] => {
    const found = findNewest.all(listing)
    const limit = listing.limit - found.length
    return limit > 0 ? [...found, ...findInBlocks.all({ ...listing, limit })] : found
  })

  return {
    listAuditEvents(filter: { readonly appid?: string; readonly userId?: string }, page: PageOf): Page<AuditRow> {
      const { appid = null, userId = null } = filter
      const last = page.after === undefined ? Number.MAX_SAFE_INTEGER : parseNumber(page.after) - 1
      const found = find({ appid, userId, last, limit: page.limit + 1 })
      const { rows, next } = cutPage(found, page.limit, ({ number }) => String(number))
      return { rows: rows.map(({ number: _, ...row }) => row), next }
    },
  }
}
