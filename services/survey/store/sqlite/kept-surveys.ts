// Surveys and lists that were read, kept until anything is written to the database. Who reads the same again is given the
// same objects, so that those above can keep what they made of them.
//
// Why it is never stale: as kept-rows.ts says of tokens.
import { ForeignWrites } from '../../../sqlite/foreign-writes.js'
import { Kept } from '../../../sqlite/kept.js'
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
  readonly #kept: Kept<object>

  constructor(db: Connection) {
    this.#kept = new Kept(new ForeignWrites(db, () => this.forgetAll()), MAX_BYTES)
  }

  /** What `read` returned last for this key, if nothing was written since; `size` is what it and its like take, in bytes. */
  find<Found extends object>(
    key: string,
    read: () => Found | undefined,
    size: (found: Found) => number,
  ): Promise<Found | undefined> {
    return this.#kept.find(key, read, (found) => ENTRY_BYTES + size(found))
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
