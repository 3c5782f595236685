import type { Database, Statement, Transaction } from '../../../postgres/transaction.js'
import type { Cause } from '../../../store/cause.js'
import { eventIds } from '../../../store/event-ids.js'
import { cutPage, eventIdBefore } from '../../../store/page.js'
import type { AuditKind, AuditRow, TokenStore } from '../token-store.js'

/** The beginning of a statement that goes on with the rows. */
export const INSERT_EVENTS = `
    INSERT INTO audit_events (event_id, at_ms, kind, actor, request_id, appid, user_id, grant_id, note)`

const insertEvent: Statement = {
  name: 'insert_audit_event',
  text: `${INSERT_EVENTS}
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
}

export interface Happening {
  readonly kind: AuditKind
  readonly appid?: string
  readonly userId?: string
  readonly grantId?: string
  readonly note?: string
}

/** Writes audit events. */
export class Audit {
  readonly newEventId = eventIds()

  write(transaction: Transaction, now: number, cause: Cause, event: Happening): void {
    const { kind, appid = '', userId = '', grantId = '', note = '' } = event
    const { actor, requestId } = cause
    transaction.write(insertEvent, [this.newEventId(now), now, kind, actor, requestId, appid, userId, grantId, note])
  }
}

export function createAuditMethods(database: Database): Pick<TokenStore, 'listAuditEvents'> {
  return {
    async listAuditEvents({ appid, userId }, page) {
      const rows = await database.read<AuditRow>(listEvents(appid !== undefined, userId !== undefined), [
        eventIdBefore(page),
        page.limit + 1,
        ...[appid, userId].filter((value) => value !== undefined),
      ])
      return cutPage(rows, page.limit, (row) => row.eventId)
    },
  }
}

/** By the index of the app's or the user's events, or by the primary key. */
function listEvents(byApp: boolean, byUser: boolean): Statement {
  const conditions = [byApp && 'appid', byUser && 'user_id'].filter((column) => column !== false)
  return {
    name: ['list_audit_events', ...conditions].join('_'),
    text: `
      SELECT event_id AS "eventId", at_ms AS "atMs", kind, actor, request_id AS "requestId",
        appid, user_id AS "userId", grant_id AS "grantId", note
      FROM audit_events
      WHERE event_id < $1 ${conditions.map((column, index) => `AND ${column} = $${index + 3}`).join(' ')}
      ORDER BY event_id DESC LIMIT $2`,
  }
}
