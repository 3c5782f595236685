// The SQLite side of a copy: one file, read as of one moment and never changed.
import { existsSync } from 'node:fs'
import { requireSame } from '../migration.js'
import { Database } from '../sqlite/driver.js'
import { type Schema, schemaStateOf } from '../sqlite/migrate.js'
import { type Connection, isBusy, requireWhole, toStoreError } from '../sqlite/open.js'
import { CopyRefused } from './copy-refused.js'
import { forms, quoted, type Table, type Value } from './values.js'

const LOCK_WAIT_MS = 1_000 // for a command that is about to end

/** A table as PostgreSQL has it. */
export interface SourceTable {
  readonly name: string
  /** SQL: what its rows are selected from. */
  readonly rows: string
  readonly columns: readonly string[]
}

/** Where tables differ: how the rows of PostgreSQL's table are selected, or null for one that it lacks. */
export type TablesInPostgres = Readonly<Record<string, string | null>>

/**
 * Opens the file to read all of it once. Nobody else may have it open, and nobody can open it until it is closed: anything
 * written meanwhile would be missing from the copy.
 * @throws CopyRefused when it is missing, no database, damaged or in use; StoreUnavailable
 */
export function openSource(file: string): Source {
  if (!existsSync(file)) throw new CopyRefused(`there is no database at ${file}`)
  let db: Connection | undefined
  try {
    requireWhole(file)
    db = new Database(file, { fileMustExist: true, timeout: LOCK_WAIT_MS })
    db.pragma('locking_mode = EXCLUSIVE')
    db.pragma('query_only = ON')
    db.exec('BEGIN')
    db.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get() // this moment: a transaction reads as of its first read
    return new Source(db)
  } catch (error) {
    db?.close()
    throw explained(file, error)
  }
}

export class Source {
  readonly #db: Connection

  constructor(db: Connection) {
    this.#db = db
  }

  get file(): string {
    return this.#db.name
  }

  /** Distinguishes a token database from a survey database. */
  get applicationId(): unknown {
    return this.#db.pragma('application_id', { simple: true })
  }

  /** @throws DatabaseRefused unless this program knows everything in the file, and nothing more. */
  requireVersion({ name, migrations }: Schema): void {
    requireSame(schemaStateOf(this.#db).version, migrations, `the ${name} database ${this.file}`)
  }

  /** @throws CopyRefused naming the first defect. */
  requireSound(): void {
    const verdict = this.#reading(() => String(this.#db.pragma('quick_check(1)', { simple: true })))
    if (verdict !== 'ok') throw new CopyRefused(`${this.file} is damaged: ${verdict}`)
  }

  /** In order of creation, followed by those that only PostgreSQL has, so that no table refers to a later one. */
  tables(inPostgres: TablesInPostgres): SourceTable[] {
    const here = this.#db
      .prepare<[], string>(
        `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY rowid`,
      )
      .pluck()
      .all()
    const names = new Set([...here, ...Object.keys(inPostgres)])
    return [...names].flatMap((name) => {
      const select = inPostgres[name]
      if (select === null) return []
      const rows = select ? `(${select})` : quoted(name)
      const columns = this.#db.prepare(`SELECT * FROM ${rows}`).columns()
      return { name, rows, columns: columns.map((column) => column.name) }
    })
  }

  count({ rows }: Table): number {
    return this.#reading(() => this.#db.prepare<[], number>(`SELECT count(*) FROM ${rows}`).pluck().get() ?? 0)
  }

  /** One after the other. @throws CopyRefused when the file is damaged. */
  *rows({ rows, columns }: Table): Generator<Value[]> {
    const values = columns.map(({ name, kind }) => forms[kind].ofSqlite(quoted(name)))
    const sql = `SELECT ${values.join(', ')} FROM ${rows}`
    try {
      yield* this.#db.prepare<[], Value[]>(sql).raw().iterate()
    } catch (error) {
      throw explained(this.file, error)
    }
  }

  close(): void {
    this.#db.close()
  }

  #reading<T>(read: () => T): T {
    try {
      return read()
    } catch (error) {
      throw explained(this.file, error)
    }
  }
}

function explained(file: string, error: unknown): unknown {
  if (isBusy(error)) {
    return new CopyRefused(`${file} is in use: what is written during a copy would be lost`, 'stop the service first')
  }
  const code = error instanceof Database.SqliteError ? error.code : ''
  if (code === 'SQLITE_NOTADB') return new CopyRefused(`${file} is not a SQLite database`)
  if (code.startsWith('SQLITE_CORRUPT')) return new CopyRefused(`${file} is damaged: ${(error as Error).message}`)
  return toStoreError(error, file)
}
