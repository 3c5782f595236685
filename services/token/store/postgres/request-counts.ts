import { columnsOf, type Database, type Statement } from '../../../storage/postgres/transaction.js'
import { MAX_REQUESTS, type RequestCount, type TokenStore } from '../token-store.js'

/** $1: keys in ascending order, so that concurrent calls lock rows in one order; $2: ends of windows; $3: requests. */
const addRequests: Statement = {
  name: 'add_requests',
  text: `
    INSERT INTO request_counts AS r (key, window_end_ms, requests)
    SELECT key, window_end_ms, requests
    FROM unnest($1::text[], $2::bigint[], $3::integer[]) AS added (key, window_end_ms, requests)
    ON CONFLICT (key) DO UPDATE SET requests = least(${MAX_REQUESTS}, r.requests::bigint + excluded.requests)
    RETURNING key, requests`,
}
/** Takes back $2 requests of key $1. */
const takeBack: Statement = {
  name: 'take_back_requests',
  text: 'UPDATE request_counts SET requests = greatest(0, requests - $2) WHERE key = $1 RETURNING key, requests',
}
/** Of keys that this transaction has taken from, and so locked. */
const removeEmpty: Statement = {
  name: 'remove_empty_request_counts',
  text: 'DELETE FROM request_counts WHERE key = ANY ($1::text[]) AND requests = 0',
}
/**
 * At most $2, found by reading the table, which has a row for each client and app of the last minutes, and removed by where
 * they are: by the key it takes three times as long.
 */
const removeEnded: Statement = {
  name: 'remove_request_counts',
  text: `
    WITH removed AS (
      DELETE FROM request_counts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM request_counts WHERE window_end_ms < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))
      RETURNING 1
    )
    SELECT count(*) AS count FROM removed`,
}

interface Row extends Record<string, unknown> {
  key: string
  requests: number
}

export function createRequestCountMethods(
  database: Database,
): Pick<TokenStore, 'countRequests' | 'removeRequestCounts'> {
  return {
    countRequests(counts) {
      const rows = counts.map((count) => ({ ...count, key: rowKey(count) })).sort((a, b) => (a.key < b.key ? -1 : 1))
      const added = rows.filter(({ requests }) => requests >= 0)
      const taken = rows.filter(({ requests }) => requests < 0)
      return database.transaction(async (transaction) => {
        const answers: Promise<Row[]>[] = []
        if (added.length > 0) {
          const columns = columnsOf(added, [(row) => row.key, (row) => row.windowEndMs, (row) => row.requests])
          answers.push(transaction.write<Row>(addRequests, columns))
        }
        for (const { key, requests } of taken) answers.push(transaction.write<Row>(takeBack, [key, -requests]))
        if (taken.length > 0) transaction.write(removeEmpty, [taken.map(({ key }) => key)])
        const totals = new Map((await Promise.all(answers)).flat().map(({ key, requests }) => [key, requests]))
        return counts.map((count) => totals.get(rowKey(count)) ?? 0)
      })
    },

    removeRequestCounts({ endedBeforeMs, limit }) {
      return database.transaction(async (transaction) => {
        const [removed] = await transaction.write<{ count: number }>(removeEnded, [endedBeforeMs, limit])
        return removed?.count ?? 0
      })
    },
  }
}

/** There is a row per window: a process whose clock is ahead gets a row of its own instead of replacing that of the others. */
function rowKey({ key, windowEndMs }: RequestCount): string {
  return `${windowEndMs} ${key}`
}
