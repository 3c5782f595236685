import type { Cause } from '../../../storage/cause.js'
import { eventIds } from '../../../storage/event-ids.js'
import { listEvents } from '../../../storage/postgres/events.js'
import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import type { AuditKind, AuditRow, TokenStore } from '../token-store.js'

/** The beginning of a statement; the rows follow. */
export const INSERT_EVENTS = `
    INSERT INTO audit_events (event_id, at_ms, kind, actor, actor_id, actor_source, request_id, appid, user_id, grant_id, note)`

const insertEvent: Statement = {
  name: 'insert_audit_event',
  text: `${INSERT_EVENTS}
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
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
    const { actor, actorId, actorSource, requestId } = cause
    const by = [actor, actorId, actorSource, requestId]
    transaction.write(insertEvent, [this.newEventId(now), now, kind, ...by, appid, userId, grantId, note])
  }
}

const EVENTS = { table: 'audit_events', columns: 'appid, user_id AS "userId", grant_id AS "grantId", note' }

export function createAuditMethods(database: Database): Pick<TokenStore, 'listAuditEvents'> {
  return {
    listAuditEvents: ({ appid, userId }, page) =>
      listEvents<AuditRow>(database, EVENTS, { appid, user_id: userId }, page),
  }
}
