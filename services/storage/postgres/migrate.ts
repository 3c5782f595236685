// Brings a database to the schema this program knows. Forward only: a migration, once released, is never edited, and leaves
// what the previous version of the program needs, so that old and new processes run side by side during an upgrade.
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { DatabaseRefused } from '../database-refused.js'
import type { Migration } from '../migration.js'

export interface Schema {
  /** `token` or `survey`. Stores may share a database; each counts its own versions. */
  readonly name: string
  readonly migrations: readonly Migration[]
}

const WAIT_MS = 60_000 // for another process that migrates, and for each migration
const CREATION_ATTEMPTS = 5

/**
 * Runs the missing migrations, in one transaction. When several processes start at once, one migrates and the others wait for
 * it: all lock the row that holds the version. Nothing is written when none is missing: the server may be waiting for a standby.
 * @throws DatabaseRefused when the database is newer than this program, or its role may not create tables.
 */
export async function migrate(client: pg.ClientBase, schema: Schema): Promise<void> {
  const version = await knownVersion(client, schema).catch((error: unknown) => {
    throw refusalOf(error, schema)
  })
  if (version === schema.migrations.length) return
  await requireVersionRow(client, schema)
  await run(client, 'BEGIN ISOLATION LEVEL READ COMMITTED')
  try {
    await run(client, `SET LOCAL lock_timeout = ${WAIT_MS}`)
    await run(client, `SET LOCAL statement_timeout = ${WAIT_MS}`)
    const { rows } = await run(client, 'SELECT version FROM schema_versions WHERE name = $1 FOR UPDATE', [schema.name])
    const version = Number(rows[0]?.version)
    const known = schema.migrations.length
    requireKnown(version, schema)
    for (const migration of schema.migrations.slice(version)) await run(client, migration.sql)
    if (version < known) {
      await run(client, 'UPDATE schema_versions SET version = $2 WHERE name = $1', [schema.name, known])
    }
    await run(client, 'COMMIT')
  } catch (error) {
    await run(client, 'ROLLBACK').catch(() => undefined)
    throw refusalOf(error, schema)
  }
}

/** The version of the schema, 0 when there is none. Changes nothing. @throws DatabaseRefused like migrate */
export async function knownVersion(client: pg.ClientBase, schema: Schema): Promise<number> {
  const { rows: tables } = await client.query(HAS_VERSIONS)
  if (!tables[0]?.exists) {
    await requireMayCreate(client, schema)
    return 0
  }
  const { rows } = await client.query('SELECT version FROM schema_versions WHERE name = $1', [schema.name])
  const version = Number(rows[0]?.version ?? 0)
  requireKnown(version, schema)
  return version
}

function requireKnown(version: number, { name, migrations }: Schema): void {
  const known = migrations.length
  if (version <= known) return
  throw new DatabaseRefused(
    `the ${name} database has schema version ${version}, this program knows ${known}: run a newer program`,
  )
}

const HAS_VERSIONS = `SELECT to_regclass('schema_versions') IS NOT NULL AS "exists"`

/** Creates the table and the row of the schema if they are missing, even while others are creating them. */
async function requireVersionRow(client: pg.ClientBase, schema: Schema): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const { rows } = await run(client, HAS_VERSIONS)
      if (!rows[0]?.exists) {
        await requireMayCreate(client, schema)
        await run(client, 'CREATE TABLE schema_versions (name text PRIMARY KEY, version integer NOT NULL)')
      }
      await run(client, 'INSERT INTO schema_versions (name, version) VALUES ($1, 0) ON CONFLICT DO NOTHING', [
        schema.name,
      ])
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
