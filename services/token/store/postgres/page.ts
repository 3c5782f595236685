import type { Page } from '../token-store.js'

/** A page from the rows of a query that asked for one more than `limit`, to see whether it is the last. */
export function pageOf<Row>(rows: readonly Row[], limit: number, keyOf: (row: Row) => string): Page<Row> {
  const shown = rows.slice(0, limit)
  const last = rows.length > limit ? shown.at(-1) : undefined
  return { rows: shown, next: last && keyOf(last) }
}
