// Group commit for PostgreSQL: writes that come at about the same time share a transaction.
import { type Cause, isOver } from '../cause.js'
import { groupBy } from '../group-by.js'
import { mayBeOfOne } from './errors.js'
import { refuse, Together, type Waiting } from './together.js'
import type { Database, Transaction } from './transaction.js'

/** Few enough that their locks are not held for long. */
const MAX_GROUP = 32
/** So that no write waits long for what another one needs. */
const GROUP_LOCK_WAIT_MS = 100

/** Writes for each of `all`, in one transaction; the results are in the same order. */
export type Steps<Args, Result> = (transaction: Transaction, all: readonly Args[]) => Promise<readonly Result[]>

interface Submitted<Args, Result> extends Waiting {
  readonly key: string
  readonly args: Args
  resolve(result: Result): void
}

/**
 * Writes in groups that hardly wait for locks. If one has to wait, or the database refuses one, all are written again, those of
 * each key in a transaction of their own.
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
  submit(key: string, args: Args): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#together.add({ key, ...this.#database.until(args.cause), args, resolve, reject })
    })
  }

  async #runTogether(group: readonly Submitted<Args, Result>[]): Promise<void> {
    // Every process locks in the order of the keys.
    const byKey = [...groupBy(group, ({ key }) => key)].sort(([one], [other]) => (one < other ? -1 : 1))
    const isSettled = await this.#run(
      byKey.flatMap(([, ofKey]) => ofKey),
      GROUP_LOCK_WAIT_MS,
    )
    if (!isSettled) for (const [, ofKey] of byKey) void this.#run(ofKey)
  }

  /** Settles all, or none if only some may have failed or the wait for a lock was cut short. */
  async #run(group: readonly Submitted<Args, Result>[], lockWaitMs?: number): Promise<boolean> {
    let begun = group
    try {
      const results = await this.#database.transaction(async (transaction) => {
        begun = group.filter(({ args }) => !isOver(args.cause)) // a connection may have taken long to come
        const all = begun.map(({ args }) => args)
        return all.length > 0 ? this.#steps(transaction, all) : []
      }, lockWaitMs)
      results.forEach((result, index) => {
        begun[index]?.resolve(result)
      })
    } catch (error) {
      if (lockWaitMs !== undefined && mayBeOfOne(error)) return false
      for (const { reject } of begun) reject(error)
    }
    for (const submitted of group) if (!begun.includes(submitted)) refuse(submitted)
    return true
  }
}
