// When things last changed, for very many things in little memory: each belongs to one of a few thousand stripes, and a stripe
// knows when anything in it last changed. Both sides of a lease keep this.

/** Part of the wire protocol: see lease_service.proto. */
export const STRIPES = 4_096

/** The stripe that an id belongs to; always the same. By FNV-1a. */
export function stripeOf(id: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < id.length; at += 1) hash = Math.imul(hash ^ id.charCodeAt(at), 0x01000193)
  return (hash ^ (hash >>> 16)) & (STRIPES - 1)
}

/** Changes are numbered; what held before the first has number 0. */
export class Changes {
  #allChangedAt: number
  readonly #changedAt = new Float64Array(STRIPES)

  /** Everything counts as changed at number `at`. */
  constructor(at: number) {
    this.#allChangedAt = at
  }

  /** A stripe that does not exist here is another version's: everything then counts as changed. */
  add(stripe: number, at: number): void {
    if (stripe < STRIPES) this.#changedAt[stripe] = at
    else this.addAll(at)
  }

  addAll(at: number): void {
    this.#allChangedAt = at
  }

  /** Whether what held for the stripe at number `since` still holds. */
  isSame(stripe: number, since: number): boolean {
    return since >= this.#allChangedAt && since >= (this.#changedAt[stripe] ?? Number.POSITIVE_INFINITY)
  }

  /** The stripes that changed after `since`; undefined when all may have. */
  after(since: number): readonly number[] | undefined {
    if (since < this.#allChangedAt) return undefined
    const stripes: number[] = []
    for (let stripe = 0; stripe < STRIPES; stripe += 1) {
      if ((this.#changedAt[stripe] ?? 0) > since) stripes.push(stripe)
    }
    return stripes
  }
}
