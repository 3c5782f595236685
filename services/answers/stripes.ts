// What changed when, of very many things, in a little memory: each belongs to one of some thousand stripes, and what is known
// of a stripe is when anything of it changed last. Both sides of a lease know as much.

/** A wire constant: lease_service.proto says it. */
export const STRIPES = 4_096

/** The stripe of what has this id; always the same. By FNV-1a. */
export function stripeOf(id: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < id.length; at += 1) hash = Math.imul(hash ^ id.charCodeAt(at), 0x01000193)
  return (hash ^ (hash >>> 16)) & (STRIPES - 1)
}

/** Changes are numbered; so is what was true before the first, with 0. */
export class Changes {
  #allChangedAt: number
  readonly #changedAt = new Float64Array(STRIPES)

  /** All counts as changed with the number `at`. */
  constructor(at: number) {
    this.#allChangedAt = at
  }

  /** A stripe that does not exist is one of another version's: all counts as changed. */
  add(stripe: number, at: number): void {
    if (stripe < STRIPES) this.#changedAt[stripe] = at
    else this.addAll(at)
  }

  addAll(at: number): void {
    this.#allChangedAt = at
  }

  /** Whether what was true of the stripe with the number `since` still is. */
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
