import { DatabaseRefused } from '../database-refused.js'
import { type Migration, requireUsable, type SchemaState, stateAfter } from '../migration.js'
import { type Connection, waitingFor } from './open.js'

/** How long one process waits while another migrates. Ten million grants take minutes. */
const MIGRATION_TIMEOUT_MS = 600_000

export interface Schema {
  /** What the database holds, for messages: `token` or `survey`. */
  readonly name: string
  /** SQLite's application_id, so that one schema is never created in the file of another. */
  readonly applicationId: number
  readonly migrations: readonly Migration[]
}

/**
 * Brings a database to the newest version this program knows, in one transaction: all steps or none. Several processes
 * may start at once; one migrates and the others find it done. What a newer program has migrated stays as it is.
 * @returns the versions before and after.
 * @throws DatabaseRefused
 */
export function migrate(db: Connection, schema: Schema): { from: number; to: number } {
  const after = stateAfter(schema.migrations)
  const from = knownVersion(db, schema)
  if (from >= after.version) return { from, to: from }
  const run = db.transaction(() => {
    const version = knownVersion(db, schema) // another process may have been faster
    if (version >= after.version) return
    for (const migration of schema.migrations.slice(version)) db.exec(migration.sql)
    db.pragma(`application_id = ${schema.applicationId}`)
    db.pragma(`user_version = ${after.usableFrom * USABLE_FROM + after.version}`)
  })
  waitingFor(MIGRATION_TIMEOUT_MS, db, () => run.immediate())
  return { from, to: after.version }
}

/** user_version is one number for both: the version below this, and multiples of it for what a program must know. */
const USABLE_FROM = 0x10000

/** What the file records, whatever made it. */
export function schemaStateOf(db: Connection): SchemaState {
  const recorded = Number(db.pragma('user_version', { simple: true }))
  return { version: recorded % USABLE_FROM, usableFrom: Math.floor(recorded / USABLE_FROM) }
}

/** The version of the database, 0 when it is empty. Changes nothing. @throws DatabaseRefused */
export function knownVersion(db: Connection, schema: Schema): number {
  const { name, applicationId, migrations } = schema
  const state = schemaStateOf(db)
  const isEmpty = state.version === 0 && db.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get() === undefined
  if (isEmpty) return 0
  if (db.pragma('application_id', { simple: true }) !== applicationId) {
    throw new DatabaseRefused(`${db.name} is not a ${name} database of this program: name another file`)
  }
  requireUsable(state, migrations, `the ${name} database ${db.name}`)
  return state.version
}
