// Looks into a SQLite file without the services: for doctor, migrate and backup. Never writes to the file itself.
import { existsSync, statSync } from 'node:fs'
import { Database } from '../../services/sqlite/driver.js'
import { knownVersion, type Schema } from '../../services/sqlite/migrate.js'
import type { Connection } from '../../services/sqlite/open.js'

export interface DatabaseFacts {
  /** 0 when there is no schema yet. */
  readonly schemaVersion: number
  readonly journalMode: string
  /** `ok`, or the first thing that is broken. */
  readonly integrity: string
  /** Permission bits, for example 0o600. */
  readonly mode: number
}

/** undefined when the file does not exist. @throws SchemaMismatch, and when it is no database or cannot be read. */
export function inspectDatabase(file: string, schema: Schema): DatabaseFacts | undefined {
  if (!existsSync(file)) return undefined
  return reading(file, (database) => ({
    schemaVersion: knownVersion(database, schema),
    journalMode: String(database.pragma('journal_mode', { simple: true })),
    integrity: String(database.pragma('quick_check(1)', { simple: true })),
    mode: statSync(file).mode & 0o777,
  }))
}

/**
 * Writes a consistent copy while others go on writing, without what `remove` takes out of it. It is compact: no freed page
 * keeps what was deleted.
 * @throws SchemaMismatch when nobody here knows what the file holds, and so what to take out.
 */
export function snapshotDatabase(
  file: string,
  copy: string,
  schema: Schema,
  remove?: (copy: Connection) => void,
): void {
  reading(file, (database) => {
    knownVersion(database, schema) // before, to copy nothing in vain
    database.prepare('VACUUM INTO ?').run(copy)
    knownVersion(database, schema) // after: versions only grow, so the copy's is known too
  })
  if (!remove) return
  const database = new Database(copy)
  try {
    remove(database)
    database.exec('VACUUM')
  } finally {
    database.close()
  }
}

function reading<T>(file: string, work: (database: Connection) => T): T {
  const database = new Database(file, { readonly: true, timeout: 10_000 })
  try {
    return work(database)
  } finally {
    database.close()
  }
}
