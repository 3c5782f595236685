import type { Database, Statement } from '../../../postgres/transaction.js'
import type { TokenStore } from '../token-store.js'

/** $1 are keys in ascending order, so that concurrent calls lock rows in one order; $2 ends of windows, $3 requests. */
const addRequests: Statement = {
  name: 'add_requests',
  text: `
    INSERT INTO request_counts AS r (key, window_end_ms, requests)
    SELECT key, window_end_ms, greatest(0, requests)
    FROM unnest($1::text[], $2::bigint[], $3::integer[]) AS added (key, window_end_ms, requests)
    ON CONFLICT (key) DO UPDATE SET
      requests = CASE
        WHEN r.window_end_ms > excluded.window_end_ms THEN r.requests
        WHEN r.window_end_ms < excluded.window_end_ms THEN excluded.requests
        ELSE r.requests + excluded.requests END,
      window_end_ms = greatest(r.window_end_ms, excluded.window_end_ms)
    RETURNING key, window_end_ms AS "windowEndMs", requests`,
}
/** Takes back $3 of $1 in the window that ends at $2. */
const takeBack: Statement = {
  name: 'take_back_requests',
  text: `
    UPDATE request_counts SET requests = greatest(0, requests - $3)
    WHERE key = $1 AND window_end_ms = $2
    RETURNING key, window_end_ms AS "windowEndMs", requests`,
}

interface Row {
  key: string
  windowEndMs: number
  requests: number
}

export function createRequestCountMethods(database: Database): Pick<TokenStore, 'countRequests'> {
  return {
    countRequests(counts) {
      const sorted = [...counts].sort((a, b) => (a.key < b.key ? -1 : 1))
      const added = sorted.filter(({ requests }) => requests >= 0)
      return database.transaction(async (transaction) => {
        const answers: Promise<Row[]>[] = []
        if (added.length > 0) {
          const columns = [
            added.map(({ key }) => key),
            added.map(({ windowEndMs }) => windowEndMs),
            added.map(({ requests }) => requests),
          ]
          answers.push(transaction.write<Row & Record<string, unknown>>(addRequests, columns))
        }
        for (const { key, windowEndMs, requests } of sorted.filter((count) => count.requests < 0)) {
          answers.push(transaction.write<Row & Record<string, unknown>>(takeBack, [key, windowEndMs, -requests]))
        }
        const byKey = new Map((await Promise.all(answers)).flat().map((row) => [row.key, row]))
        return counts.map(({ key, windowEndMs }) => {
          const row = byKey.get(key)
          return row?.windowEndMs === windowEndMs ? row.requests : 0
        })
      })
    },
  }
}
