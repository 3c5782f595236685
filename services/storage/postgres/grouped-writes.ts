// Group commit for PostgreSQL: writes that come at about the same time share a transaction.
import { type Cause, isOver } from '../cause.js'
import { groupBy } from '../group-by.js'
import { mayBeOfOne } from './errors.js'
import { refuse, Together, type Waiting } from './together.js'
import type { Database, Transaction } from './transaction.js'

/** Few enough that their locks are not held for long. */
const MAX_GROUP = 32
/** For the locks a group cannot skip: of an openid that another transaction is creating, of a grant that is being evicted. */
const GROUP_LOCK_WAIT_MS = 100

/**
 * Writes for each of `all`, in one transaction; the results are in the same order. `mayWait`: whether to wait for locks. If
 * not, locked rows are skipped, and a write that needs one, or that has nothing to write, has no result.
 */
export type Steps<Args, Result> = (
  transaction: Transaction,
  all: readonly Args[],
  mayWait: boolean,
) => Promise<readonly (Result | undefined)[]>

interface Submitted<Args, Result> extends Waiting {
  readonly args: Args
  resolve(result: Result): void
}

/**
 * Writes in groups that hardly wait for locks, so that no write waits for what another one needs. A write that has no result
 * there gets a transaction of its own, in which it waits as long as it must.
 */
export class GroupedWrites<Args extends { readonly cause: Cause }, Result> {
  readonly #database: Database
  readonly #steps: Steps<Args, Result>
  readonly #together = new Together<Submitted<Args, Result>>(MAX_GROUP, (group) => this.#runTogether(group))

  constructor(database: Database, steps: Steps<Args, Result>) {
    this.#database = database
    this.#steps = steps
  }

  /**
   * Writes with the same key change the same rows, so they are in one group, in which `steps` takes them one after the other, or
   * wait for it. Rejects with StoreUnavailable, or as `steps` does.
   */
  submit(key: string | undefined, args: Args): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#together.add({ key, ...this.#database.until(args.cause), args, resolve, reject })
    })
  }

  async #runTogether(group: readonly Submitted<Args, Result>[]): Promise<void> {
    const left = await this.#run(group, false, GROUP_LOCK_WAIT_MS)
    for (const [key, ofKey] of groupBy(left, (submitted) => submitted.key)) {
      if (key === undefined || ofKey.length === 1) for (const submitted of ofKey) void this.#runAlone(submitted)
      // Another process seldom keeps a row for long, and then the next of this key find it free.
      else void this.#runPatiently(await this.#run(ofKey, true, GROUP_LOCK_WAIT_MS))
    }
  }

  /** Writes that need the same row: one connection waits for it as long as it must, not one for each of them. */
  async #runPatiently(ofKey: readonly Submitted<Args, Result>[]): Promise<void> {
    const left = ofKey.length > 1 ? await this.#run(ofKey, true) : ofKey
    for (const submitted of left) void this.#runAlone(submitted)
  }

  /** Answers those that have a result, and returns the others. */
  async #run(
    group: readonly Submitted<Args, Result>[],
    mayWait: boolean,
    lockWaitMs?: number,
  ): Promise<readonly Submitted<Args, Result>[]> {
    let begun = group
    let results: readonly (Result | undefined)[] = []
    try {
      results = await this.#database.transaction(async (transaction) => {
        begun = group.filter(({ args }) => !isOver(args.cause)) // a connection may have taken long to come
        const all = begun.map(({ args }) => args)
        return all.length > 0 ? this.#steps(transaction, all, mayWait) : []
      }, lockWaitMs)
    } catch (error) {
      if (!mayBeOfOne(error)) {
        for (const submitted of group) {
          if (begun.includes(submitted)) submitted.reject(error)
          else refuse(submitted)
        }
        return []
      }
      // One of them cannot be written, or waits for a lock after all; alone, the others need not.
    }
    return group.filter((submitted) => {
      const result = results[begun.indexOf(submitted)]
      if (result !== undefined) submitted.resolve(result)
      else if (isOver(submitted)) refuse(submitted)
      else return true
      return false
    })
  }

  async #runAlone({ args, resolve, reject }: Submitted<Args, Result>): Promise<void> {
    try {
      const [result] = await this.#database.causedTransaction(args.cause, (transaction) =>
        this.#steps(transaction, [args], true),
      )
      if (result === undefined) throw new TypeError('a write that may wait has a result')
      resolve(result)
    } catch (error) {
      reject(error)
    }
  }
}
