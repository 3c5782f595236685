// What the driver's errors mean. Every error of the driver goes through translate() on its way out of a store.
import pg from 'pg'
import { StoreUnavailable } from '../store-unavailable.js'

/** SQLSTATEs, or their two-character classes, which say that the database cannot be asked now. */
const unavailable: ReadonlySet<string> = new Set([
  '08', // connection exception
  '28', // login refused: the operator is changing passwords, or has configured the wrong one
  '53', // insufficient resources: disk full, out of memory, too many connections
  '57', // operator intervention: statement timeout, shutdown, crash, still starting
  '58', // system error: input or output failed
  '3D000', // no such database
  '25006', // read-only: a standby, or a primary that was told to be
  '25P03', // our transaction idled too long
  '25P04', // our transaction took too long
  '40001', // serialization failure, after the last attempt
  '40P01', // deadlock, after the last attempt
  '55P03', // lock timeout
])

/**
 * Serialization failure, deadlock, and a row that another transaction made after this one had looked for it: the transaction was
 * rolled back and may be run again.
 */
const repeatable: ReadonlySet<string> = new Set(['40001', '40P01', '23505'])

/**
 * Failures after which the server has closed the connection, or is about to; and 40003, CockroachDB's answer to a COMMIT when it
 * does not know the outcome either.
 */
const lost: ReadonlySet<string> = new Set(['08', '40003', '57P01', '57P02', '57P03', '57P05', '25P03', '25P04'])

function isIn(states: ReadonlySet<string>, error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return false
  return states.has(error.code) || states.has(error.code.slice(0, 2))
}

export function isRepeatable(error: unknown): boolean {
  return isIn(repeatable, error)
}

/** Deadlock after the last attempt, lock timeout, statement timeout: due to one of several things asked for; nothing was done. */
const ofOne: ReadonlySet<string> = new Set(['40P01', '55P03', '57014'])

/** Whether an error that `translate` gave may be due to one of those that share a statement: the others may succeed alone. */
export function mayBeOfOne(error: unknown): boolean {
  return !(error instanceof StoreUnavailable) || isIn(ofOne, error.cause)
}

/** The host we are connected to is not (or no longer) the primary. */
export function isReadOnly(error: unknown): boolean {
  return error instanceof NotWritable || (error instanceof pg.DatabaseError && error.code === '25006')
}

/** The connection, or the outcome, is lost, rather than the statement refused. */
export function isDisconnected(error: unknown): boolean {
  return isIn(lost, error) || isTransport(error)
}

/** A statement was not answered within the time in which the server would have cancelled it. The driver has no class for this. */
export function isUnanswered(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}

/** No connection came in time, whether all were in use or none could be made. The driver has no class for this either. */
export function isWaitOver(error: unknown): boolean {
  return error instanceof Error && error.message === 'timeout exceeded when trying to connect'
}

/** The server has no connection to spare, for anybody or for our role. */
export function isServerFull(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '53300'
}

/** A server that answers but does not take writes. */
export class NotWritable extends Error {
  override readonly name = 'NotWritable'
}

/** A prepared statement that exists although we have just prepared it first (42P05), or is missing although we have (26000). */
export function isUnprepared(error: unknown): boolean {
  return error instanceof pg.DatabaseError && (error.code === '42P05' || error.code === '26000')
}

export const POOLER_UNFIT =
  'the pooler in front of PostgreSQL does not keep prepared statements: use PgBouncer 1.21 or newer with max_prepared_statements = 200, or pool_mode = session'

/** No connection became free in time, or too many callers were waiting already. */
export class PoolExhausted extends Error {
  override readonly name = 'PoolExhausted'
  override readonly message = 'too many callers wait for a database connection'
}

/** Sockets and TLS fail with errors that have a code, the driver's own connection handling with plain ones. */
function isTransport(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof pg.DatabaseError || error instanceof TypeError) return false
  return Object.getPrototypeOf(error) === Error.prototype || ('code' in error && typeof error.code === 'string')
}

/**
 * The error as it leaves a store: StoreUnavailable when the database cannot be asked, otherwise as it is.
 * `isCommitSent`: the change may have been committed although its answer was lost.
 */
export function translate(error: unknown, isCommitSent = false): unknown {
  if (error instanceof StoreUnavailable) return error
  if (isUnprepared(error)) return new StoreUnavailable(new Error(POOLER_UNFIT, { cause: error }))
  const isLost = isDisconnected(error)
  const cannotAsk = isLost || isIn(unavailable, error) || error instanceof NotWritable || error instanceof PoolExhausted
  return cannotAsk ? new StoreUnavailable(error, isLost && isCommitSent) : error
}
