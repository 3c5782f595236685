// The surveys of a platform, read where they are. Of all that a provider can do, only NOT_FOUND and another's survey say anything
// about a survey; the rest is the provider's failure, and never one of the app's credentials.
import { create } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import {
  GetAnswerRequestSchema,
  GetSurveyRequestSchema,
  ListAnswersRequestSchema,
  ListSurveysRequestSchema,
  SurveyProvider,
} from '../../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../../rpc/service-error.js'
import type { SurveyAnswers, Surveys } from '../surveys.js'
import { TRIED_EVERY_MS } from './breaker.js'
import type { ProviderClient } from './provider-client.js'
import { ProviderFailure } from './provider-failure.js'
import { answerIn, answersIn, surveyIn, surveysIn } from './received.js'

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
      return unless(UNOWNED, found)
    },
  }
}

/** The answers to them. */
export function providedAnswers(provider: Pick<ProviderClient, 'ask'>): SurveyAnswers {
  const { listAnswers, getAnswer } = SurveyProvider.method
  return {
    listAnswers({ userId, externalId }, surveyId, { afterId, limit, interval }, call) {
      const request = create(ListAnswersRequestSchema, {
        owner: { userId, externalId },
        surveyId: BigInt(surveyId),
        afterAnswerId: BigInt(afterId),
        limit,
        ...(interval && { since: timeAt(interval.since), until: timeAt(interval.until) }),
      })
      return unless(
        UNOWNED,
        provider.ask(listAnswers, request, call, (answer) => answersIn(request, answer)),
      )
    },
    findAnswer({ userId, externalId }, surveyId, answerId, call) {
      const owner = { userId, externalId }
      const request = create(GetAnswerRequestSchema, { owner, surveyId: BigInt(surveyId), answerId: BigInt(answerId) })
      return unless(
        UNOWNED,
        provider.ask(getAnswer, request, call, (answer) => answerIn(request, answer)),
      )
    },
  }
}

/** The end of time is the last one that a Timestamp allows. */
function timeAt(seconds: number) {
  return { seconds: BigInt(Math.min(seconds, MAX_SECONDS)) }
}

const MAX_SECONDS = 253_402_300_799

/** What says that the owner has no such survey or answer. */
const UNOWNED = [Code.NotFound, 'ownership_violation'] as const

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
