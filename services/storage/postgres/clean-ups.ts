import type { CleanUps } from '../clean-up-clock.js'
import type { Database, Statement } from './transaction.js'

/** SQL: a table of one row. Stores may share a database, so each has one of its own. */
export const cleanUpsTable = (name: string) => `
-- As of when the database was last cleaned up.
CREATE TABLE ${name}_clean_ups (
  only_row boolean PRIMARY KEY CHECK (only_row),
  at_ms bigint NOT NULL
);
`

/** `name`: of the store. */
export function cleanUps(database: Database, name: string): CleanUps {
  const find: Statement = {
    name: `find_${name}_clean_up`,
    text: `SELECT at_ms AS "atMs" FROM ${name}_clean_ups WHERE only_row`,
  }
  const record: Statement = {
    name: `record_${name}_clean_up`,
    text: `
      INSERT INTO ${name}_clean_ups (only_row, at_ms) VALUES (true, $1)
      ON CONFLICT (only_row) DO UPDATE SET at_ms = excluded.at_ms`,
  }
  return {
    async lastCleanUp() {
      return (await database.readOne<{ atMs: number }>(find, []))?.atMs
    },
    recordCleanUp: (atMs) =>
      database.transaction(async (transaction) => {
        transaction.write(record, [atMs])
      }),
  }
}
