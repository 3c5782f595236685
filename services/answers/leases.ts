// Leases on the answers of this process (Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File
// Cache Consistency", 1989). Callers that hold one use answers they have kept without asking. A write that ends or changes such
// an answer is acknowledged when every holder has said that it knows, or when its lease has ended, whichever is first. So the
// write takes effect from the very next request on, with leases as without.
//
// One process per database may grant leases. Either it is the only one that writes, or any other writer waits until every lease
// that may be in force has ended: LeaseGuard sees to both.
import { randomUUID } from 'node:crypto'
import type { MessageInitShape } from '@bufbuild/protobuf'
import type {
  HoldLeaseRequest,
  HoldLeaseResponseSchema,
  LeaseService,
} from '../../gen/surveyauth/v1/lease_service_pb.js'
import type { Handlers } from '../rpc/dispatcher.js'
import { Changes } from './stripes.js'

/** How long a lease lasts. A write waits this long, once, for a holder that was killed or hangs. */
export const LEASE_MS = 200
/** A holder is answered after this long at the latest, well within its lease. */
export const RENEWED_AFTER_MS = 50
/** Callers beyond these get no lease, and ask about each answer. */
const MAX_HOLDERS = 1_000

/** Decides which of the processes that open a database may grant leases on it. */
export interface LeaseGuard {
  /** Whether this process may, from now until it ends. */
  take(): boolean
  /** For how many ms from now a lease granted by another process may be in force. Takes over from a process that has ended. */
  strangersMs(): number
  /** Notices what others have written, if it has not yet. */
  look(): void
}

/** A caller that has been granted a lease. */
interface Holder {
  /** The last change it is known to know of. */
  knows: number
  /** By performance.now(). */
  leaseEndsAtMs: number
}

/** A change, acknowledged when all who held a lease when it happened know of it, or when their leases have ended. */
interface Waiting {
  readonly change: number
  readonly late: Set<Holder>
  /** By performance.now(): not acknowledged before, even if all know. */
  readonly notBeforeMs: number
  /** Acknowledged by then, even if some do not know. */
  readonly endsAtMs: number
  readonly resolve: () => void
}

export class Leases {
  /** Identifies this process since its start. */
  readonly run = randomUUID()
  readonly #guards: LeaseGuard[] = []
  readonly #changes = new Changes(0)
  #state = 0
  readonly #holders = new Map<string, Holder>()
  /** Functions that answer the HoldLease calls waiting for a change, by holder. */
  readonly #calls = new Map<string, () => void>()
  readonly #waiting = new Set<Waiting>()
  #timer: NodeJS.Timeout | undefined

  /** The number of the last change. A lookup made after this was read may rest on it. */
  get state(): number {
    return this.#state
  }

  /** Makes leases cover this database too. */
  cover(guard: LeaseGuard): LeasedDatabase {
    this.#guards.push(guard)
    return new LeasedDatabase(this, guard)
  }

  /** For a process that has started: it waits for the leases of its predecessor from now on, not only from the first write. */
  takeOver(): void {
    for (const guard of this.#guards) guard.strangersMs()
  }

  /** Numbers a change of these stripes, or of all, and tells the holders. */
  changed(stripes: Iterable<number> | undefined): void {
    this.#state += 1
    if (stripes === undefined) this.#changes.addAll(this.#state)
    else for (const stripe of stripes) this.#changes.add(stripe, this.#state)
    for (const answer of this.#calls.values()) answer()
  }

  /**
   * Fulfils when no holder can still use what changed last, `afterMs` from now at the earliest; undefined when that is at once.
   * Leases granted from now on tell of the change, so no lease is waited for longer than one lasts.
   */
  whenKnown(afterMs: number): Promise<void> | undefined {
    const now = performance.now()
    const notBeforeMs = now + afterMs
    const late = new Set<Holder>()
    let endsAtMs = notBeforeMs
    for (const holder of this.#holders.values()) {
      if (holder.knows >= this.#state || holder.leaseEndsAtMs <= now) continue
      late.add(holder)
      endsAtMs = Math.max(endsAtMs, holder.leaseEndsAtMs)
    }
    if (endsAtMs === now) return undefined
    return new Promise((resolve) => {
      this.#waiting.add({ change: this.#state, late, notBeforeMs, endsAtMs, resolve })
      this.#acknowledge()
    })
  }

  /** LeaseService.HoldLease: see lease_service.proto. */
  async hold(request: HoldLeaseRequest): Promise<MessageInitShape<typeof HoldLeaseResponseSchema>> {
    const { holder: name, run, state, givesUp } = request
    const receivedAtMs = performance.now()
    this.#calls.get(name)?.()
    if (givesUp) {
      this.#knows(name, Number.POSITIVE_INFINITY) // it no longer uses any answer
      this.#holders.delete(name)
      return this.#present()
    }
    const known = run === this.run ? Number(state) : undefined
    if (known !== undefined) this.#knows(name, known)
    if (!this.#mayGrant(name)) return this.#present()
    if (known !== undefined && known >= this.#state) await this.#changeFor(name)
    if (!this.#haveLooked()) return this.#present()
    const changed = known === undefined ? undefined : this.#changes.after(known)
    const holder = this.#holders.get(name) ?? { knows: known ?? 0, leaseEndsAtMs: 0 }
    holder.leaseEndsAtMs = Math.max(holder.leaseEndsAtMs, receivedAtMs + LEASE_MS)
    this.#holders.set(name, holder)
    return { ...this.#present(), hasAllChanged: !changed, changedStripes: [...(changed ?? [])], leaseMs: LEASE_MS }
  }

  #present(): { run: string; state: bigint } {
    return { run: this.run, state: BigInt(this.#state) }
  }

  #mayGrant(name: string): boolean {
    if (this.#guards.length === 0 || !this.#guards.every((guard) => guard.take())) return false
    if (!this.#holders.has(name) && this.#holders.size >= MAX_HOLDERS) this.#forgetEnded()
    return this.#holders.has(name) || this.#holders.size < MAX_HOLDERS
  }

  #forgetEnded(): void {
    const now = performance.now()
    for (const [name, { leaseEndsAtMs }] of this.#holders) if (leaseEndsAtMs <= now) this.#holders.delete(name)
  }

  /** False when a database cannot be asked. */
  #haveLooked(): boolean {
    try {
      for (const guard of this.#guards) guard.look()
      return true
    } catch {
      return false
    }
  }

  /** Fulfils when something has changed, or it is time to renew. */
  #changeFor(name: string): Promise<void> {
    return new Promise((resolve) => {
      const answer = () => {
        clearTimeout(timer)
        this.#calls.delete(name)
        resolve()
      }
      const timer = setTimeout(answer, RENEWED_AFTER_MS)
      this.#calls.set(name, answer)
    })
  }

  #knows(name: string, change: number): void {
    const holder = this.#holders.get(name)
    if (!holder || holder.knows >= change) return
    holder.knows = change
    for (const waiting of this.#waiting) if (waiting.change <= change) waiting.late.delete(holder)
    this.#acknowledge()
  }

  /** Acknowledges what all know by now, and sets a timer for what is due next. */
  #acknowledge(): void {
    const now = performance.now()
    let nextMs = Number.POSITIVE_INFINITY
    for (const waiting of this.#waiting) {
      const { late, notBeforeMs, endsAtMs, resolve } = waiting
      const endMs = late.size === 0 ? notBeforeMs : endsAtMs
      if (endMs > now) nextMs = Math.min(nextMs, endMs)
      else {
        this.#waiting.delete(waiting)
        resolve()
      }
    }
    clearTimeout(this.#timer)
    if (this.#waiting.size > 0) this.#timer = setTimeout(() => this.#acknowledge(), Math.ceil(nextMs - now))
  }
}

/** Through this a store reports its writes. */
export class LeasedDatabase {
  readonly #leases: Leases
  readonly #guard: LeaseGuard
  /** What was altered and is not committed yet. */
  readonly #stripes = new Set<number>()
  #isAll = false
  #isConfirming = false

  constructor(leases: Leases, guard: LeaseGuard) {
    this.#leases = leases
    this.#guard = guard
  }

  /** For a write, inside its transaction; nothing is taken back when that is rolled back. */
  alters(stripe: number): void {
    this.#stripes.add(stripe)
  }

  altersAll(): void {
    this.#isAll = true
  }

  /** For a write that may find its work already done: whoever did it may not have been told yet, for the sake of holders. */
  confirms(): void {
    this.#isConfirming = true
  }

  /** Called when another process has written, and may have altered anything. */
  isAltered(): void {
    this.#leases.changed(undefined)
  }

  /** Called after each COMMIT. Fulfils when lease holders let the transaction be acknowledged; undefined when that is at once. */
  committed(): Promise<void> | undefined {
    const isAltering = this.#isAll || this.#stripes.size > 0
    if (!isAltering && !this.#isConfirming) return undefined
    if (isAltering) this.#leases.changed(this.#isAll ? undefined : this.#stripes)
    this.#stripes.clear()
    this.#isAll = false
    this.#isConfirming = false
    return this.#leases.whenKnown(this.#guard.strangersMs())
  }
}

export function createLeaseHandlers(leases: Leases): Handlers<typeof LeaseService> {
  return { holdLease: (request) => leases.hold(request) }
}
