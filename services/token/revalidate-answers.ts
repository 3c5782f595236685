import type { MessageInitShape } from '@bufbuild/protobuf'
import type {
  RevalidateAnswersRequest,
  RevalidateAnswersResponseSchema,
} from '../../gen/surveyauth/v1/token_service_pb.js'
import { stripeOf } from '../answers/stripes.js'
import { isGood, used } from './access-token.js'
import type { TokenDeps } from './deps.js'
import { MAX_HELD_MS } from './store/token-store.js'
import { fingerprintOf, readValidator } from './validators.js'

/** Which answers about access tokens no longer hold; each of the others counts as a use of its grant. */
export function revalidateAnswers(deps: TokenDeps) {
  const { leases } = deps
  return async (
    request: RevalidateAnswersRequest,
  ): Promise<MessageInitShape<typeof RevalidateAnswersResponseSchema>> => {
    const state = leases?.state ?? 0
    const answered = request.validators.map(readValidator)
    const tokens = await deps.store.findAccessTokens(answered.map(({ token }) => token))
    const now = deps.now()
    const changed: number[] = []
    let endsAtMs = now + MAX_HELD_MS
    answered.forEach(({ fingerprint }, at) => {
      const token = tokens[at]
      if (token && isGood(token, now) && fingerprintOf(token) === fingerprint) {
        used(deps, token, now)
        endsAtMs = Math.min(endsAtMs, token.expiresAtMs)
      } else changed.push(at)
    })
    deps.onRevalidated?.(answered.length - changed.length)
    if (!request.wantsLeaseTerms || !leases) return { changed }
    const stripes = tokens.map((token) => (token ? stripeOf(token.grantId) : 0))
    return { changed, holdsMs: Math.floor(endsAtMs - now), runs: [leases.run], states: [BigInt(state)], stripes }
  }
}
