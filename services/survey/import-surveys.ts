import { type MessageInitShape, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { type Survey, SurveyScene, SurveySchema, SurveyState } from '../../gen/surveyauth/v1/survey_pb.js'
import type { ImportSurveysRequest, ImportSurveysResponseSchema } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causeOf } from './cause.js'
import { contradictionIn } from './contradictions.js'
import type { SurveyDeps } from './deps.js'
import type { SurveyDraft } from './store/survey-store.js'
import { toSummary } from './stored-surveys.js'

/** Of one survey as stored. A request of 4 MiB has room for one of this size, or up to 1,000 of that much in all. */
export const MAX_DOCUMENT_BYTES = 4_000_000

/** Stores surveys of one user, all or none. */
export function importSurveys(deps: SurveyDeps) {
  return async (
    request: ImportSurveysRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof ImportSurveysResponseSchema>> => {
    for (const [at, survey] of request.surveys.entries()) {
      const contradiction = contradictionIn(survey)
      if (contradiction !== undefined)
        throw new ServiceError(ErrorReason.INVALID_ARGUMENT, `surveys[${at}]: ${contradiction}`)
    }
    const now = deps.now()
    const drafts = request.surveys.map((survey) => toDraft(survey, now))
    const refused = findRefused(drafts)
    if (refused) throw new ServiceError(ErrorReason.INVALID_ARGUMENT, `surveys[${refused.at}]: ${refused.because}`)
    const result = await deps.store.putSurveys(request.ownerUserId, drafts, now, causeOf(call))
    if (result.kind === 'id_taken') {
      throw new ServiceError(ErrorReason.ALREADY_EXISTS, `survey ${result.surveyId} belongs to another user`)
    }
    return { surveys: result.rows.map(toSummary) }
  }
}

/** The first draft that no owner can store, or not together with those before it; undefined if there is none. */
export function findRefused(
  drafts: readonly SurveyDraft[],
): { readonly at: number; readonly because: string } | undefined {
  const seen = new Set<number>()
  for (const [at, { surveyId, document }] of drafts.entries()) {
    if (document.length > MAX_DOCUMENT_BYTES) return { at, because: `at most ${MAX_DOCUMENT_BYTES} bytes encoded` }
    if (seen.has(surveyId)) return { at, because: `an earlier survey has the id ${surveyId}` }
    if (surveyId !== 0) seen.add(surveyId)
  }
  return undefined
}

/** The survey as it will be stored. */
export function toDraft(survey: Survey, now: number): SurveyDraft {
  const toTheSecond = timestampFromMs(Math.floor(now / 1000) * 1000)
  const document: Survey = {
    ...survey,
    id: 0n,
    hash: '',
    scene: survey.scene || SurveyScene.SURVEY,
    state: survey.state || SurveyState.DRAFT,
    createTime: survey.createTime ?? toTheSecond,
    updateTime: survey.updateTime ?? toTheSecond,
  }
  return {
    surveyId: Number(survey.id),
    hash: survey.hash,
    title: survey.title,
    state: document.state,
    document: toBinary(SurveySchema, document),
  }
}
