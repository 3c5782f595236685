// Answers that stay where they are: what apps are told whatever the provider of a platform does.
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { ProviderCapability } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type Envelope, expectError } from '../harness/envelope.js'
import {
  type Behaviour,
  never,
  owning,
  type StartedProvider,
  startSurveyProvider,
  status,
} from '../harness/survey-provider.js'
import type { Access, Verbs } from '../harness/verbs.js'
import { openService } from '../harness.js'

const owner = { externalId: 'ana' }
const START = 1_767_225_600n
const all = Array.from({ length: 7 }, (_, at) => answered(at + 1))

function answered(id: number, more: object = {}) {
  const questions = [{ id: 'q-1', type: 'text', text: `很好 ${id}` }]
  return {
    answerId: BigInt(id),
    surveyId: 7n,
    respondentId: `person-${id % 2}`,
    endTime: { seconds: START + BigInt(id) },
    pages: [{ id: 'p-1', questions }],
    ...more,
  }
}

const good: Behaviour = {
  ...owning({ ana: [{ id: 7n, title: 'x' }] }),
  getProviderInfo: () => ({ name: 'ACME Surveys', capabilities: [ProviderCapability.ANSWERS] }),
  listAnswers({ owner: asked, surveyId, afterAnswerId, limit, since, until }) {
    if (asked?.externalId !== 'ana' || surveyId !== 7n) throw status('NOT_FOUND')
    const between = all.filter(({ endTime: { seconds } }) => {
      return (!since || seconds >= since.seconds) && (!until || seconds < until.seconds)
    })
    const answers = between.filter(({ answerId }) => answerId > afterAnswerId).slice(0, limit)
    return { answers, totalSize: BigInt(between.length), owner }
  },
  getAnswer({ owner: asked, surveyId, answerId }) {
    const answer = all.find((one) => one.answerId === answerId)
    if (asked?.externalId !== 'ana' || surveyId !== 7n || !answer) throw status('NOT_FOUND')
    return { answer, owner }
  },
}

let provider: StartedProvider
let service: Verbs
let ana: Access
let other: Access

beforeAll(async () => {
  provider = await startSurveyProvider(good)
  service = await openService({ env: { SURVEY_PROVIDER_URL: provider.url } })
  const user = await service.createUser({ externalId: 'ana' })
  ana = await service.grantAccess({ user, app: await service.createApp({ readsAnswers: true }) })
  other = await service.grantAccess({ user, app: await service.createApp({ readsAnswers: true }) })
  await vi.waitUntil(async () => (await service.answers(ana, 7)).code === 'OK', { timeout: 20_000, interval: 50 })
})
afterAll(async () => {
  await service.backend.close()
  await provider.kill()
})
afterEach(() => {
  Object.assign(provider.behaviour, good)
})

const listIn = ({ data }: Envelope) => data.list as { answer_id: number; respondent_id: number | string }[]
const idsIn = (answer: Envelope) => listIn(answer).map(({ answer_id }) => answer_id)
const one = (access: Access, id: number) => {
  const { app, tokens } = access
  return service.get(`/api/surveys/7/answers/${id}`, { appid: app.appid, access_token: tokens.access_token })
}

describe('a provider with answers', () => {
  test('is where they come from, in pages, between times and one by one', async () => {
    const page = await service.answers(ana, 7, { per_page: 3, last_answer_id: 2 })
    expect(page.data).toMatchObject({ total: 7, last_answer_id: 5 })
    expect(idsIn(page)).toEqual([3, 4, 5])
    const times = { since: Number(START) + 2, until: Number(START) + 4 }
    expect(idsIn(await service.answers(ana, 7, times))).toEqual([2, 3])
    expect(idsIn(await service.answers(ana, 7, { since: Number(START) + 6 }))).toEqual([6, 7])
    expect(await one(ana, 6)).toMatchObject({ code: 'OK', data: { answer_id: 6, survey_id: 7 } })
  })

  test('gives respondents whom each app sees under a number of its own', async () => {
    const seenBy = async (access: Access) => listIn(await service.answers(access, 7)).map((row) => row.respondent_id)
    const [mine, theirs] = [await seenBy(ana), await seenBy(other)]
    expect(new Set(mine).size).toBe(2)
    expect([mine[0], mine[1]]).toEqual([mine[2], mine[3]])
    expect(theirs).not.toEqual(mine)
    expect(JSON.stringify([mine, theirs])).not.toContain('person')
  })

  test('is audited once for each app and survey and hour, though nothing of its surveys is kept here', async () => {
    await service.answers(ana, 7)
    const { events } = await service.backend.survey.listSurveyEvents({})
    const reads = events.filter(({ appid }) => appid === ana.app.appid)
    expect(reads).toMatchObject([{ kind: 'answers.read', surveyId: 7n, ownerUserId: ana.user.userId }])
  })

  test('is not asked without consent', async () => {
    const { app } = await service.grantAccess({ user: ana.user })
    const access = await service.grantAccess({ app, user: ana.user })
    const before = provider.calls.length
    expectError(await service.answers(access, 7), 'answers_not_granted')
    expect(provider.calls.length).toBe(before)
  })
})

const list = (answers: ReturnType<typeof answered>[], more = {}): Behaviour['listAnswers'] => {
  return () => ({ answers, totalSize: BigInt(answers.length), owner, ...more })
}

test.each<[string, Behaviour['listAnswers']]>([
  ['NOT_FOUND', () => Promise.reject(status('NOT_FOUND'))],
  ["another owner's answers", list(all, { owner: { externalId: 'ben' } })],
  ['answers of nobody', list(all, { owner: undefined })],
  ['answers to another survey', list([answered(1, { surveyId: 8n })])],
  ['answers to no survey', list([answered(1, { surveyId: 0n })])],
])('answers are not found when the provider answers with %s', async (_, listAnswers) => {
  provider.behaviour.listAnswers = listAnswers
  expectError(await service.answers(ana, 7), 'survey_not_found')
})

test.each<[string, Behaviour['listAnswers']]>([
  ['UNIMPLEMENTED', () => Promise.reject(status('UNIMPLEMENTED'))],
  ['UNAUTHENTICATED', () => Promise.reject(status('UNAUTHENTICATED'))],
  ['nothing', never],
  ['ids that do not ascend', list([answered(2), answered(1)])],
  ['an id twice', list([answered(2), answered(2)])],
  ['an id of 0', list([answered(0)])],
  ['more than was asked for', list(all.slice(0, 4))],
  ['a negative total', list([], { totalSize: -1n })],
  [
    'a text beyond our bounds',
    list([answered(1, { pages: [{ questions: [{ id: 'q', text: 'x'.repeat(20_001) }] }] })]),
  ],
  [
    'stars that are no number',
    list([answered(1, { pages: [{ questions: [{ id: 'q', type: 'star', text: 'five' }] }] })]),
  ],
  ['a score that is no number', list([answered(1, { score: Number.NaN })])],
  ['an end before its start', list([answered(1, { startTime: { seconds: START + 9n } })])],
])('an app that lists answers is told to retry when the provider answers with %s', async (_, listAnswers) => {
  expect((await service.answers(ana, 7)).code).toBe('OK')
  provider.behaviour.listAnswers = listAnswers
  expectError(await service.answers(ana, 7, { per_page: 3 }), 'remote_server_error')
})

test('answers that were seen are left out of the list that the provider answers with: its fault', async () => {
  provider.behaviour.listAnswers = list([answered(2)])
  expectError(await service.answers(ana, 7, { last_answer_id: 2 }), 'remote_server_error')
})

test.each<[string, 'survey_not_found' | 'remote_server_error', Behaviour['getAnswer']]>([
  ['NOT_FOUND', 'survey_not_found', () => Promise.reject(status('NOT_FOUND'))],
  ["another owner's", 'survey_not_found', () => ({ answer: answered(1), owner: { externalId: 'ben' } })],
  ['another answer', 'survey_not_found', () => ({ answer: answered(2), owner })],
  ['one to another survey', 'survey_not_found', () => ({ answer: answered(1, { surveyId: 8n }), owner })],
  ['none', 'remote_server_error', () => ({ owner })],
  ['a bad one', 'remote_server_error', () => ({ answer: answered(1, { respondentId: 'x'.repeat(129) }), owner })],
  ['INTERNAL', 'remote_server_error', () => Promise.reject(status('INTERNAL'))],
])('one answer that the provider answers with %s is %s', async (_, type, getAnswer) => {
  provider.behaviour.getAnswer = getAnswer
  expectError(await one(ana, 1), type)
})

test('a provider without answers has none to any survey', async () => {
  const without = await startSurveyProvider(owning({ ana: [{ id: 7n, title: 'x' }] }))
  const service = await openService({ env: { SURVEY_PROVIDER_URL: without.url } })
  const user = await service.createUser({ externalId: 'ana' })
  const access = await service.grantAccess({ user, app: await service.createApp({ readsAnswers: true }) })
  expect((await service.survey(access, 7)).code).toBe('OK')
  expectError(await service.answers(access, 7), 'survey_not_found')
  expect(without.calls.map(({ method }) => method)).toEqual(['GetSurvey'])
  await service.backend.close()
  await without.kill()
})
