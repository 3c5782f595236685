// SurveyProvider over our own store: what a platform implements, served by us too. Our store knows owners by `user_id` alone.
import type { MessageInitShape } from '@bufbuild/protobuf'
import {
  type OwnedSurveySummarySchema,
  type Owner,
  ProviderCapability,
  type SurveyProvider,
} from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { pageOf } from './list-answers.js'
import { storedAnswers, toSummary, toSurvey } from './stored-surveys.js'

/** `version`: of this program. */
export function createProviderHandlers(
  { store }: Pick<SurveyDeps, 'store'>,
  version: string,
): Handlers<typeof SurveyProvider> {
  const answers = storedAnswers(store)
  return {
    getProviderInfo: async () => ({ name: 'survey-auth', version, capabilities: [ProviderCapability.ANSWERS] }),
    async listSurveys({ owner, offset, limit }) {
      const userId = owner?.userId ?? ''
      if (userId === '') return {} // our store's word for nobody
      const { rows, total } = await store.listSurveys(userId, { offset: Number(offset), limit })
      const surveys = rows.map((row): MessageInitShape<typeof OwnedSurveySummarySchema> => {
        return { survey: toSummary(row), owner: { userId } }
      })
      return { surveys, totalSize: BigInt(total) }
    },
    async getSurvey({ owner, surveyId }) {
      const row = await store.findSurvey(Number(surveyId))
      if (!row || row.ownerUserId !== owner?.userId) throw missing('survey')
      return { survey: toSurvey(row), owner: { userId: row.ownerUserId } }
    },
    async listAnswers({ owner, surveyId, limit, afterAnswerId, since, until }, call) {
      const page = pageOf({ pageSize: limit, afterAnswerId, since, until })
      const found = await answers.listAnswers(ownerIn(owner), Number(surveyId), page, call)
      if (!found) throw missing('survey')
      return { answers: [...found.answers], totalSize: BigInt(found.total), owner: ownerIn(owner) }
    },
    async getAnswer({ owner, surveyId, answerId }, call) {
      const answer = await answers.findAnswer(ownerIn(owner), Number(surveyId), Number(answerId), call)
      if (!answer) throw missing('answer')
      return { answer, owner: ownerIn(owner) }
    },
  }
}

function ownerIn(owner: Owner | undefined) {
  const userId = owner?.userId ?? ''
  if (userId === '') throw missing('survey') // our store's word for nobody
  return { userId, externalId: '' }
}

function missing(what: 'survey' | 'answer'): ServiceError {
  return new ServiceError(ErrorReason.SURVEY_NOT_FOUND, `there is no such ${what} of this owner`)
}
