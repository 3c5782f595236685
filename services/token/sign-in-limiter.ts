import { RateLimiterMemory, type RateLimiterRes } from 'rate-limiter-flexible'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../rpc/service-error.js'

/**
 * Slows down guessing. Failures count per (account, source) and per source; a success clears the first. Nobody else's
 * failures can keep a user out: an account is slowed only for the source that fails. Memory is bounded by the windows.
 */
export interface SignInLimiter {
  /** @throws ServiceError RATE_LIMITED when this source must wait. */
  admit(username: string, source: string): Promise<void>
  failed(username: string, source: string): Promise<void>
  succeeded(username: string, source: string): Promise<void>
}

export interface SignInLimits {
  /** Failures of one source on one account before it must wait. */
  readonly perAccountAndSource: number
  /** Failures of one source on any accounts before it must wait. */
  readonly perSource: number
  readonly windowSeconds: number
}

export function createSignInLimiter(limits: SignInLimits): SignInLimiter {
  const duration = limits.windowSeconds
  const byPair = new RateLimiterMemory({ points: limits.perAccountAndSource, duration, keyPrefix: 'pair' })
  const bySource = new RateLimiterMemory({ points: limits.perSource, duration, keyPrefix: 'source' })
  const pair = (username: string, source: string) => JSON.stringify([username, source])

  function refuseWhenSpent(state: RateLimiterRes | null): void {
    if (state === null || state.remainingPoints > 0) return
    const retryAfterSeconds = Math.max(1, Math.ceil(state.msBeforeNext / 1000))
    throw new ServiceError(ErrorReason.RATE_LIMITED, 'too many failed sign-ins', { retryAfterSeconds })
  }

  return {
    async admit(username, source) {
      refuseWhenSpent(await byPair.get(pair(username, source)))
      refuseWhenSpent(await bySource.get(source))
    },
    async failed(username, source) {
      await byPair.penalty(pair(username, source))
      await bySource.penalty(source)
    },
    async succeeded(username, source) {
      await byPair.delete(pair(username, source))
    },
  }
}

/** Admits everything: RATE_LIMIT=off. */
export const noSignInLimiter: SignInLimiter = {
  admit: () => Promise.resolve(),
  failed: () => Promise.resolve(),
  succeeded: () => Promise.resolve(),
}
