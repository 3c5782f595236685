// The caller's side of LeaseService: a lease on the answers of the service behind one connection, held while it is worth it.
import { randomBytes, randomUUID } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import { type HoldLeaseResponse, LeaseService } from '../../gen/surveyauth/v1/lease_service_pb.js'
import type { Invoke, Outgoing } from '../rpc/client.js'
import { Changes } from './stripes.js'

/** A lease is taken when wanted this often within BEGUN_WITHIN_MS, and renewed while wanted so in every UNWANTED_AFTER_MS. */
const WORTH_WANTED = 16
const BEGUN_WITHIN_MS = 100
const UNWANTED_AFTER_MS = 500
/** Pause before asking again for a lease that was not granted. */
const PAUSE_MS = 1_000
const TIMEOUT_MS = 2_000
const HOLD_LEASE = LeaseService.method.holdLease

/** What is known of one run of the service. */
export class LeasedRun {
  readonly run: string
  #state: number
  readonly #changes: Changes
  /** By performance.now(). */
  #endsAtMs = 0

  constructor(run: string, state: number) {
    this.run = run
    this.#state = state
    this.#changes = new Changes(state)
  }

  /** The last change that is known. */
  get state(): number {
    return this.#state
  }

  get isInForce(): boolean {
    return performance.now() < this.#endsAtMs
  }

  /** Whether what held for the stripe at `state` still holds. */
  holds(stripe: number, state: number): boolean {
    return this.isInForce && this.#changes.isSame(stripe, state)
  }

  /** Takes in the answer to a request that was sent at `sentAtMs`, by performance.now(). */
  renew({ state, hasAllChanged, changedStripes, leaseMs }: HoldLeaseResponse, sentAtMs: number): void {
    this.#state = Number(state)
    if (hasAllChanged) this.#changes.addAll(this.#state)
    for (const stripe of changedStripes) this.#changes.add(stripe, this.#state)
    this.#endsAtMs = sentAtMs + leaseMs
  }

  giveUp(): void {
    this.#endsAtMs = 0
  }
}

export class HeldLease {
  readonly #invoke: Invoke
  readonly #worthWanted: number
  readonly #holder = randomUUID()
  /** With a trace context that says nobody records it. */
  readonly #call: Outgoing = {
    requestId: '',
    traceparent: `00-${randomBytes(16).toString('hex')}-${randomBytes(8).toString('hex')}-00`,
    timeoutMs: TIMEOUT_MS,
  }
  #present: LeasedRun | undefined
  #isHolding = false
  /** How often the lease was wanted since `#wantedSinceMs`. */
  #wanted = 0
  #wantedSinceMs = 0
  #pausedUntilMs = 0

  /** A lease on the answers of the service that `invoke` calls. It is taken when it has been wanted `worthWanted` times. */
  constructor(invoke: Invoke, worthWanted = WORTH_WANTED) {
    this.#invoke = invoke
    this.#worthWanted = worthWanted
  }

  /** What is known of the present run of the service; undefined while no lease is in force. */
  inForce(): LeasedRun | undefined {
    return this.#present?.isInForce ? this.#present : undefined
  }

  /** Notes that a lease is of use, or would be. */
  want(): void {
    this.#wanted += 1
    if (this.#isHolding) return
    const now = performance.now()
    if (now - this.#wantedSinceMs > BEGUN_WITHIN_MS) this.#countFrom(now, 1)
    if (this.#wanted >= this.#worthWanted && now >= this.#pausedUntilMs) void this.#hold()
  }

  #countFrom(now: number, wanted: number): void {
    this.#wantedSinceMs = now
    this.#wanted = wanted
  }

  /** Never rejects: without a lease, callers ask about their answers. */
  async #hold(): Promise<void> {
    this.#isHolding = true
    this.#countFrom(performance.now(), 0)
    try {
      while (this.#isWanted()) if (!(await this.#renew())) return
      await this.#giveUp()
    } catch {
      this.#pause() // the service is of an earlier version, or unreachable
    } finally {
      this.#isHolding = false
    }
  }

  #isWanted(): boolean {
    const now = performance.now()
    if (now - this.#wantedSinceMs < UNWANTED_AFTER_MS) return true
    const isWanted = this.#wanted >= this.#worthWanted
    this.#countFrom(now, 0)
    return isWanted
  }

  /** False when no lease is granted. */
  async #renew(): Promise<boolean> {
    const { run = '', state = 0 } = this.#present ?? {}
    const request = create(HOLD_LEASE.input, { holder: this.#holder, run, state: BigInt(state) })
    const sentAtMs = performance.now()
    const answer = await this.#invoke(HOLD_LEASE, request, this.#call)
    if (answer.leaseMs === 0) {
      this.#pause()
      return false
    }
    if (this.#present?.run !== answer.run) {
      this.#present?.giveUp()
      this.#present = new LeasedRun(answer.run, Number(answer.state))
    }
    this.#present.renew(answer, sentAtMs)
    return true
  }

  /** So that no write waits for a lease that is not used. */
  async #giveUp(): Promise<void> {
    this.#present?.giveUp()
    await this.#invoke(HOLD_LEASE, create(HOLD_LEASE.input, { holder: this.#holder, givesUp: true }), this.#call)
  }

  #pause(): void {
    this.#pausedUntilMs = performance.now() + PAUSE_MS
  }
}
