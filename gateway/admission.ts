import { Problem } from './errors.js'
import type { Route } from './http.js'

/** Made once: a stack for each of them would cost more than the rest of the answer. */
const BUSY = new Problem('remote_server_error', 'the service is busy, try again later', { retryAfterSeconds: 1 })

/**
 * How many requests a gateway works on at a time. More are refused at once, because behind so many others they would be
 * answered too late to be of use. Pages count apart, so that sign-ins which wait for the password hash keep no app waiting.
 */
export class Admission {
  readonly #maxInFlight: number
  readonly #inFlight: Record<Route['kind'], number> = { api: 0, page: 0 }

  constructor(maxInFlight: number) {
    this.#maxInFlight = maxInFlight
  }

  /** Runs `work` if there is room for it. @throws Problem remote_server_error */
  async run<Result>(kind: Route['kind'], work: () => Promise<Result>): Promise<Result> {
    if (this.#inFlight[kind] >= this.#maxInFlight) throw BUSY
    this.#inFlight[kind] += 1
    try {
      return await work()
    } finally {
      this.#inFlight[kind] -= 1
    }
  }
}
