// Opens a database: what must hold of it before anything is asked of it.
import type pg from 'pg'
import { DatabaseRefused } from '../database-refused.js'
import type { Flaw } from '../flaw.js'
import { isUnprepared, POOLER_UNFIT, translate } from './errors.js'
import { knownVersion, migrate, type Schema } from './migrate.js'
import { type PoolOptions, PrimaryPool } from './pool.js'
import { standbyFlaws } from './standbys.js'
import { Database, type Value } from './transaction.js'

/** Connects, brings the schema up to date, and refuses a server that loses what it acknowledged. @throws StoreUnavailable */
export async function openDatabase(options: PoolOptions, schema: Schema): Promise<Database> {
  const pool = new PrimaryPool(options)
  try {
    await withFitting(pool, schema, (client) => migrate(client, schema))
    return new Database(pool)
  } catch (error) {
    await pool.close()
    throw translate(error)
  }
}

/**
 * The version of the schema, 0 when there is none, and what is wrong with the database all the same. Refuses what openDatabase
 * refuses, and changes nothing. @throws StoreUnavailable, DatabaseRefused
 */
export function examine(
  url: string,
  schema: Schema,
): Promise<{ readonly version: number; readonly flaws: readonly Flaw[] }> {
  return inspecting(url, schema, async (client, pool) => ({
    version: await knownVersion(client, schema),
    flaws: [...pool.flaws, ...(await standbyFlaws(async (text) => (await client.query(text)).rows))],
  }))
}

/** Runs one statement on a database that is needed for nothing else; no rows without the schema. Otherwise as examine. */
export function readOnce<Row extends pg.QueryResultRow>(
  url: string,
  schema: Schema,
  text: string,
  values: readonly Value[],
): Promise<Row[]> {
  return inspecting(url, schema, async (client) => {
    if ((await knownVersion(client, schema)) === 0) return []
    return (await client.query<Row>(text, [...values])).rows
  })
}

async function inspecting<T>(
  url: string,
  schema: Schema,
  work: (client: pg.PoolClient, pool: PrimaryPool) => Promise<T>,
): Promise<T> {
  const pool = new PrimaryPool({ url, poolSize: 2 })
  try {
    return await withFitting(pool, schema, work)
  } catch (error) {
    throw translate(error)
  } finally {
    await pool.close()
  }
}

async function withFitting<T>(
  pool: PrimaryPool,
  { name }: Schema,
  work: (client: pg.PoolClient, pool: PrimaryPool) => Promise<T>,
): Promise<T> {
  const client = await pool.acquire()
  try {
    await requireFitting(client, name)
    if (pool.settingsOf(client) !== '') await requirePrepared(pool, client)
    return await work(client, pool)
  } finally {
    client.release(client.getTransactionStatus() !== 'I')
  }
}

/** What only the operator can set. synchronous_commit is set on each of our connections. */
const SETTINGS = `SELECT current_setting('fsync', true) AS fsync, current_setting('server_encoding', true) AS encoding`

/** SQL_ASCII keeps what it is sent, which is UTF-8. In any other encoding some texts cannot be kept. */
const ENCODINGS: ReadonlySet<string | null | undefined> = new Set(['UTF8', 'SQL_ASCII', null])

async function requireFitting(client: pg.ClientBase, name: string): Promise<void> {
  const { rows } = await client.query<{ fsync: string | null; encoding: string | null }>(SETTINGS)
  const { fsync, encoding } = rows[0] ?? {}
  if (fsync === 'off')
    throw new DatabaseRefused('the database runs with fsync = off and could lose acknowledged writes: set it to on')
  if (!ENCODINGS.has(encoding)) {
    throw new DatabaseRefused(
      `the ${name} database has the encoding ${encoding}, which cannot hold every text; create one with ENCODING 'UTF8' TEMPLATE template0`,
    )
  }
}

/**
 * Refuses a pooler that sends our prepared statements to connections where others have prepared theirs under the same names, or
 * nobody has: two of ours have the same one prepared.
 */
async function requirePrepared(pool: PrimaryPool, client: pg.PoolClient): Promise<void> {
  const another = await pool.acquire()
  try {
    for (const one of [client, another, client]) await one.query({ name: 'prepared', text: 'SELECT 1' })
  } catch (error) {
    throw isUnprepared(error) ? new DatabaseRefused(POOLER_UNFIT) : error
  } finally {
    another.release()
  }
}
