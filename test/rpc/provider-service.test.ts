// SurveyProvider as our own store answers it.
import { randomBytes } from 'node:crypto'
import { Code, ConnectError } from '@connectrpc/connect'
import { beforeAll, describe, expect, test } from 'vitest'
import { ProviderCapability, SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { SurveyState } from '../../gen/surveyauth/v1/survey_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, createDirectDoor } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { createProviderHandlers } from '../../services/survey/provider-service.js'
import { createReadRecorder } from '../../services/survey/read-recorder.js'
import { createRespondents } from '../../services/survey/respondents.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { createSurveyHandlers } from '../../services/survey/survey-service.js'

const store = openSqliteSurveyStore({ file: ':memory:' })
const dispatcher = new Dispatcher({ mayCall, onCall: () => {}, onUnexpected: () => {} })
const token = clientOf(TokenService, createDirectDoor(dispatcher, 'survey'))
dispatcher
  .register(
    SurveyService,
    createSurveyHandlers({
      store,
      token,
      respondents: createRespondents(store, randomBytes),
      reads: createReadRecorder(store),
      now: Date.now,
    }),
  )
  .register(SurveyProvider, createProviderHandlers({ store }, '1.2.3'))
const provider = clientOf(SurveyProvider, createDirectDoor(dispatcher, 'survey'))
const survey = clientOf(SurveyService, createDirectDoor(dispatcher, 'operator'))

beforeAll(async () => {
  const titled = (ids: readonly number[]) => ids.map((id) => ({ id: BigInt(id), title: `No. ${id}` }))
  await survey.importSurveys({ ownerUserId: 'user_ann', surveys: titled([5, 3, 9, 7]) })
  await survey.importSurveys({ ownerUserId: 'user_bob', surveys: titled([4]) })
  const answers = [1, 2, 3, 4].map((at) => ({ respondentId: `r-${at}`, endTime: { seconds: BigInt(at) * 100n } }))
  for (const surveyId of [5n, 9n]) await survey.importAnswers({ surveyId, answers })
  await survey.deleteSurveys({ surveyIds: [9n] })
  return () => store.close()
})

const ann = { userId: 'user_ann', externalId: 'ann@platform' }

async function codeOf(answer: Promise<unknown>): Promise<Code | undefined> {
  return answer.then(
    () => undefined,
    (error: unknown) => ConnectError.from(error).code,
  )
}

describe('our own provider', () => {
  test('says what it is, and that it serves answers', async () => {
    expect(await provider.getProviderInfo({})).toMatchObject({
      name: 'survey-auth',
      version: '1.2.3',
      capabilities: [ProviderCapability.ANSWERS],
    })
  })

  test('lists what an owner has, ascending and in parts, each with its owner', async () => {
    const part = async (offset: number, limit: number) => {
      const { surveys, totalSize } = await provider.listSurveys({ owner: ann, offset: BigInt(offset), limit })
      return { ids: surveys.map((one) => Number(one.survey?.id)), totalSize, owners: surveys.map((one) => one.owner) }
    }
    const owner = { userId: 'user_ann', externalId: '' }
    expect(await part(0, 2)).toMatchObject({ ids: [3, 5], totalSize: 3n, owners: [owner, owner] })
    expect(await part(2, 2)).toMatchObject({ ids: [7], totalSize: 3n })
    expect(await part(3, 100)).toMatchObject({ ids: [], totalSize: 3n })
  })

  test('answers a survey in full, with its owner', async () => {
    const { survey, owner } = await provider.getSurvey({ owner: ann, surveyId: 5n })
    expect(survey).toMatchObject({ id: 5n, title: 'No. 5', state: SurveyState.DRAFT })
    expect(owner).toMatchObject({ userId: 'user_ann', externalId: '' })
  })

  test.each([
    ['of somebody else', ann, 4n],
    ['that was deleted', ann, 9n],
    ['that never was', ann, 1000n],
    ['of an owner known by external_id alone', { externalId: 'ann@platform' }, 5n],
    ['of nobody', {}, 9n],
  ])('does not find a survey %s', async (_, owner, surveyId) => {
    expect(await codeOf(provider.getSurvey({ owner, surveyId }))).toBe(Code.NotFound)
  })

  test.each([
    ['an owner it does not know', { userId: 'user_eve' }],
    ['an owner known by external_id alone', { externalId: 'ann@platform' }],
    ['nobody, to whom deleted surveys belong', {}],
  ])('has no surveys of %s', async (_, owner) => {
    expect(await provider.listSurveys({ owner, limit: 100 })).toMatchObject({ surveys: [], totalSize: 0n })
  })

  test('refuses what is out of bounds', async () => {
    expect(await codeOf(provider.listSurveys({ limit: 1 }))).toBe(Code.InvalidArgument)
    expect(await codeOf(provider.listSurveys({ owner: ann, limit: 0 }))).toBe(Code.InvalidArgument)
    expect(await codeOf(provider.listSurveys({ owner: ann, limit: 101 }))).toBe(Code.InvalidArgument)
    expect(await codeOf(provider.getSurvey({ owner: ann }))).toBe(Code.InvalidArgument)
  })

  test('lists the answers to a survey above an id, with the owner of the survey and ids of respondents as they are stored', async () => {
    const list = async (request: object) => {
      const found = await provider.listAnswers({ owner: ann, surveyId: 5n, limit: 1000, ...request })
      const ids = found.answers.map(({ answerId }) => Number(answerId))
      return { ids, total: Number(found.totalSize), owner: found.owner?.userId, first: found.answers[0]?.respondentId }
    }
    const whole = { total: 4, owner: 'user_ann' }
    expect(await list({})).toEqual({ ids: [1, 2, 3, 4], first: 'r-1', ...whole })
    expect(await list({ afterAnswerId: 1n, limit: 2 })).toEqual({ ids: [2, 3], first: 'r-2', ...whole })
    expect(await list({ afterAnswerId: 4n })).toEqual({ ids: [], first: undefined, ...whole })
    const [since, until] = [{ seconds: 200n }, { seconds: 400n }]
    expect(await list({ since, until })).toEqual({ ids: [2, 3], first: 'r-2', total: 2, owner: 'user_ann' })
  })

  test('answers one answer to a survey', async () => {
    const { answer, owner } = await provider.getAnswer({ owner: ann, surveyId: 5n, answerId: 3n })
    expect(answer).toMatchObject({ answerId: 3n, surveyId: 5n, respondentId: 'r-3' })
    expect(owner).toMatchObject({ userId: 'user_ann', externalId: '' })
  })

  test.each([
    ['of somebody else', { userId: 'user_bob' }, 5n],
    ['that was deleted', ann, 9n],
    ['of an owner known by external_id alone', { externalId: 'ann@platform' }, 5n],
    ['of nobody', {}, 9n],
  ])('does not find answers to a survey %s', async (_, owner, surveyId) => {
    expect(await codeOf(provider.listAnswers({ owner, surveyId, limit: 1 }))).toBe(Code.NotFound)
    expect(await codeOf(provider.getAnswer({ owner, surveyId, answerId: 1n }))).toBe(Code.NotFound)
  })

  test('does not find an answer that is not there', async () => {
    expect(await codeOf(provider.getAnswer({ owner: ann, surveyId: 5n, answerId: 5n }))).toBe(Code.NotFound)
  })
})
