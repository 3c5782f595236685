// The surveys of a platform, read where they are. Of all that a provider can do, only NOT_FOUND and another's survey say anything
// about a survey; the rest is the provider's failure, and never one of the app's credentials.
import { create } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import {
  GetSurveyRequestSchema,
  ListSurveysRequestSchema,
  SurveyProvider,
} from '../../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../../rpc/service-error.js'
import type { Surveys } from '../surveys.js'
import { TRIED_EVERY_MS } from './breaker.js'
import type { ProviderClient } from './provider-client.js'
import { ProviderFailure } from './provider-failure.js'
import { surveyIn, surveysIn } from './received.js'

export function providedSurveys(provider: Pick<ProviderClient, 'ask'>): Surveys {
  const { listSurveys, getSurvey } = SurveyProvider.method
  return {
    async listSurveys({ userId, externalId }, { offset, limit }, call) {
      const owner = { userId, externalId }
      const request = create(ListSurveysRequestSchema, { owner, offset: BigInt(offset), limit })
      const found = provider.ask(listSurveys, request, call, (answer) => surveysIn(request, answer))
      return (await unless([Code.NotFound], found)) ?? { surveys: [], total: 0 }
    },
    findSurvey({ userId, externalId }, surveyId, call) {
      const owner = { userId, externalId }
      const request = create(GetSurveyRequestSchema, { owner, surveyId: BigInt(surveyId) })
      const found = provider.ask(getSurvey, request, call, (answer) => surveyIn(request, answer))
      return unless([Code.NotFound, 'ownership_violation'], found)
    },
  }
}

/** undefined when it fails with one of these outcomes. @throws ServiceError UNAVAILABLE when it fails otherwise */
async function unless<T>(outcomes: readonly ProviderFailure['outcome'][], answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error
    if (outcomes.includes(error.outcome)) return undefined
    const retryAfterSeconds = error.outcome === 'not_asked' ? TRIED_EVERY_MS / 1000 : 1
    throw new ServiceError(ErrorReason.UNAVAILABLE, 'the survey provider failed', { retryAfterSeconds, cause: error })
  }
}
