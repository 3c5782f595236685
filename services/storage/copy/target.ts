// The PostgreSQL side of a copy: one transaction, in which the tables are locked and filled.
import pg from 'pg'
import { requireSame } from '../migration.js'
import { translate } from '../postgres/errors.js'
import type { Schema } from '../postgres/migrate.js'
import { openDatabase } from '../postgres/open.js'
import { PrimaryPool } from '../postgres/pool.js'
import { CopyRefused } from './copy-refused.js'
import type { SourceTable } from './source.js'
import { forms, kindOf, quoted, type Table, type Value } from './values.js'

const STATEMENT_TIMEOUT_MS = 3_600_000 // ANALYZE takes longer the larger the table

/** Creates missing tables and begins the transaction. @throws StoreUnavailable, DatabaseRefused */
export async function openTarget(url: string, schema: Schema): Promise<Target> {
  await (await openDatabase({ url }, schema)).close()
  const pool = new PrimaryPool({ url, poolSize: 1, statementTimeoutMs: STATEMENT_TIMEOUT_MS })
  let target: Target | undefined
  try {
    target = new Target(pool, await pool.acquire())
    await target.begin()
    await target.requireVersion(schema)
    return target
  } catch (error) {
    await (target ?? pool).close() // the pool alone would wait indefinitely for its connection
    throw translate(error)
  }
}

/** Every method rejects with StoreUnavailable when the database cannot be asked. */
export class Target {
  readonly #pool: PrimaryPool
  readonly #client: pg.PoolClient

  constructor(pool: PrimaryPool, client: pg.PoolClient) {
    this.#pool = pool
    this.#client = client
  }

  async begin(): Promise<void> {
    await this.run(['BEGIN ISOLATION LEVEL READ COMMITTED', this.#pool.settingsOf(this.#client)].join('; '))
    await this.run('SET LOCAL idle_in_transaction_session_timeout = 0') // while the other database is copied
  }

  /** @throws DatabaseRefused when a newer program has migrated it: what that one adds would stay empty. */
  async requireVersion({ name, migrations }: Schema): Promise<void> {
    const [row] = await this.run('SELECT version FROM schema_versions WHERE name = $1', [name])
    requireSame(Number(row?.version), migrations, `the ${name} database`)
  }

  /** The table with the kinds of its columns. @throws TypeError when its columns are not those of SQLite, which is a defect. */
  async describe({ name, rows, columns }: SourceTable): Promise<Table> {
    const found = await this.run(
      `SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       WHERE a.attrelid = to_regclass($1) AND a.attnum > 0`, // one that was dropped has no type
      [quoted(name)],
    )
    const types = new Map(found.map(({ attname, typname }) => [String(attname), String(typname)]))
    if (types.size !== columns.length) throw new TypeError(`${name} has ${types.size} columns in PostgreSQL`)
    const described = columns.map((column) => ({ name: column, kind: kindOf(types.get(column) ?? 'no type') }))
    return { name, rows, columns: described }
  }

  /** Locks the tables against all other writers until the end. @throws CopyRefused when one of them has a row. */
  async requireEmpty(tables: readonly Table[]): Promise<void> {
    const names = tables.map(({ name }) => quoted(name))
    await this.run(`LOCK TABLE ${names.join(', ')} IN SHARE ROW EXCLUSIVE MODE`)
    for (const { name } of tables) {
      const rows = await this.run(`SELECT 1 FROM ${quoted(name)} LIMIT 1`)
      if (rows.length > 0) {
        throw new CopyRefused(
          `the target is not empty: ${name} has rows, and a copy never overwrites`,
          'copy to a new database, or drop what is in this one yourself',
        )
      }
    }
  }

  /** Returns the rows as they were stored, in the same order. @throws CopyRefused when the database does not accept one. */
  async insert(table: Table, rows: readonly Value[][]): Promise<Value[][]> {
    const names = table.columns.map(({ name }) => quoted(name))
    const values = table.columns.map(({ name, kind }) => forms[kind].intoPostgres(`r.${quoted(name)}`))
    const stored = table.columns.map(({ name, kind }) => forms[kind].ofPostgres(quoted(name)))
    const lists = table.columns.map((_, index) => `$${index + 1}::text[]`)
    const text = `
      INSERT INTO ${quoted(table.name)} (${names.join(', ')})
      SELECT ${values.join(', ')} FROM unnest(${lists.join(', ')}) AS r (${names.join(', ')})
      RETURNING ${stored.join(', ')}`
    const columns = table.columns.map((_, index) => rows.map((row) => row[index] ?? null))
    try {
      const query = { name: `copy_${table.name}`, text, values: columns, rowMode: 'array' as const }
      return (await this.#client.query<Value[]>(query)).rows
    } catch (error) {
      throw isRefusal(error)
        ? new CopyRefused(`PostgreSQL refuses a row of ${table.name}: ${error.message}`)
        : translate(error)
    }
  }

  /** Otherwise the first queries would be planned for empty tables. */
  async analyze({ name }: Table): Promise<void> {
    await this.run(`ANALYZE ${quoted(name)}`)
  }

  async run(text: string, values: string[] = []): Promise<Record<string, unknown>[]> {
    try {
      return (await this.#client.query<Record<string, unknown>>(text, values)).rows
    } catch (error) {
      throw translate(error)
    }
  }

  /** Closes the connection, which rolls back a transaction that is not committed. */
  async close(): Promise<void> {
    this.#client.release(true)
    await this.#pool.close()
  }
}

/** Data that does not fit (class 22) and violated constraints (class 23). */
function isRefusal(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && /^2[23]/.test(error.code ?? '')
}
