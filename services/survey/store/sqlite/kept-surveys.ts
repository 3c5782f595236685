// Surveys and lists that were read, kept until anything is written to the database. Who reads the same again is given the
// same objects, so that those above can keep what they made of them.
//
// Why it is never stale: as kept-rows.ts says of tokens.
import { BoundedMap } from '../../../rpc/bounded-map.js'
import { ForeignWrites } from '../../../sqlite/foreign-writes.js'
import type { Connection } from '../../../sqlite/open.js'

/** Of memory, everything that is made of what is kept included: messages, and the JSON of the gateway. */
const MAX_BYTES = 128 * 1024 * 1024
const ENTRY_BYTES = 200
/** Measured: 2.4 times the document where texts are long, 20 times where a survey is all short options. */
const DOCUMENT_FACTOR = 20
/** A row of a list as row, as message and as JSON, each with its title. */
const ROW_BYTES = 600
const TITLE_FACTOR = 5

export class KeptSurveys {
  readonly #foreignWrites: ForeignWrites
  readonly #kept = new BoundedMap<object>(MAX_BYTES)

  constructor(db: Connection) {
    this.#foreignWrites = new ForeignWrites(db, () => this.forgetAll())
  }

  /** What `read` returned last for this key, if nothing was written since; `size` is what it and its like take, in bytes. */
  async find<Found extends object>(
    key: string,
    read: () => Found | undefined,
    size: (found: Found) => number,
  ): Promise<Found | undefined> {
    await this.#foreignWrites.look()
    const known = this.#kept.get(key)
    if (known !== undefined) return known as Found
    const found = read()
    if (found !== undefined) this.#kept.keep(key, found, ENTRY_BYTES + size(found))
    return found
  }

  /** For every write, inside its transaction. */
  forgetAll(): void {
    this.#kept.forgetAll()
  }
}

export function sizeOfSurvey({ document }: { readonly document: Uint8Array }): number {
  return document.length * DOCUMENT_FACTOR
}

export function sizeOfList({ rows }: { readonly rows: readonly { readonly title: string }[] }): number {
  return rows.reduce((sum, { title }) => sum + ROW_BYTES + title.length * TITLE_FACTOR, 0)
}
