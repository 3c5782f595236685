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
  readonly #maxInFlight: number
  readonly #inFlight: Record<Route['kind'], number> = { api: 0, page: 0 }
  readonly #pages = new Turns(PAGES_PER_TURN)

  constructor(maxInFlight: number) {
    this.#maxInFlight = maxInFlight
  }

  /** Runs `work` if there is room for it. @throws Problem remote_server_error */
  async run<Result>(kind: Route['kind'], work: () => Promise<Result>): Promise<Result> {
    if (this.#inFlight[kind] >= this.#maxInFlight) throw BUSY
    this.#inFlight[kind] += 1
    try {
      if (kind === 'page') await this.#pages.next()
      return await work()
    } finally {
      this.#inFlight[kind] -= 1
    }
  }
}
