import { randomBytes } from 'node:crypto'
import type { Connection } from '../../../sqlite/open.js'
import { cutPage, parseNumber } from '../page.js'
import type { AuditKind, AuditRow, Cause, Page, PageOf } from '../token-store.js'
import type { KeptRows } from './kept-rows.js'

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
 * Ids sort by time, then by order of writing within a process: 12 hex digits of ms, 8 of a count, 16 that differ between
 * processes. They are unique without asking the database and tell nothing. Here lists go by numbers in the order of writing,
 * whose indexes are half the size.
 */
export function eventRecorder(db: Connection, kept: KeptRows): RecordEvent {
  const writer = randomBytes(8).toString('hex')
  let count = 0
  const insert = db.prepare<[string, number, string, string, string, string, string, string, string]>(
    `INSERT INTO audit_events (event_id, at_ms, kind, actor, request_id, appid, user_id, grant_id, note)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  return ({ kind, now, cause, appid = '', userId = '', grantId = '', note = '' }) => {
    count = (count + 1) >>> 0
    const eventId = timeOf(now) + count.toString(16).padStart(8, '0') + writer
    kept.changed(kind, grantId)
    insert.run(eventId, now, kind, cause.actor, cause.requestId, appid, userId, grantId, note)
  }
}

function timeOf(atMs: number): string {
  return Math.max(0, Math.floor(atMs)).toString(16).padStart(12, '0')
}

const COLUMNS = `number, event_id AS eventId, at_ms AS atMs, kind, actor, request_id AS requestId, appid, user_id AS userId,
  grant_id AS grantId, note`
type EventRecord = AuditRow & { readonly number: number }
type Position = { readonly before: number; readonly limit: number }

export function auditReads(db: Connection) {
  const all = db.prepare<[Position], EventRecord>(
    // Primary key, backwards.
    `SELECT ${COLUMNS} FROM audit_events WHERE number < :before ORDER BY number DESC LIMIT :limit`,
  )
  const ofApp = db.prepare<[Position & { readonly appid: string }], EventRecord>(
    // Index audit_events_by_app, backwards.
    `SELECT ${COLUMNS} FROM audit_events
     WHERE appid = :appid AND number < :before ORDER BY number DESC LIMIT :limit`,
  )
  const ofUser = db.prepare<[Position & { readonly userId: string }], EventRecord>(
    // Index audit_events_by_user, backwards.
    `SELECT ${COLUMNS} FROM audit_events
     WHERE user_id = :userId AND number < :before ORDER BY number DESC LIMIT :limit`,
  )
  const ofBoth = db.prepare<[Position & { readonly appid: string; readonly userId: string }], EventRecord>(
    // Index audit_events_by_user, backwards; the + keeps the planner from the app's index, which is longer.
    `SELECT ${COLUMNS} FROM audit_events
     WHERE user_id = :userId AND +appid = :appid AND number < :before ORDER BY number DESC LIMIT :limit`,
  )

  return {
    listAuditEvents(filter: { readonly appid?: string; readonly userId?: string }, page: PageOf): Page<AuditRow> {
      const { appid, userId } = filter
      const before = page.after === undefined ? Number.MAX_SAFE_INTEGER : parseNumber(page.after)
      const position = { before, limit: page.limit + 1 }
      let found: readonly EventRecord[]
      if (appid !== undefined && userId !== undefined) found = ofBoth.all({ appid, userId, ...position })
      else if (appid !== undefined) found = ofApp.all({ appid, ...position })
      else if (userId !== undefined) found = ofUser.all({ userId, ...position })
      else found = all.all(position)
      const { rows, next } = cutPage(found, page.limit, ({ number }) => String(number))
      return { rows: rows.map(({ number: _, ...row }) => row), next }
    },
  }
}
