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
/** How long a crowd has no more than those before it is tried, in ms, whether with all places nobody need be turned away. */
const TRY_ALL_AFTER_MS = 10_000

/**
 * Places for a crowd, which comes and goes, are all there are. While it stays and some are turned away, there are only as
 * many as are left in 75 ms: who gets one of them then has it for about as long (Little's law). Only time counts in which
 * the room is in use: between two crowds nobody leaves because nobody is there.
 */
class Room {
  readonly #max: number
  readonly #least: number
  /** With so many the room is in use. */
  readonly #used: number
  #places: number
  #taken = 0
  /** Since the last count. */
  #left = 0
  /** How long the room was in use since the last count, in ms, without the time since `#usedFrom`. */
  #usedMs = 0
  #usedFrom = 0
  #wasFullAt = Number.NEGATIVE_INFINITY
  /** When the places last were more than the least, or all were tried. */
  #hadMoreAt = 0

  constructor(max: number) {
    this.#max = max
    this.#least = Math.max(1, Math.round(max * LEAST_SHARE))
    this.#used = Math.ceil(this.#least / 2)
    this.#places = max
  }

  enter(): boolean {
    if (this.#taken >= this.#places && this.#isFull()) return false
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
    const isFull = this.#taken >= this.#places
    if (isFull) this.#wasFullAt = now
    return isFull
  }

  #give(places: number, now: number): void {
    const tryAll = places <= this.#least && now - this.#hadMoreAt > TRY_ALL_AFTER_MS
    this.#places = tryAll ? this.#max : Math.min(this.#max, Math.max(this.#least, places))
    if (this.#places > this.#least) this.#hadMoreAt = now
    this.#usedMs = 0
    this.#usedFrom = now
    this.#left = 0
  }
}
