import type { CleanUps } from '../clean-up-clock.js'
import { type GroupCommit, writing } from './group-commit.js'
import { type Connection, reading } from './open.js'

/** SQL: the table of one row that every store has. */
export const CLEAN_UPS = `
        -- As of when the database was last cleaned up.
        CREATE TABLE clean_ups (
          only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
          at_ms    INTEGER NOT NULL
        ) STRICT;`

export function cleanUps(db: Connection, writer: GroupCommit): CleanUps {
  const find = db.prepare<[], number>('SELECT at_ms FROM clean_ups WHERE only_row = 1').pluck()
  const record = db.prepare<[number]>('INSERT OR REPLACE INTO clean_ups (only_row, at_ms) VALUES (1, ?)')
  return {
    lastCleanUp: reading(db, () => find.get()),
    recordCleanUp: writing(writer, (atMs: number) => void record.run(atMs)),
  }
}
