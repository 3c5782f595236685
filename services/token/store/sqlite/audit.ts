import { randomBytes } from 'node:crypto'
import type { Connection } from '../../../sqlite/open.js'
import { cutPage } from '../page.js'
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
 * processes. They are unique without asking the database and tell nothing.
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
    const eventId = firstIdAt(now) + count.toString(16).padStart(8, '0') + writer
    kept.changed(kind, grantId)
    insert.run(eventId, now, kind, cause.actor, cause.requestId, appid, userId, grantId, note)
  }
}

/** Sorts before the ids of all events at `atMs` and after those of all earlier ones. */
export function firstIdAt(atMs: number): string {
  return Math.max(0, Math.floor(atMs)).toString(16).padStart(12, '0')
}

const COLUMNS = `event_id AS eventId, at_ms AS atMs, kind, actor, request_id AS requestId, appid, user_id AS userId,
  grant_id AS grantId, note`
const LAST_ID = '~' // sorts after every id
type Position = { readonly before: string; readonly limit: number }

export function auditReads(db: Connection) {
  const all = db.prepare<[Position], AuditRow>(
    // Primary key, backwards.
    `SELECT ${COLUMNS} FROM audit_events WHERE event_id < :before ORDER BY event_id DESC LIMIT :limit`,
  )
  const ofApp = db.prepare<[Position & { readonly appid: string }], AuditRow>(
    // Index audit_events_by_app, backwards.
    `SELECT ${COLUMNS} FROM audit_events
     WHERE appid = :appid AND event_id < :before ORDER BY event_id DESC LIMIT :limit`,
  )
  const ofUser = db.prepare<[Position & { readonly userId: string }], AuditRow>(
    // Index audit_events_by_user, backwards.
    `SELECT ${COLUMNS} FROM audit_events
     WHERE user_id = :userId AND event_id < :before ORDER BY event_id DESC LIMIT :limit`,
  )
  const ofBoth = db.prepare<[Position & { readonly appid: string; readonly userId: string }], AuditRow>(
    // Index audit_events_by_user, backwards; the + keeps the planner from the app's index, which is longer.
    `SELECT ${COLUMNS} FROM audit_events
     WHERE user_id = :userId AND +appid = :appid AND event_id < :before ORDER BY event_id DESC LIMIT :limit`,
  )

  return {
    listAuditEvents(filter: { readonly appid?: string; readonly userId?: string }, page: PageOf): Page<AuditRow> {
      const { appid, userId } = filter
      const position = { before: page.after ?? LAST_ID, limit: page.limit + 1 }
      let rows: readonly AuditRow[]
      if (appid !== undefined && userId !== undefined) rows = ofBoth.all({ appid, userId, ...position })
      else if (appid !== undefined) rows = ofApp.all({ appid, ...position })
      else if (userId !== undefined) rows = ofUser.all({ userId, ...position })
      else rows = all.all(position)
      return cutPage(rows, page.limit, (row) => row.eventId)
    },
  }
}
