// SurveyProvider over our own store: what a platform implements, served by us too. Our store knows owners by `user_id` alone.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import type { OwnedSurveySummarySchema, SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { toSummary, toSurvey } from './stored-surveys.js'

/** `version`: of this program. */
export function createProviderHandlers(
  { store }: Pick<SurveyDeps, 'store'>,
  version: string,
): Handlers<typeof SurveyProvider> {
  return {
    getProviderInfo: async () => ({ name: 'survey-auth', version }),
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
      if (!row || row.ownerUserId !== owner?.userId) {
        throw new ServiceError(ErrorReason.SURVEY_NOT_FOUND, 'there is no such survey of this owner')
      }
      return { survey: toSurvey(row), owner: { userId: row.ownerUserId } }
    },
    listAnswers: notClaimed,
    getAnswer: notClaimed,
  }
}

async function notClaimed(): Promise<never> {
  throw new ConnectError('answers are not served here: see the capabilities of GetProviderInfo', Code.Unimplemented)
}
