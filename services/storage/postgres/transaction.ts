// How the stores speak to PostgreSQL: a statement by itself, or a transaction that is retried when it lost a race.
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { type Cause, isOver, type Until } from '../cause.js'
import type { Connections } from '../connections.js'
import { DatabaseRefused } from '../database-refused.js'
import type { Flaw } from '../flaw.js'
import { isDisconnected, isRepeatable, PoolExhausted, translate } from './errors.js'
import { knownVersion, migrate, type Schema } from './migrate.js'
import { type PoolOptions, PrimaryPool } from './pool.js'
import { standbyFlaws } from './standbys.js'

/** A statement that the server prepares once per connection, under this name. */
export interface Statement {
  readonly name: string
  readonly text: string
}

export type Value = string | number | boolean | Uint8Array | readonly Value[] | null

/** The parameters of a statement over many rows: for each column, the values of all rows. */
export function columnsOf<Row>(rows: readonly Row[], columns: readonly ((row: Row) => Value)[]): Value[] {
  return columns.map((column) => rows.map(column))
}

/** `answerTimeoutMs`: overrides the connection's. */
async function send<Row extends pg.QueryResultRow>(
  client: pg.PoolClient,
  statement: Statement,
  values: readonly Value[],
  answerTimeoutMs?: number,
): Promise<Row[]> {
  const config = { ...statement, values: [...values], query_timeout: answerTimeoutMs }
  return (await client.query<Row>(config)).rows
}

const MAX_ATTEMPTS = 8
const FIRST_PAUSE_MS = 5

/**
 * The statements of one transaction. They are sent as they come, without waiting for earlier answers, and the server runs them
 * in that order; so one round trip carries all that do not depend on each other's answers.
 */
export class Transaction {
  readonly #client: pg.PoolClient
  readonly #answerTimeoutMs: number
  readonly #begun: Promise<unknown>
  readonly #writes: Promise<unknown>[] = []
  #isBegun = false
  #unanswered = 0
  #failure: unknown

  /** `answerTimeoutMs`: for each statement. `lockWaitMs`: overrides the connection's lock timeout. */
  constructor(client: pg.PoolClient, answerTimeoutMs: number, lockWaitMs?: number) {
    this.#client = client
    this.#answerTimeoutMs = answerTimeoutMs
    const setting = lockWaitMs === undefined ? '' : `; SET LOCAL lock_timeout = ${lockWaitMs}`
    // Each statement sees what was committed before it began: what it reads of a row it has locked is current.
    this.#begun = client.query(`BEGIN ISOLATION LEVEL READ COMMITTED${setting}`).then(() => {
      this.#isBegun = true
    })
    this.#begun.catch(() => undefined)
  }

  /** Reads and locks. */
  async ask<Row extends pg.QueryResultRow>(statement: Statement, values: readonly Value[]): Promise<Row[]> {
    const [rows] = await Promise.all([this.#send<Row>(statement, values), this.#begun])
    return rows
  }

  /** The first row of `ask`. */
  async askOne<Row extends pg.QueryResultRow>(
    statement: Statement,
    values: readonly Value[],
  ): Promise<Row | undefined> {
    return (await this.ask<Row>(statement, values))[0]
  }

  /**
   * Changes. Await it only if its result is needed: the transaction waits for it, and fails if it fails. Never sent before
   * BEGIN is known to have worked: it would be a transaction by itself.
   */
  write<Row extends pg.QueryResultRow>(statement: Statement, values: readonly Value[]): Promise<Row[]> {
    const sendNow = () => this.#send<Row>(statement, values)
    const written = this.#isBegun ? sendNow() : this.#begun.then(sendNow)
    written.catch(() => undefined)
    this.#writes.push(written)
    return written
  }

  get hasWritten(): boolean {
    return this.#writes.length > 0
  }

  /** Sent right behind the last write; the server commits only if all before it succeeded. */
  async commit(onSend: () => void): Promise<void> {
    await this.#begun
    onSend()
    // With the time of one statement for the writes before it too: when it runs out, only this connection is given up.
    const committed = this.#client.query('COMMIT')
    committed.catch(() => undefined)
    await Promise.all(this.#writes)
    const { command } = await committed
    if (command !== 'COMMIT') throw new TypeError('the server did not commit')
  }

  /** Answers of statements that were sent and not waited for come before this one's. */
  async rollback(): Promise<void> {
    await this.#client.query('ROLLBACK')
  }

  /**
   * The failure that undid the transaction, if there was one. Statements sent after it fail too, only because of it, and
   * whoever waits for several may hear of theirs first.
   */
  get failure(): unknown {
    return this.#failure
  }

  async #send<Row extends pg.QueryResultRow>(statement: Statement, values: readonly Value[]): Promise<Row[]> {
    this.#unanswered += 1
    try {
      // The driver's clock runs from here on, though those sent before may each take their time.
      return await send<Row>(this.#client, statement, values, this.#unanswered * this.#answerTimeoutMs)
    } catch (error) {
      this.#failure ??= error // answers come in the order of the statements
      throw error
    } finally {
      this.#unanswered -= 1
    }
  }
}

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

/** Runs one statement on a database that is needed for nothing else; no rows without the schema. Otherwise as schemaVersionOf. */
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
  const pool = new PrimaryPool({ url, poolSize: 1 })
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
    throw new DatabaseRefused('the database runs with fsync = off and could lose acknowledged writes')
  if (!ENCODINGS.has(encoding)) {
    throw new DatabaseRefused(
      `the ${name} database has the encoding ${encoding}, which cannot hold every text; create one with ENCODING 'UTF8' TEMPLATE template0`,
    )
  }
}

type Steps<Result> = (transaction: Transaction) => Promise<Result>

export class Database {
  readonly #pool: PrimaryPool

  constructor(pool: PrimaryPool) {
    this.#pool = pool
  }

  /**
   * Until when something asked for now may wait to begin: as long as for a connection, but no longer than its `cause` may. One
   * wait to join a group and one for a connection fit in a request's time, RPC_TIMEOUT_MS.
   */
  until(cause?: Cause): Until {
    const dueAt = performance.now() + this.#pool.connectTimeoutMs
    return cause ? { dueAt: Math.min(dueAt, cause.dueAt), signal: cause.signal } : { dueAt }
  }

  /** One statement that changes nothing. @throws StoreUnavailable */
  read<Row extends pg.QueryResultRow>(statement: Statement, values: readonly Value[]): Promise<Row[]> {
    return this.#attempt(this.until(), (client) => send<Row>(client, statement, values))
  }

  /** The first row of `read`. */
  async readOne<Row extends pg.QueryResultRow>(
    statement: Statement,
    values: readonly Value[],
  ): Promise<Row | undefined> {
    return (await this.read<Row>(statement, values))[0]
  }

  /**
   * Runs `steps` in a transaction and returns what it returned, committed if it wrote. It may be run several times, so it must
   * change nothing but the database. Waits `lockWaitMs` for locks, if that is given. @throws StoreUnavailable
   */
  transaction<Result>(steps: Steps<Result>, lockWaitMs?: number): Promise<Result> {
    return this.#transaction(this.until(), steps, lockWaitMs)
  }

  /** The same for a transaction caused by a call: it does not begin once the call is over. */
  causedTransaction<Result>(cause: Cause, steps: Steps<Result>): Promise<Result> {
    return this.#transaction(this.until(cause), steps)
  }

  #transaction<Result>(until: Until, steps: Steps<Result>, lockWaitMs?: number): Promise<Result> {
    return this.#attempt(until, async (client, commitSent) => {
      // A connection may come later than that, from another host for example. Once a caller has been told that a write failed,
      // the write must not happen; a read may, so it goes on.
      if (isOver(until)) throw new PoolExhausted()
      const transaction = new Transaction(client, this.#pool.answerTimeoutMs, lockWaitMs)
      try {
        const result = await steps(transaction)
        if (transaction.hasWritten) {
          await transaction.commit(commitSent)
        } else {
          await transaction.rollback()
        }
        return result
      } catch (error) {
        const cause = transaction.failure ?? error
        if (!isDisconnected(cause)) await transaction.rollback().catch(() => undefined)
        throw cause
      }
    })
  }

  /** What is wrong with the database although it answers. @throws StoreUnavailable when it does not */
  async ping(): Promise<readonly Flaw[]> {
    this.#pool.look()
    const flaws = await standbyFlaws((text) => this.read({ name: '', text }, []))
    return [...this.#pool.flaws, ...flaws]
  }

  connections(): Connections {
    return this.#pool.connections
  }

  close(): Promise<void> {
    return this.#pool.close()
  }

  /**
   * Retries what lost a race, after a growing random pause, and retries once what met a connection that had died unnoticed
   * before its COMMIT was sent. Not after `until`: whoever waited for a server that does not answer has gone.
   */
  async #attempt<Result>(
    until: Until,
    run: (client: pg.PoolClient, commitSent: () => void) => Promise<Result>,
  ): Promise<Result> {
    let hasReconnected = false
    for (let attempt = 1; ; attempt++) {
      let isCommitSent = false
      let client: pg.PoolClient | undefined
      try {
        client = await this.#pool.acquire()
        const result = await run(client, () => {
          isCommitSent = true
        })
        client.release()
        return result
      } catch (error) {
        const isLost = isDisconnected(error)
        client?.release(isLost || client.getTransactionStatus() !== 'I')
        // A COMMIT may take longer than a statement: no timeout of ours ends its wait for a disk or a standby.
        this.#pool.report(error, isCommitSent ? undefined : client)
        const isInTime = !isOver(until)
        if (isInTime && isRepeatable(error) && attempt < MAX_ATTEMPTS) {
          await sleep(Math.random() * FIRST_PAUSE_MS * 2 ** attempt)
        } else if (isInTime && client && isLost && !isCommitSent && !hasReconnected) {
          hasReconnected = true
        } else {
          throw translate(error, isCommitSent)
        }
      }
    }
  }
}
