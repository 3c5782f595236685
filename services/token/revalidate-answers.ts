import type { MessageInitShape } from '@bufbuild/protobuf'
import type {
  RevalidateAnswersRequest,
  RevalidateAnswersResponseSchema,
} from '../../gen/surveyauth/v1/token_service_pb.js'
import { isGood, used } from './access-token.js'
import type { TokenDeps } from './deps.js'
import { fingerprintOf, readValidator } from './validators.js'

/** Which answers about access tokens no longer hold; of the others each counts as a use of its grant. */
export function revalidateAnswers(deps: TokenDeps) {
  return async (
    request: RevalidateAnswersRequest,
  ): Promise<MessageInitShape<typeof RevalidateAnswersResponseSchema>> => {
    const answered = request.validators.map(readValidator)
    const tokens = await deps.store.findAccessTokens(answered.map(({ token }) => token))
    const now = deps.now()
    const changed: number[] = []
    answered.forEach(({ fingerprint }, at) => {
      const token = tokens[at]
      if (token && isGood(token, now) && fingerprintOf(token) === fingerprint) used(deps, token, now)
      else changed.push(at)
    })
    deps.onRevalidated?.(answered.length - changed.length)
    return { changed }
  }
}
