// How the stores speak to PostgreSQL: a statement by itself, or a transaction that is retried when it lost a race.
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { type Cause, isOver, type Until } from '../cause.js'
import type { Connections } from '../connections.js'
import type { Flaw } from '../flaw.js'
import { StoreUnavailable } from '../store-unavailable.js'
import { isDisconnected, isRepeatable, isUnanswered, PoolExhausted, translate } from './errors.js'
import type { PrimaryPool } from './pool.js'
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
const LOOK_AGAIN_MS = 200 // whether commits still wait for a standby

interface TransactionOptions {
  /** Of each statement. */
  readonly answerTimeoutMs: number
  /** As PrimaryPool says. */
  readonly settings: string
  /** Overrides the lock timeout. */
  readonly lockWaitMs: number | undefined
}

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

  constructor(client: pg.PoolClient, { answerTimeoutMs, settings, lockWaitMs }: TransactionOptions) {
    this.#client = client
    this.#answerTimeoutMs = answerTimeoutMs
    const lockWait = lockWaitMs === undefined ? '' : `SET LOCAL lock_timeout = ${lockWaitMs}`
    const begin = ['BEGIN ISOLATION LEVEL READ COMMITTED', settings, lockWait].filter((text) => text !== '').join('; ')
    // Each statement sees what was committed before it began: what it reads of a row it has locked is current.
    this.#begun = client.query(begin).then(() => {
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

type Steps<Result> = (transaction: Transaction) => Promise<Result>

export class Database {
  readonly #pool: PrimaryPool
  /** Whether commits wait for a standby, as of when one was not answered and of looks since then. */
  #areCommitsWaiting = false
  #isClosed = false

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
    return this.#attempt(this.until(), async (client) => {
      if (this.#pool.settingsOf(client) === '') return send<Row>(client, statement, values)
      const transaction = this.#begin(client)
      const [rows] = await Promise.all([transaction.ask<Row>(statement, values), transaction.rollback()])
      return rows
    })
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
      if (this.#areCommitsWaiting) throw new StoreUnavailable(new Error('commits wait for a synchronous standby'))
      const transaction = this.#begin(client, lockWaitMs)
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

  #begin(client: pg.PoolClient, lockWaitMs?: number): Transaction {
    const { answerTimeoutMs } = this.#pool
    return new Transaction(client, { answerTimeoutMs, settings: this.#pool.settingsOf(client), lockWaitMs })
  }

  /** What is wrong with the database although it answers. @throws StoreUnavailable when it does not */
  async ping(): Promise<readonly Flaw[]> {
    this.#pool.look()
    return [...this.#pool.flaws, ...(await this.#standbyFlaws())]
  }

  #standbyFlaws(): Promise<Flaw[]> {
    return standbyFlaws((text) => this.read({ name: '', text }, []))
  }

  /**
   * The server keeps a connection for each commit that waits for a standby, though its caller has gone: until they wait no
   * longer, no transaction begins, so that reads have connections left.
   */
  async #awaitStandbys(): Promise<void> {
    if (this.#areCommitsWaiting) return
    this.#areCommitsWaiting = true
    while (!this.#isClosed && (await this.#isStandbyAwaited())) await sleep(LOOK_AGAIN_MS, undefined, { ref: false })
    this.#areCommitsWaiting = false
  }

  #isStandbyAwaited(): Promise<boolean> {
    return this.#standbyFlaws().then(
      (flaws) => flaws.length > 0,
      (error: unknown) => error instanceof StoreUnavailable,
    )
  }

  connections(): Connections {
    return this.#pool.connections
  }

  close(): Promise<void> {
    this.#isClosed = true
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
        if (isCommitSent && isUnanswered(error)) void this.#awaitStandbys()
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
