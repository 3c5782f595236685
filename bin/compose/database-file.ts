// Looks into a SQLite file without the services: for doctor, migrate and backup. Never writes to the file itself.
import { accessSync, constants, existsSync, statSync } from 'node:fs'
import path from 'node:path'
import { Database } from '../../services/storage/sqlite/driver.js'
import { knownVersion, type Schema } from '../../services/storage/sqlite/migrate.js'
import { type Connection, requireWhole, toStoreError } from '../../services/storage/sqlite/open.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { errorCode } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { message } from '../output.js'
import { ownerOf, userName } from '../owner.js'

export interface DatabaseFacts {
  /** 0 when there is no schema yet. */
  readonly schemaVersion: number
  /** `ok`, or the first thing that is broken. */
  readonly integrity: string
  /** Permission bits, for example 0o600. */
  readonly mode: number
}

/** undefined when the file does not exist. @throws DatabaseRefused; what `fileFailure` returns when it cannot be read. */
export function inspectDatabase(file: string, schema: Schema): DatabaseFacts | undefined {
  if (!isThere(file)) return undefined
  return reading(file, (database) => ({
    schemaVersion: knownVersion(database, schema),
    integrity: String(database.pragma('quick_check(1)', { simple: true })),
    mode: statSync(file).mode & 0o777,
  }))
}

/** Version of the schema; 0 without it or the file. Reads no more than that. @throws like `inspectDatabase` */
export function versionOfFile(file: string, schema: Schema): number {
  return isThere(file) ? reading(file, (database) => knownVersion(database, schema)) : 0
}

/** The same, or undefined for a file that cannot be asked now: opening it waits, or tells why. @throws like `inspectDatabase` */
export function versionNow(file: string, schema: Schema): number | undefined {
  try {
    if (!isThere(file)) return 0
    return using(file, { readonly: true, timeout: 0 }, (database) => knownVersion(database, schema))
  } catch (error) {
    if (error instanceof StoreUnavailable) return undefined
    throw error
  }
}

/** The failure of a command whose database is missing: most often it was not told where to look. */
export function noDatabase(file: string): CommandError {
  const where = 'set DATA_DIR to the same value as the server'
  if (existsSync(file)) return new CommandError(`${file} holds nothing`, EXIT.failure, `restore a backup, or ${where}`)
  return new CommandError(`there is no database in ${path.dirname(file)}`, EXIT.failure, where)
}

/** The rows that one statement reads; none without the schema or the file. @throws like `inspectDatabase` */
export function readOnce<Row>(file: string, schema: Schema, sql: string, values: readonly unknown[]): Row[] {
  if (!isThere(file)) return []
  return reading(file, (database) =>
    knownVersion(database, schema) === 0 ? [] : database.prepare<unknown[], Row>(sql).all(...values),
  )
}

/** Whether there is such a file. @throws CommandError when this user may not know. */
export function isThere(file: string): boolean {
  try {
    statSync(file)
    return true
  } catch (error) {
    if (errorCode(error, '') !== 'EACCES') return false
    throw forbidden(file)
  }
}

/** SQLite does not say why it cannot open a file. */
function mayOpen(file: string): boolean {
  try {
    accessSync(file, constants.R_OK | constants.W_OK)
    return true
  } catch (error) {
    return errorCode(error, '') !== 'EACCES'
  }
}

/** Most often a command was run by a user other than the service's, either now or when it made the file. */
function forbidden(file: string): CommandError {
  return new CommandError(
    `cannot open ${file} (EACCES): it belongs to ${userName(ownerOf(file))}`,
    EXIT.unavailable,
    'run this as the user that the service runs as, who must own the file, with mode 600',
  )
}

/** Warns when root is about to make this database in the directory of a user who could not open it. */
export function warnOfOwner(file: string): void {
  const directory = path.dirname(file)
  if (process.getuid?.() !== 0 || existsSync(file) || !existsSync(directory)) return
  const owner = ownerOf(directory)
  if (owner !== 0)
    message(`${directory} belongs to ${userName(owner)}, who will not be able to open files that root creates there`)
}

/**
 * Writes a consistent copy while others go on writing, without what `remove` deletes from it. The copy is compact: no freed
 * page keeps what was deleted.
 * @throws CommandError for a file without tables: copies of nothing would in time replace those that hold something;
 * DatabaseRefused when the file's schema, and so what to remove, is unknown here; what `fileFailure` returns when the
 * file cannot be read or the copy cannot be written.
 */
export function snapshotDatabase(
  file: string,
  copy: string,
  schema: Schema,
  remove?: (copy: Connection) => void,
): void {
  reading(file, (database) => {
    if (knownVersion(database, schema) === 0) throw noDatabase(file) // before, so that no copy is made only to be refused
    copyInto(copy, database)
    knownVersion(database, schema) // after: versions only grow, so the copy's is known too
  })
  if (!remove) return
  using(copy, {}, (database) => {
    remove(database)
    database.exec('VACUUM')
  })
}

/** Errors name the copy: it is there that space may run out. */
function copyInto(copy: string, database: Connection): void {
  try {
    database.prepare('VACUUM INTO ?').run(copy)
  } catch (error) {
    throw toStoreError(error, copy)
  }
}

function reading<T>(file: string, work: (database: Connection) => T): T {
  return using(file, { readonly: true, timeout: 10_000 }, work)
}

function using<T>(file: string, options: { readonly?: true; timeout?: number }, work: (database: Connection) => T): T {
  let database: Connection | undefined
  try {
    requireWhole(file)
    database = new Database(file, options)
    return work(database)
  } catch (error) {
    throw fileFailure(file, error)
  } finally {
    database?.close()
  }
}

/** What a SQLite failure means: another user's file, damage, StoreUnavailable, or the error itself when it is a defect. */
export function fileFailure(file: string, error: unknown): unknown {
  const code = errorCode(error, '')
  if (/^(EACCES|SQLITE_CANTOPEN)/.test(code) && !mayOpen(file)) return forbidden(file)
  return damage(file, error) ?? toStoreError(error, file)
}

/** The failure of a file of which SQLite says that it is damaged, as the error or as its cause; undefined for other errors. */
export function damage(file: string, error: unknown): CommandError | undefined {
  const code = errorCode(error, '')
  if (!/^SQLITE_(NOTADB|CORRUPT)/.test(code)) {
    return error instanceof Error && error.cause !== undefined ? damage(file, error.cause) : undefined
  }
  return new CommandError(`${file} is damaged or not a database (${code})`, EXIT.failure, 'restore a backup')
}
