// SQLite for the stores: how a file is opened, what is demanded of the driver, and what its failures mean.
// Owns nothing of any schema. Used by the stores of services/*/store/sqlite.
//
// Statements that run often have a + before a parameter: without it SQLite plans the statement again each time it is bound, as
// another value of a LIMIT (3.53) or of what a join compares with (3.54) might have a better plan. That takes 5 to 10 µs.
import { type BigIntStats, chmodSync, closeSync, openSync, statfsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Database as Connection } from 'better-sqlite3'
import { DatabaseRefused } from '../database-refused.js'
import { StoreUnavailable } from '../store-unavailable.js'
import { Database } from './driver.js'
import { makeDirectories } from './private-directory.js'

export type { Database as Connection } from 'better-sqlite3'

/** A database that lives as long as its connection, for tests. */
const IN_MEMORY = ':memory:'

export const BUSY_TIMEOUT_MS = 2000 // blocks the thread; well under the 4.5 s of a call, RPC_TIMEOUT_MS
const WAL_RETRY_MS = 10
/**
 * 8 MiB of page cache. The default of 2 MiB is less than one group of writes touches; more makes each commit slower, because
 * SQLite walks all cached pages when the file has shrunk in the transaction.
 */
const CACHE_KIB = 8_192

const MIN_PAGE_BYTES = 512 // the smallest page of SQLite; its files are whole pages
const ROOM_BYTES = 65_536 // twice what SQLite asks for at once, to open a database

/**
 * What a commit must mean: flushed to disk before it is acknowledged, which a LogFile takes over later. Each pragma is set,
 * then read back, because SQLite ignores what it cannot do (WAL on some network disks) and better-sqlite3 is built to open WAL
 * files at NORMAL.
 */
const demanded = [
  { pragma: 'journal_mode', value: 'WAL', readsBack: 'wal' },
  { pragma: 'synchronous', value: 'FULL', readsBack: 2 },
  { pragma: 'foreign_keys', value: 'ON', readsBack: 1 },
] as const

/**
 * Opens a database, creating file and directory readable by their owner only. An existing directory keeps its mode.
 * @throws StoreUnavailable, or the system's error, when the file cannot be opened; DatabaseRefused when SQLite does not do
 * what durability needs.
 */
export function openDatabase(file: string): Connection {
  let db: Connection | undefined
  try {
    requireWhole(file)
    if (file !== IN_MEMORY) makePrivate(file)
    db = new Database(file, { timeout: 0 }) // setPragma waits
    for (const { pragma, value, readsBack } of demanded) {
      setPragma(db, `${pragma} = ${value}`)
      const actual = db.pragma(pragma, { simple: true })
      if (actual === readsBack || (file === IN_MEMORY && actual === 'memory')) continue
      throw new DatabaseRefused(
        `${file}: ${pragma} is ${actual} after it was set to ${value}, commits would not be durable`,
      )
    }
    db.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`)
    db.pragma('journal_size_limit = 67108864') // a WAL that a long backup let grow shrinks to 64 MiB
    db.pragma(`cache_size = -${CACHE_KIB}`)
    return db
  } catch (error) {
    db?.close()
    throw toStoreError(error, file)
  }
}

/**
 * SQLite takes a file of one byte for an empty one, and would overwrite it; so it takes a device, and we would close it to
 * others. A directory it refuses by itself. @throws SqliteError as SQLite does for longer files
 */
export function requireWhole(file: string): void {
  const stat = statSync(file, { throwIfNoEntry: false })
  if (!stat || stat.isDirectory()) return
  const isWhole = stat.isFile() && (stat.size === 0 || stat.size >= MIN_PAGE_BYTES)
  if (!isWhole) throw new Database.SqliteError('file is not a database', 'SQLITE_NOTADB')
}

/** SQLite gives -wal and -shm the mode of the file they belong to; files left by an earlier run are corrected as well. */
function makePrivate(file: string): void {
  makeDirectories(dirname(file))
  closeSync(openSync(file, 'a', 0o600))
  for (const path of [file, `${file}-wal`, `${file}-shm`]) {
    const stat = statSync(path, { throwIfNoEntry: false })
    if (stat && (stat.mode & 0o077) !== 0) chmodSync(path, 0o600)
  }
}

/** Waits for locks itself: SQLite does not wait for every lock that turning WAL on needs when several processes start at once. */
function setPragma(db: Connection, pragma: string): void {
  const startedAt = performance.now()
  for (;;) {
    try {
      db.pragma(pragma)
      return
    } catch (error) {
      if (!isBusy(error) || performance.now() - startedAt >= BUSY_TIMEOUT_MS) throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, WAL_RETRY_MS)
    }
  }
}

/** Primary result codes of a database that cannot be asked now. Corruption is not among them: no retry helps. */
const unavailable = new Set([
  'SQLITE_BUSY',
  'SQLITE_LOCKED',
  'SQLITE_FULL',
  'SQLITE_IOERR',
  'SQLITE_READONLY',
  'SQLITE_CANTOPEN',
  'SQLITE_PERM',
  'SQLITE_PROTOCOL',
  'SQLITE_NOMEM',
])

/** The one translation of the driver's failures: StoreUnavailable, or the error itself when it is a defect. */
export function toStoreError(error: unknown, file: string): unknown {
  return unavailable.has(primaryCode(error)) ? new StoreUnavailable(explained(error, file)) : error
}

/** A failure of the driver or the system with its code in the message; a full disk is named as such. */
export function explained(error: unknown, file: string): unknown {
  if (!(error instanceof Error && 'code' in error)) return error
  const code = String(error.code)
  const what = isForRoom(code, file) ? `the disk of ${file} is full: free some space on it` : error.message
  return what.includes(code) ? error : new Error(`${what} (${code})`, { cause: error })
}

/** Whether a failure comes from a full disk under the file, which SQLite often reports as an I/O error. */
function isForRoom(code: string, file: string): boolean {
  if (code === 'SQLITE_FULL' || code === 'ENOSPC') return true
  return code.startsWith('SQLITE_IOERR') && freeBytes(file) < ROOM_BYTES
}

function freeBytes(file: string): number {
  try {
    const { bavail, bsize } = statfsSync(dirname(file))
    return bavail * bsize
  } catch {
    return Number.POSITIVE_INFINITY // unknown
  }
}

export function isBusy(error: unknown): boolean {
  return primaryCode(error) === 'SQLITE_BUSY'
}

/** Runs statements that fail at once on another process's lock, which would otherwise block the thread. */
export function withoutWaiting<Result>(db: Connection, work: () => Result): Result {
  return waitingFor(0, db, work)
}

/** Runs statements that wait `timeoutMs` for another process's lock, blocking the thread. */
export function waitingFor<Result>(timeoutMs: number, db: Connection, work: () => Result): Result {
  db.exec(`PRAGMA busy_timeout = ${timeoutMs}`)
  try {
    return work()
  } finally {
    db.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`)
  }
}

/** True when a commit that failed this way may still be found on disk after a crash. */
export function isIoError(error: unknown): boolean {
  return primaryCode(error) === 'SQLITE_IOERR'
}

/** For example `SQLITE_IOERR` of `SQLITE_IOERR_FSYNC`; empty for an error that is not the driver's. */
function primaryCode(error: unknown): string {
  return error instanceof Database.SqliteError ? error.code.split('_', 2).join('_') : ''
}

/** Makes a method of a store from a read: it answers with a promise, with the driver's failures translated. */
export function reading<Args extends unknown[], Result>(
  db: Connection,
  read: (...args: Args) => Result,
): (...args: Args) => Promise<Result> {
  return async (...args) => {
    try {
      return read(...args)
    } catch (error) {
      throw db.open ? toStoreError(error, db.name) : new StoreUnavailable(error)
    }
  }
}

/**
 * Makes a check that the file can be read and still has its name: what is written to one that was moved or deleted is lost when
 * this process ends. The check finds no flaws, or throws what the driver throws, or StoreUnavailable.
 */
export function fileProbe(db: Connection): () => [] {
  const read = (): [] => {
    db.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get()
    return []
  }
  if (db.memory) return read
  const opened = statSync(db.name, { bigint: true })
  return () => {
    read()
    const named = statOf(db.name)
    if (named?.ino === opened.ino && named.dev === opened.dev) return []
    throw new StoreUnavailable(
      new Error(`${db.name} was moved or deleted: what is written now is lost when this process ends`),
    )
  }
}

/** Undefined when no file has this name. @throws StoreUnavailable */
function statOf(file: string): BigIntStats | undefined {
  try {
    return statSync(file, { bigint: true, throwIfNoEntry: false })
  } catch (error) {
    throw new StoreUnavailable(error)
  }
}
