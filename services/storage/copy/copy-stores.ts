// Moves stores from SQLite to PostgreSQL: everything in a file, in one transaction, each value compared with what was stored.
// Owns no schema: the tables come from the file or from the store, the types of their columns from PostgreSQL.
import { isDeepStrictEqual } from 'node:util'
import type { Schema as PostgresSchema } from '../postgres/migrate.js'
import type { Schema as SqliteSchema } from '../sqlite/migrate.js'
import { CopyRefused } from './copy-refused.js'
import { openSource, type Source, type TablesInPostgres } from './source.js'
import { openTarget, type Target } from './target.js'
import type { Table, Value } from './values.js'

/** One store's schema in both databases. */
export interface CopiedSchema {
  readonly sqlite: SqliteSchema
  readonly postgres: PostgresSchema
  readonly tablesInPostgres: TablesInPostgres
  /** Tables that only PostgreSQL has, and why nothing is copied to them. */
  readonly notCopied: Readonly<Record<string, string>>
  /** Statements run on PostgreSQL once the tables are filled. */
  readonly afterwards: readonly string[]
}

export interface Job {
  /** SQLite file. */
  readonly file: string
  readonly schema: CopiedSchema
  /** `postgres://…` */
  readonly url: string
}

export interface TableReport {
  /** `token` or `survey`. */
  readonly database: string
  readonly table: string
  readonly rows: number
  /** What PostgreSQL stored. */
  readonly copiedRows: number
  /** Whether every value that it stored is the one that was read. */
  readonly isEqual: boolean
}

/** Called after each batch with the rows of the table written so far. */
export type OnProgress = (table: string, rows: number, total: number) => void

const BATCH_ROWS = 1_000
const BATCH_CHARACTERS = 4 * 1024 * 1024 // with a survey's document of 4 MiB, 8 million in hex, one row is a batch

/**
 * Copies each database whole or not at all. The files are opened in the given order. If every table of every job is equal, the
 * transactions are committed one after the other; if one differs, nothing is committed and the report says so.
 * @throws CopyRefused, StoreUnavailable, DatabaseRefused
 */
export async function copyStores(jobs: readonly Job[], onProgress: OnProgress): Promise<TableReport[]> {
  const copies: Copy[] = []
  try {
    for (const job of jobs) copies.push(await openCopy(job))
    const reports: TableReport[] = []
    for (const copy of copies) reports.push(...(await fill(copy, onProgress)))
    if (reports.every(({ isEqual }) => isEqual)) for (const { target } of copies) await target.run('COMMIT')
    return reports
  } finally {
    for (const copy of copies) await closeCopy(copy)
  }
}

interface Copy {
  readonly schema: CopiedSchema
  readonly source: Source
  readonly target: Target
  /** The tables to fill, locked and found empty. */
  readonly tables: readonly Table[]
}

async function openCopy({ file, schema, url }: Job): Promise<Copy> {
  const source = openSource(file)
  let target: Target | undefined
  try {
    requireUsable(source, schema)
    target = await openTarget(url, schema.postgres)
    const tables: Table[] = []
    for (const table of source.tables(schema.tablesInPostgres)) tables.push(await target.describe(table))
    await target.requireEmpty(tables)
    return { schema, source, target, tables }
  } catch (error) {
    await target?.close()
    source.close()
    throw error
  }
}

async function closeCopy({ source, target }: Copy): Promise<void> {
  await target.close()
  source.close()
}

function requireUsable(source: Source, { sqlite }: CopiedSchema): void {
  if (source.applicationId !== sqlite.applicationId) {
    throw new CopyRefused(`${source.file} is not a ${sqlite.name} database of this program`)
  }
  source.requireVersion(sqlite)
  source.requireSound()
}

async function fill({ schema, source, target, tables }: Copy, onProgress: OnProgress): Promise<TableReport[]> {
  const reports: TableReport[] = []
  for (const table of tables) {
    reports.push({ database: schema.sqlite.name, ...(await fillTable(source, target, table, onProgress)) })
  }
  for (const statement of schema.afterwards) await target.run(statement)
  for (const table of tables) await target.analyze(table)
  return reports
}

async function fillTable(
  source: Source,
  target: Target,
  table: Table,
  onProgress: OnProgress,
): Promise<Omit<TableReport, 'database'>> {
  const total = source.count(table)
  let [rows, copiedRows, isEqual] = [0, 0, true]
  for (const batch of batches(source.rows(table))) {
    const stored = await target.insert(table, batch)
    rows += batch.length
    copiedRows += stored.length
    isEqual &&= isDeepStrictEqual(stored, batch)
    onProgress(table.name, rows, total)
  }
  return { table: table.name, rows, copiedRows, isEqual }
}

function* batches(rows: Iterable<Value[]>): Generator<Value[][]> {
  let batch: Value[][] = []
  let characters = 0
  for (const row of rows) {
    batch.push(row)
    for (const value of row) characters += value?.length ?? 0
    if (batch.length < BATCH_ROWS && characters < BATCH_CHARACTERS) continue
    yield batch
    batch = []
    characters = 0
  }
  if (batch.length > 0) yield batch
}
