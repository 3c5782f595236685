// Brings a database to the schema this program knows. Forward only, and while others use it: migration.ts has the rule.
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { DatabaseRefused } from '../database-refused.js'
import { type Migration, requireUsable, type SchemaState, stateAfter } from '../migration.js'
import { StoreUnavailable } from '../store-unavailable.js'

export interface Schema {
  /** `token` or `survey`. Stores may share a database; each counts its own versions. */
  readonly name: string
  readonly migrations: readonly Migration[]
}

const WAIT_MS = 60_000 // for another process that migrates, for tables that are in use, and for each statement
/**
 * For a table, in turn: whoever asks for it after us waits behind us, and a request that waits for two seconds is refused. After
 * deadlock_timeout, one second, the server ends an autovacuum that is in the way.
 */
const LOCK_WAITS_MS = [300, 300, 300, 1_300]
const AGAIN_AFTER_MS = 500 // requests that waited are answered by then
const CREATION_ATTEMPTS = 5

/**
 * Runs the missing migrations, in one transaction. When several processes start at once, one migrates and the others wait for
 * it: all lock the row that holds the version. Nothing is written when none is missing: the server may be waiting for a standby.
 * @throws DatabaseRefused when this program cannot use the database, or its role may not create tables; StoreUnavailable when its
 * tables are in use all the time.
 */
export async function migrate(client: pg.ClientBase, schema: Schema): Promise<void> {
  const version = await knownVersion(client, schema)
  if (version >= schema.migrations.length) return
  await requireVersionRow(client, schema)
  const endMs = performance.now() + WAIT_MS
  for (let attempt = 0; ; attempt += 1) {
    try {
      await runMissing(client, schema, LOCK_WAITS_MS[attempt % LOCK_WAITS_MS.length] as number)
      break
    } catch (error) {
      await run(client, 'ROLLBACK').catch(() => undefined)
      if (!isInUse(error)) throw refusalOf(error, schema)
      if (performance.now() > endMs) throw new StoreUnavailable(new Error(IN_USE, { cause: error }))
      await sleep(AGAIN_AFTER_MS)
    }
  }
  // Waits for synchronous standbys, which the migration did not while it had the tables locked.
  await run(client, 'UPDATE schema_versions SET version = version WHERE name = $1', [schema.name])
}

async function runMissing(client: pg.ClientBase, schema: Schema, lockWaitMs: number): Promise<void> {
  await run(client, 'BEGIN ISOLATION LEVEL READ COMMITTED')
  await run(client, `SET LOCAL lock_timeout = ${WAIT_MS}; SET LOCAL statement_timeout = ${WAIT_MS}`)
  await run(client, WITHOUT_STANDBYS)
  const { rows } = await run(client, `${STATE} FOR UPDATE`, [schema.name])
  const version = versionIn(rows, schema)
  await run(client, `SET LOCAL lock_timeout = ${lockWaitMs}`)
  for (const migration of schema.migrations.slice(version)) await run(client, migration.sql)
  const after = stateAfter(schema.migrations)
  if (version < after.version) {
    const values = [schema.name, after.version, after.usableFrom]
    await run(client, 'UPDATE schema_versions SET version = $2, usable_from = $3 WHERE name = $1', values)
  }
  await run(client, 'COMMIT')
}

/** While tables are locked, no commit may wait for a standby that is missing. Other engines have neither of the two settings. */
const WITHOUT_STANDBYS = `
  SELECT set_config('synchronous_commit', 'local', true)
  WHERE coalesce(current_setting('synchronous_standby_names', true), '') <> ''`

/** The version of the schema, 0 when there is none. Changes nothing. @throws DatabaseRefused like migrate */
export async function knownVersion(client: pg.ClientBase, schema: Schema): Promise<number> {
  try {
    const { rows: tables } = await client.query(HAS_VERSIONS)
    if (tables[0]?.exists) return versionIn((await client.query(STATE, [schema.name])).rows, schema)
    await requireMayCreate(client, schema)
    return 0
  } catch (error) {
    throw refusalOf(error, schema)
  }
}

const STATE = 'SELECT version, usable_from AS "usableFrom" FROM schema_versions WHERE name = $1'

/** Of what STATE has found. @throws DatabaseRefused when this program cannot use it. */
function versionIn([row]: readonly SchemaState[], { name, migrations }: Schema): number {
  const state = row ?? { version: 0, usableFrom: 0 }
  requireUsable(state, migrations, `the ${name} database`)
  return state.version
}

/** A lock that was not to be had in time (55P03), or not at all, as others wanted ours (40P01). */
function isInUse(error: unknown): boolean {
  return error instanceof pg.DatabaseError && (error.code === '55P03' || error.code === '40P01')
}

const IN_USE = `its tables were to be migrated, and for ${WAIT_MS / 1000} s something had one locked: end what has been idle in a transaction for long (pg_stat_activity), and run this again`

const HAS_VERSIONS = `SELECT to_regclass('schema_versions') IS NOT NULL AS "exists"`
const CREATE_VERSIONS =
  'CREATE TABLE schema_versions (name text PRIMARY KEY, version integer NOT NULL, usable_from integer NOT NULL)'
const INSERT_VERSION =
  'INSERT INTO schema_versions (name, version, usable_from) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING'

/** Creates the table and the row of the schema if they are missing, even while others are creating them. */
async function requireVersionRow(client: pg.ClientBase, schema: Schema): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const { rows } = await run(client, HAS_VERSIONS)
      if (!rows[0]?.exists) {
        await requireMayCreate(client, schema)
        await run(client, CREATE_VERSIONS)
      }
      await run(client, INSERT_VERSION, [schema.name])
      return
    } catch (error) {
      if (attempt === CREATION_ATTEMPTS || !isCreatedMeanwhile(error)) throw refusalOf(error, schema)
      await sleep(20 * attempt)
    }
  }
}

/** Both are NULL without USAGE on the schema. Since PostgreSQL 15 only the owner of a database may create in `public`. */
const MAY_CREATE = `
  SELECT quote_ident(current_user) AS "role", quote_ident(coalesce(current_schema(), 'public')) AS "schema",
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS "may"`

/** @throws DatabaseRefused when the role may not create tables. */
async function requireMayCreate(client: pg.ClientBase, { name }: Schema): Promise<void> {
  const { rows } = await run(client, MAY_CREATE)
  if (rows[0]?.may) return
  const { role, schema } = rows[0] ?? {}
  throw new DatabaseRefused(
    `the role ${role} may not create the tables of the ${name} database; its owner can run there: GRANT USAGE, CREATE ON SCHEMA ${schema} TO ${role}`,
  )
}

const INSUFFICIENT_PRIVILEGE = '42501'

/** A missing privilege on tables that another role has made as a refusal, anything else as it is. */
function refusalOf(error: unknown, { name }: Schema): unknown {
  if (!(error instanceof pg.DatabaseError) || error.code !== INSUFFICIENT_PRIVILEGE) return error
  return new DatabaseRefused(
    `the role may not set up the ${name} database: ${error.message}; its tables must belong to that role`,
  )
}

/** Concurrent CREATE TABLE statements collide in the catalogue (23505), or find the other's table (42P07) or row type (42710). */
const CREATED_MEANWHILE: ReadonlySet<string | undefined> = new Set(['23505', '42P07', '42710'])

function isCreatedMeanwhile(error: unknown): boolean {
  return error instanceof pg.DatabaseError && CREATED_MEANWHILE.has(error.code)
}

/** Without the client's own time limit, which is for the short statements of requests. */
function run(client: pg.ClientBase, text: string, values?: (string | number)[]): Promise<pg.QueryResult> {
  return client.query({ text, query_timeout: 2 * WAIT_MS, ...(values && { values }) } as pg.QueryConfig)
}
