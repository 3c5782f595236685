// Surveys and lists that were read, kept until anything is written to the database. Reading the same again returns the same
// objects, so that callers can keep what they made of them.
//
// Why they are never stale: see kept-rows.ts of the token store.
import { LEASE_MS, type LeasedDatabase, Leases } from '../../../answers/leases.js'
import { ForeignWrites } from '../../../sqlite/foreign-writes.js'
import type { TransactionWatcher } from '../../../sqlite/group-commit.js'
import { Kept } from '../../../sqlite/kept.js'
import { LeaseLock } from '../../../sqlite/lease-lock.js'
import type { Connection } from '../../../sqlite/open.js'
import { MAX_KEPT_BYTES } from '../kept-sizes.js'

export class KeptSurveys implements TransactionWatcher {
  /** Surveys and lists, by keys of their reader. */
  readonly found: Kept<object>
  readonly #leaseLock: LeaseLock
  readonly #leased: LeasedDatabase

  /** `leases` are those on answers about surveys. */
  constructor(db: Connection, leases = new Leases()) {
    const foreignWrites = new ForeignWrites(db, () => {
      this.found.forgetAll()
      this.#leased.isAltered()
    })
    this.found = new Kept(foreignWrites, MAX_KEPT_BYTES)
    this.#leaseLock = new LeaseLock(db, LEASE_MS, () => foreignWrites.lookNow())
    this.#leased = leases.cover(this.#leaseLock)
  }

  /** Called for every write, inside its transaction. */
  changed(): void {
    this.found.forgetAll()
    this.#leased.altersAll()
  }

  begun(): void {}

  undone(): void {}

  committed(): Promise<void> | undefined {
    return this.#leased.committed()
  }

  /** From now on nothing is kept. */
  close(): void {
    this.found.forgetAll()
    this.#leaseLock.close()
  }
}
