// Audit events on PostgreSQL, whose key, event_id, sorts by time.
import { cutPage, eventIdBefore, type Page, type PageOf } from '../page.js'
import type { Database, Statement, Value } from './transaction.js'

/** Columns that every table of events has. */
const COLUMNS =
  'event_id AS "eventId", at_ms AS "atMs", kind, actor, actor_id AS "actorId", actor_source AS "actorSource", request_id AS "requestId"'

/**
 * Newest first, the events that match every value given in `filter`, by column. Uses an index of that column and event_id, or
 * the primary key. `columns`: those the table has besides. @throws ServiceError INVALID_ARGUMENT as PageOf says
 */
export async function listEvents<Row extends { readonly eventId: string }>(
  database: Database,
  { table, columns }: { readonly table: string; readonly columns: string },
  filter: Readonly<Record<string, Value | undefined>>,
  page: PageOf,
): Promise<Page<Row>> {
  const conditions = Object.entries(filter).flatMap(([column, value]) =>
    value === undefined ? [] : [{ column, value }],
  )
  const statement = {
    name: ['list', table, ...conditions.map(({ column }) => column)].join('_'),
    text: `
      SELECT ${COLUMNS}, ${columns} FROM ${table}
      WHERE event_id < $1 ${conditions.map(({ column }, index) => `AND ${column} = $${index + 3}`).join(' ')}
      ORDER BY event_id DESC LIMIT $2`,
  }
  const values = [eventIdBefore(page), page.limit + 1, ...conditions.map(({ value }) => value)]
  return cutPage(await database.read<Row>(statement, values), page.limit, (row) => row.eventId)
}

/**
 * Removes events by the primary key. $1 is the first id of the time before which they are removed, $2 the bound; it returns how
 * many. Rows locked by others are skipped: several janitors share the work instead of waiting for each other.
 */
export function removalOfEvents(table: string): Statement {
  return {
    name: `remove_${table}`,
    text: `
    WITH ended AS (
      SELECT event_id FROM ${table} WHERE event_id < $1 ORDER BY event_id LIMIT $2 FOR UPDATE SKIP LOCKED
    ), removed AS (
      DELETE FROM ${table} a USING ended e WHERE a.event_id = e.event_id RETURNING 1
    )
    SELECT count(*) AS count FROM removed`,
  }
}
