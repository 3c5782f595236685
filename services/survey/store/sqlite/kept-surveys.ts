// Surveys and lists that were read, kept until anything is written to the database. Who reads the same again is given the
// same objects, so that those above can keep what they made of them.
//
// Why it is never stale: as kept-rows.ts says of tokens.
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

  /** For every write, inside its transaction. */
  changed(): void {
    this.found.forgetAll()
    this.#leased.altersAll()
  }

  begun(): void {}

  undone(): void {}

  committed(): Promise<void> | undefined {
    return this.#leased.committed()
  }

  /** Nothing is kept any more. */
  close(): void {
    this.found.forgetAll()
    this.#leaseLock.close()
  }
}
