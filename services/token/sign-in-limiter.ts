import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../rpc/service-error.js'
import type { TokenStore } from './store/token-store.js'

/**
 * Slows down guessing. An attempt is counted per (account, source) and per source before its password is checked, so that
 * sending many at once gains nothing; the count is taken back unless the name or password was wrong. Nobody else's failures
 * can lock a user out: an account is slowed only for the source that fails. All processes on the store share the counts.
 */
export interface SignInLimiter {
  /**
   * Counts and runs `attempt`, which answers undefined when the name or password is wrong. Any other answer clears the
   * failures of the account and gives the source one attempt back; if `attempt` throws, both get one back.
   * @throws ServiceError RATE_LIMITED when this source must wait, else what `attempt` throws
   */
  counted<T>(username: string, source: string, attempt: () => Promise<T | undefined>): Promise<T | undefined>
}

export interface SignInLimits {
  /** Failures of one source on one account before it must wait. */
  readonly perAccountAndSource: number
  /** Failures of one source on any accounts before it must wait. */
  readonly perSource: number
  readonly windowSeconds: number
}

export function createSignInLimiter(
  limits: SignInLimits,
  store: Pick<TokenStore, 'countRequests'>,
  now: () => number,
): SignInLimiter {
  const windowMs = limits.windowSeconds * 1000

  return {
    async counted(username, source, attempt) {
      const startedAtMs = now()
      const windowEndMs = (Math.floor(startedAtMs / windowMs) + 1) * windowMs
      const ofPair = { key: `sign-in ${JSON.stringify([username, source])}`, windowEndMs }
      const ofSource = { key: `sign-in ${source}`, windowEndMs }
      const [pair = 0, all = 0] = await store.countRequests([
        { ...ofPair, requests: 1 },
        { ...ofSource, requests: 1 },
      ])
      const takeBack = async (requests: number) => {
        const taken = [
          { ...ofPair, requests: -requests },
          { ...ofSource, requests: -1 },
        ]
        await store.countRequests(taken).catch(() => undefined) // a count that stays too high does not undo the attempt
      }
      let answer: Awaited<ReturnType<typeof attempt>>
      try {
        if (pair > limits.perAccountAndSource || all > limits.perSource) {
          const retryAfterSeconds = Math.max(1, Math.ceil((windowEndMs - startedAtMs) / 1000))
          throw new ServiceError(ErrorReason.RATE_LIMITED, 'too many failed sign-ins', { retryAfterSeconds })
        }
        answer = await attempt()
      } catch (error) {
        await takeBack(1)
        throw error
      }
      if (answer !== undefined) await takeBack(pair)
      return answer
    },
  }
}

/** Admits everything: RATE_LIMIT=off. */
export const noSignInLimiter: SignInLimiter = {
  counted: (_username, _source, attempt) => attempt(),
}
