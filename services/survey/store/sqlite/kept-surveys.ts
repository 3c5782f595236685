// Surveys and lists that were read, kept until anything is written to the database. Who reads the same again is given the
// same objects, so that those above can keep what they made of them.
//
// Why it is never stale: as verified-tokens.ts says of tokens.
import { ForeignWrites } from '../../../sqlite/foreign-writes.js'
import type { Connection } from '../../../sqlite/open.js'

/** Of documents and list rows together, in bytes as stored; decoded they take a few times as much. */
const MAX_BYTES = 16 * 1024 * 1024
/** A row of a list in memory. */
const LIST_ROW_BYTES = 200
/** An entry without content: what is missing is not kept. */
const ENTRY_BYTES = 100

export class KeptSurveys {
  readonly #foreignWrites: ForeignWrites
  #kept = new Map<string, unknown>()
  #bytes = 0

  constructor(db: Connection) {
    this.#foreignWrites = new ForeignWrites(db, () => this.forgetAll())
  }

  /** What `read` returned last for this key, if nothing was written since; `size` is that of its content, in bytes. */
  async find<Found extends object>(
    key: string,
    read: () => Found | undefined,
    size: (found: Found) => number,
  ): Promise<Found | undefined> {
    await this.#foreignWrites.look()
    const known = this.#kept.get(key)
    if (known !== undefined) return known as Found
    const found = read()
    if (found !== undefined) this.#keep(key, found, ENTRY_BYTES + size(found))
    return found
  }

  /** For every write, inside its transaction. */
  forgetAll(): void {
    if (this.#kept.size > 0) this.#kept = new Map()
    this.#bytes = 0
  }

  #keep(key: string, found: object, bytes: number): void {
    if (this.#bytes + bytes > MAX_BYTES) this.forgetAll()
    if (bytes > MAX_BYTES) return
    this.#kept.set(key, found)
    this.#bytes += bytes
  }
}

export function sizeOfSurvey({ document }: { readonly document: Uint8Array }): number {
  return document.length
}

export function sizeOfList({ rows }: { readonly rows: readonly unknown[] }): number {
  return rows.length * LIST_ROW_BYTES
}
