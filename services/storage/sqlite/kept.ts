// Values read from a database, kept until somebody says that they may have changed.
import { BoundedMap } from '../bounded-map.js'
import type { ForeignWrites } from './foreign-writes.js'

export class Kept<Value extends object> {
  readonly #foreignWrites: ForeignWrites
  readonly #values: BoundedMap<Value>

  /** `maxBytes`: bound on the sizes of all values kept. The owner calls `forgetAll` when others have written. */
  constructor(foreignWrites: ForeignWrites, maxBytes: number) {
    this.#foreignWrites = foreignWrites
    this.#values = new BoundedMap(maxBytes)
  }

  /** What `read` last returned for this key; it is called again if that was forgotten. `size`: what a value takes, in bytes. */
  find<Found extends Value>(
    key: string,
    read: () => Found | undefined,
    size: (found: Found) => number,
  ): Promise<Found | undefined> {
    return this.#foreignWrites.look().then(() => {
      const known = this.#values.get(key)
      if (known !== undefined) return known as Found
      const found = read()
      if (found !== undefined) this.#values.keep(key, found, size(found))
      return found
    })
  }

  forgetAll(): void {
    this.#values.forgetAll()
  }
}
