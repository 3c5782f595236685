import type { MessageInitShape } from '@bufbuild/protobuf'
import type {
  RevalidateSurveysRequest,
  RevalidateSurveysResponseSchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import type { SurveyDeps } from './deps.js'
import { fingerprintOf, readValidator } from './validators.js'
import { endedOf } from './verify.js'

/** Which answers about surveys no longer hold; of the others each counts as a use of its grant. */
export function revalidateSurveys(deps: SurveyDeps) {
  return async (
    request: RevalidateSurveysRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof RevalidateSurveysResponseSchema>> => {
    const answered = request.validators.map(readValidator)
    const tokens = answered.map(({ token }) => token)
    const asked = answered.map(({ find }) => find(deps.store))
    const [ended, ...found] = await Promise.all([endedOf(deps, tokens, call), ...asked])
    const changed = answered.flatMap(({ fingerprint }, at) => {
      const now = found[at]
      return ended.has(at) || !now || fingerprintOf(now) !== fingerprint ? [at] : []
    })
    return { changed }
  }
}
