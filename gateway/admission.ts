import { Problem } from './errors.js'
import type { Route } from './http.js'

/** Made once: a stack trace for each refusal would cost more than the rest of the answer. */
const BUSY = new Problem('remote_server_error', 'the service is busy, try again later', { retryAfterSeconds: 1 })

/** Pages started in one turn of the event loop. Each blocks it for some 0.3 ms, in which no app is answered. */
const PAGES_PER_TURN = 4

/**
 * Requests refused before any work in one turn of the event loop, a few ms. Without a bound, a crowd that retries as soon as
 * it is refused would be all that is served: libuv reads from up to 1,024 sockets, 48 times over, before anything admitted
 * makes progress. A client that waits for its refusal does not retry meanwhile, and what it pipelined waits behind it.
 */
const REFUSALS_PER_TURN = 64

/**
 * Bounds the requests a gateway works on at a time. Those beyond the bound are refused: behind so many others they would be
 * answered too late to be of use. Pages are counted separately, so that sign-ins waiting for the password hash do not delay
 * apps, and are started a few at a time, so that a crowd of them does not either.
 */
export class Admission {
  readonly #rooms: Readonly<Record<Route['kind'], Room>>
  readonly #pages = new Pace(PAGES_PER_TURN)
  readonly #refusals = new Pace(REFUSALS_PER_TURN)

  constructor(maxInFlight: number) {
    this.#rooms = { api: new Room(maxInFlight), page: new Room(maxInFlight) }
  }

  /**
   * Takes a slot, to be given back with `leave`. Returns a promise to await before work begins; undefined when it may begin now.
   * @throws Problem remote_server_error
   */
  enter(kind: Route['kind']): Promise<void> | undefined {
    if (!this.#rooms[kind].enter()) throw BUSY
    return kind === 'page' ? this.#pages.next() : undefined
  }

  leave(kind: Route['kind']): void {
    this.#rooms[kind].leave()
  }

  /** Returns a promise to await before a request is refused; undefined when it may be now. */
  refusal(): Promise<void> | undefined {
    return this.#refusals.next()
  }
}

/** Lets `perTurn` callers proceed in each turn of the event loop, in order of arrival, so that a crowd cannot hold up a turn. */
export class Pace {
  readonly #perTurn: number
  readonly #waiting: (() => void)[] = []
  #ofThisTurn = 0

  constructor(perTurn: number) {
    this.#perTurn = perTurn
  }

  /** Fulfils when the caller may proceed; undefined when it may now. */
  next(): Promise<void> | undefined {
    if (this.#ofThisTurn === 0) setImmediate(() => this.#begin())
    if (this.#ofThisTurn < this.#perTurn) {
      this.#ofThisTurn += 1
      return undefined
    }
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  #begin(): void {
    const next = this.#waiting.splice(0, this.#perTurn)
    this.#ofThisTurn = next.length
    if (next.length > 0) setImmediate(() => this.#begin())
    for (const goOn of next) goOn()
  }
}

/** Target for the mean time, in ms, from admission to answer while other requests are refused. */
const AIM_MS = 75
/** How long departures are counted, in ms: several database commits, after each of which all that shared it leave at once. */
const COUNT_MS = 250
/** Once nothing has been refused for this long, in ms, the next crowd counts as a new one. */
const CALM_MS = 1_000
/** Share of the slots that is always available: a gateway that is slow without being busy gets no faster with fewer. */
const LEAST_SHARE = 0.25
/** After this long at the least share, in ms, all slots are tried, in case nothing need be refused any more. */
const TRY_ALL_AFTER_MS = 10_000

/**
 * A new crowd gets all slots. While it stays and requests are refused, there are only as many as become free in 75 ms: a
 * request that gets one then keeps it for about that long (Little's law). Only time in which the room is in use counts:
 * between two crowds nothing leaves because nothing is there.
 */
class Room {
  readonly #max: number
  readonly #least: number
  /** With at least this many taken, the room is in use. */
  readonly #used: number
  #slots: number
  #taken = 0
  /** Departures since the last count. */
  #left = 0
  /** How long the room was in use since the last count, in ms, excluding the time since `#usedFrom`. */
  #usedMs = 0
  #usedFrom = 0
  #wasFullAt = Number.NEGATIVE_INFINITY
  /** When there last were more slots than the least share, or all were tried. */
  #hadMoreAt = 0

  constructor(max: number) {
    this.#max = max
    this.#least = Math.max(1, Math.round(max * LEAST_SHARE))
    this.#used = Math.ceil(this.#least / 2)
    this.#slots = max
  }

  enter(): boolean {
    if (this.#taken >= this.#slots && this.#isFull()) return false
    this.#taken += 1
    if (this.#taken === this.#used) this.#usedFrom = performance.now()
    return true
  }

  leave(): void {
    if (this.#taken === this.#used) this.#usedMs += performance.now() - this.#usedFrom
    this.#taken -= 1
    this.#left += 1
  }

  #isFull(): boolean {
    const now = performance.now()
    const usedMs = this.#usedMs + now - this.#usedFrom
    if (now - this.#wasFullAt > CALM_MS) this.#give(this.#max, now)
    else if (usedMs >= COUNT_MS) this.#give(Math.round((this.#left / usedMs) * AIM_MS), now)
    const isFull = this.#taken >= this.#slots
    if (isFull) this.#wasFullAt = now
    return isFull
  }

  #give(slots: number, now: number): void {
    const tryAll = slots <= this.#least && now - this.#hadMoreAt > TRY_ALL_AFTER_MS
    this.#slots = tryAll ? this.#max : Math.min(this.#max, Math.max(this.#least, slots))
    if (this.#slots > this.#least) this.#hadMoreAt = now
    this.#usedMs = 0
    this.#usedFrom = now
    this.#left = 0
  }
}
