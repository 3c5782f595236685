import { Problem } from './errors.js'
import type { Route } from './http.js'
import { Turns } from './turns.js'

/** Made once: a stack for each of them would cost more than the rest of the answer. */
const BUSY = new Problem('remote_server_error', 'the service is busy, try again later', { retryAfterSeconds: 1 })

/** Pages begun in one turn of the event loop. Each holds it for some 0.3 ms, in which no app is answered. */
const PAGES_PER_TURN = 4

/**
 * How many requests a gateway works on at a time. More are refused, because behind so many others they would be answered
 * too late to be of use. Pages count apart, so that sign-ins which wait for the password hash keep no app waiting, and
 * begin a few at a time, so that a crowd of them does not either.
 */
export class Admission {
  readonly #rooms: Readonly<Record<Route['kind'], Room>>
  readonly #pages = new Turns(PAGES_PER_TURN)

  constructor(maxInFlight: number) {
    this.#rooms = { api: new Room(maxInFlight), page: new Room(maxInFlight) }
  }

  /**
   * Takes a place, to be given back with `leave`. Returns what to wait for before work begins; undefined when it may at once.
   * @throws Problem remote_server_error
   */
  enter(kind: Route['kind']): Promise<void> | undefined {
    if (!this.#rooms[kind].enter()) throw BUSY
    return kind === 'page' ? this.#pages.next() : undefined
  }

  leave(kind: Route['kind']): void {
    this.#rooms[kind].leave()
  }
}

/** Of those who are let in while others are turned away, the mean is to be done after this, in ms. */
const AIM_MS = 75
/** How long leavers are counted, in ms: several commits of a database, which all who wrote together leave with. */
const COUNT_MS = 250
/** How long nobody must have been turned away for a crowd to be a new one, in ms. */
const CALM_MS = 1_000
/** Of the places, those that are always given: who works slowly without being busy gets no faster by fewer. */
const LEAST_SHARE = 0.25

/**
 * Places for a crowd, which comes and goes, are all there are. While it stays and some are turned away, there are only as
 * many as are left in 75 ms: who gets one of them then has it for about as long (Little's law).
 */
class Room {
  readonly #max: number
  #places: number
  #taken = 0
  /** Since `#countedFrom`. */
  #left = 0
  #countedFrom = 0
  #wasFullAt = Number.NEGATIVE_INFINITY

  constructor(max: number) {
    this.#max = max
    this.#places = max
  }

  enter(): boolean {
    if (this.#taken >= this.#places && this.#isFull()) return false
    this.#taken += 1
    return true
  }

  leave(): void {
    this.#taken -= 1
    this.#left += 1
  }

  #isFull(): boolean {
    const now = performance.now()
    if (now - this.#wasFullAt > CALM_MS) this.#count(now, this.#max)
    else if (now - this.#countedFrom >= COUNT_MS) this.#count(now, (this.#left / (now - this.#countedFrom)) * AIM_MS)
    const isFull = this.#taken >= this.#places
    if (isFull) this.#wasFullAt = now
    return isFull
  }

  #count(now: number, places: number): void {
    this.#places = Math.round(Math.min(this.#max, Math.max(this.#max * LEAST_SHARE, places, 1)))
    this.#countedFrom = now
    this.#left = 0
  }
}
