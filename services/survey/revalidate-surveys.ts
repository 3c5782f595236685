import type { MessageInitShape } from '@bufbuild/protobuf'
import type {
  RevalidateSurveysRequest,
  RevalidateSurveysResponseSchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { foundOfEach } from '../store/found-of-each.js'
import type { SurveyDeps } from './deps.js'
import { fingerprintOf, NO_VALIDATOR, readValidator } from './validators.js'
import { revalidateTokens } from './verify.js'

/** A lookup that takes longer, such as a list of a hundred thousand surveys, is left to the request that needs it. */
const PATIENCE_MS = 250

/** Which answers about surveys no longer hold; each of the others counts as a use of its grant. */
export function revalidateSurveys(deps: SurveyDeps) {
  const { leases } = deps
  return async (
    { validators, wantsLeaseTerms }: RevalidateSurveysRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof RevalidateSurveysResponseSchema>> => {
    const state = leases?.state ?? 0
    const answered = validators.map(readValidator)
    const tokens = { validators: answered.map(({ token }) => token), wantsLeaseTerms }
    const ofTokens = await revalidateTokens(deps, tokens, call)
    const ended = new Set(ofTokens.changed)
    const asked = answered.map((validator, at) => (ended.has(at) ? NO_VALIDATOR : validator))
    const found = await foundOfEach(
      asked.map(({ find }) => find(deps.store)),
      PATIENCE_MS,
    )
    const changed = asked.flatMap(({ fingerprint }, at) => {
      const now = found[at]
      return now && fingerprintOf(now) === fingerprint ? [] : [at]
    })
    const { holdsMs, runs, states, stripes } = ofTokens
    if (holdsMs === 0 || !leases) return { changed }
    return { changed, holdsMs, runs: [...runs, leases.run], states: [...states, BigInt(state)], stripes }
  }
}
