// Surveys that stay where they are: what apps are told whatever the provider of a platform does.
import { create, type JsonObject, toBinary } from '@bufbuild/protobuf'
import * as grpc from '@grpc/grpc-js'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { GetSurveyResponseSchema } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import type { SurveyScene, SurveyState } from '../../gen/surveyauth/v1/survey_pb.js'
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

const survey = (id: number, more = {}) => ({ id: BigInt(id), hash: 'abcd', title: `Survey ${id}`, ...more })
const good: Behaviour = owning({ ana: [5, 7, 9].map((id) => survey(id)), ben: [survey(6)] })

const owner = { externalId: 'ana' }

let provider: StartedProvider
let service: Verbs
let ana: Access
let lena: Access

beforeAll(async () => {
  provider = await startSurveyProvider(good)
  service = await openService({ env: { SURVEY_PROVIDER_URL: provider.url } })
  const [app, user] = [await service.createApp(), await service.createUser({ externalId: 'ana' })]
  ana = await service.grantAccess({ app, user })
  lena = await service.grantAccess({ app }) // whom the platform does not know: without an external_id
})
afterAll(async () => {
  await service.backend.close()
  await provider.kill()
})
afterEach(() => {
  Object.assign(provider.behaviour, good)
  provider.calls.length = 0
})

const idsOf = ({ data }: Envelope) => (data.list as { id: number }[]).map(({ id }) => id)

describe('a provider that answers well', () => {
  test('is where lists and surveys come from', async () => {
    const list = await service.surveys(ana, { page: 2, per_page: 2 })
    expect(list.data).toMatchObject({ total: 3, list: [{ id: 9, hash: 'abcd', title: 'Survey 9', state: 0 }] })
    expect((await service.survey(ana, 7)).data).toMatchObject({ id: 7, title: 'Survey 7', scene: '1', state: 0 })
  })

  test('is asked for the owner by both ids, and told nothing of apps and tokens', async () => {
    const { requestId } = await service.survey(ana, 7)
    const [call] = provider.calls
    expect(call?.owner).toMatchObject({ externalId: 'ana', userId: ana.user.userId })
    expect(call?.metadata.getMap()).toMatchObject({ 'x-request-id': requestId })
    for (const secret of [ana.tokens.access_token, ana.app.appid, ana.tokens.openid])
      expect(
        JSON.stringify(provider.calls, (_, value) => (typeof value === 'bigint' ? `${value}` : value)),
      ).not.toContain(secret)
  })

  test('may say NOT_FOUND for the list of an owner whom it does not know: there are no surveys', async () => {
    expect((await service.surveys(lena)).data).toEqual({ total: 0, list: [] })
    provider.behaviour.listSurveys = () => {
      throw status('NOT_FOUND')
    }
    expect((await service.surveys(lena)).data).toEqual({ total: 0, list: [] })
  })

  test('goes by our user_id for a user without an external_id', async () => {
    const owner = { userId: lena.user.userId }
    provider.behaviour.getSurvey = () => ({ survey: survey(3), owner })
    expect((await service.survey(lena, 3)).data).toMatchObject({ id: 3 })
    provider.behaviour.listSurveys = () => ({ surveys: [{ survey: survey(3), owner }], totalSize: 1n })
    expect(idsOf(await service.surveys(lena))).toEqual([3])
  })

  test('shows a user without an external_id nothing of somebody who has one', async () => {
    const owner = { externalId: 'ana', userId: lena.user.userId }
    provider.behaviour.getSurvey = () => ({ survey: survey(7), owner })
    expectError(await service.survey(lena, 7), 'survey_not_found')
  })

  test('may leave out what an import sets', async () => {
    provider.behaviour.getSurvey = () => ({ survey: { id: 7n, title: 'x' }, owner: { externalId: 'ana' } })
    const { data } = await service.survey(ana, 7)
    expect(data).toMatchObject({ scene: '1', state: 0, createTime: 0, updateTime: 0, started_at: '' })
    expect(data.hash).toMatch(/^[0-9a-f]{4}$/)
  })

  test('may hold members that only this platform has, whatever they are called', async () => {
    const extra = { template_id: 5, id: 1, creator_user_id: 6, constructor: 'x', nothing: null }
    provider.behaviour.getSurvey = () => ({ survey: survey(7, { extra }), owner: { externalId: 'ana' } })
    const { data } = await service.survey(ana, 7)
    expect(data).toMatchObject({ id: 7, template_id: 5, constructor: 'x', nothing: null })
    expect(data.creator_user_id).not.toBe(6)
  })

  test.each([
    ['no kind', withValue()],
    ['the number NaN', withValue(0x11, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f)],
    ['the number Infinity', withValue(0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f)],
    ['a kind that does not exist', withValue(0x78, 1)],
  ])('may hold a member of %s, which no process stumbles over', async (_, bytes) => {
    provider.behaviour.getSurvey = () => bytes
    const answer = await service.survey(ana, 7)
    if (answer.code !== 'OK') expectError(answer, 'remote_server_error')
  })

  test.each(['externalId', 'userId'] as const)('may name the owner by %s alone', async (id) => {
    const ids = { externalId: 'ana', userId: ana.user.userId }
    provider.behaviour.getSurvey = () => ({ survey: survey(7), owner: { [id]: ids[id] } })
    expect((await service.survey(ana, 7)).data).toMatchObject({ id: 7 })
  })

  test('is not asked when the token is no good', async () => {
    expectError(await service.survey(ana, 7, { access_token: 'sat_nonsense' }), 'invalid_token')
    expectError(await service.surveys(ana, { openid: lena.tokens.openid }), 'claim_error')
    expect(provider.calls).toEqual([])
  })
})

/** A foreign survey, a missing one and one that was not asked for: one answer. */
const unowned: readonly (readonly [string, Behaviour['getSurvey']])[] = [
  ['NOT_FOUND', () => Promise.reject(status('NOT_FOUND'))],
  ["another owner's survey", ({ surveyId }) => ({ survey: survey(Number(surveyId)), owner: { externalId: 'ben' } })],
  [
    'our user_id, but another external_id',
    () => ({ survey: survey(7), owner: { externalId: 'ben', userId: ana.user.userId } }),
  ],
  [
    'our external_id, but another user_id',
    () => ({ survey: survey(7), owner: { externalId: 'ana', userId: lena.user.userId } }),
  ],
  ['no owner', () => ({ survey: survey(7) })],
  ['an owner without ids', () => ({ survey: survey(7), owner: {} })],
  ['another survey of the owner', () => ({ survey: survey(9), owner: { externalId: 'ana' } })],
  ['a survey without an id', () => ({ survey: survey(0), owner: { externalId: 'ana' } })],
]

test.each(unowned)('a survey is not found when the provider answers with %s', async (_, getSurvey) => {
  provider.behaviour.getSurvey = getSurvey
  const answer = await service.survey(ana, 7)
  expectError(answer, 'survey_not_found')
  expect(answer.message).toBe((await service.survey(ana, 1_000_000)).message)
})

const huge = survey(7, {
  pages: Array.from({ length: 300 }, () => ({ questions: [{ type: 'text', title: 'x'.repeat(15_000) }] })),
})
const unfinished = toBinary(
  GetSurveyResponseSchema,
  create(GetSurveyResponseSchema, { survey: survey(7), owner }),
).subarray(0, 9)

/** Objects in objects. */
function nested(depth: number): JsonObject {
  return depth === 0 ? {} : { a: nested(depth - 1) }
}

/** A survey with a member `a` of these bytes, a google.protobuf.Value: parts of a message that come twice are merged. */
function withValue(...value: readonly number[]): Buffer {
  const whole = toBinary(GetSurveyResponseSchema, create(GetSurveyResponseSchema, { survey: survey(7), owner }))
  const wrap = (tag: number, bytes: readonly number[]) => [tag, bytes.length, ...bytes]
  const entry = [0x0a, 1, 0x61, ...wrap(0x12, value)]
  return Buffer.concat([whole, Buffer.from(wrap(0x0a, wrap(0x6a, wrap(0x0a, entry))))])
}

/** A survey whose `extra` holds lists in lists, 100,000 deep: google.protobuf.Value.list_value, which is field 6, of values. */
function deepBytes(): Buffer {
  let bytes = Buffer.alloc(0)
  const parts: Buffer[] = []
  let length = 0
  const tagged = (tag: number) => {
    const head = Buffer.from([tag, ...varint(length)])
    parts.push(head)
    length += head.length
  }
  for (let depth = 0; depth < 100_000; depth += 1) {
    tagged(0x0a) // ListValue.values
    tagged(0x32) // Value.list_value
  }
  tagged(0x12) // the value of a map entry
  const key = Buffer.from([0x0a, 1, 0x61])
  parts.push(key)
  length += key.length
  tagged(0x0a) // Struct.fields
  tagged(0x6a) // Survey.extra
  tagged(0x0a) // GetSurveyResponse.survey
  bytes = Buffer.concat(parts.reverse())
  return bytes
}

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))]
}

const OTHER_CODES = Object.keys(grpc.status).filter(
  (name) => Number.isNaN(Number(name)) && !['OK', 'NOT_FOUND'].includes(name),
) as (keyof typeof grpc.status)[]

const failing: readonly (readonly [string, Behaviour['getSurvey']])[] = [
  ...OTHER_CODES.map((code) => [code, () => Promise.reject(status(code))] as const),
  ['a status that does not exist', () => Promise.reject(Object.assign(new Error('x'), { code: 77 }))],
  ['nothing', never],
  ['an empty message', () => ({})],
  ['an owner and no survey', () => ({ owner })],
  ['more than 4 MiB', () => ({ survey: huge, owner })],
  ['what is no protobuf', () => Buffer.from('<html>')],
  ['half a message', () => Buffer.from(unfinished)],
  ['a title beyond our bounds', () => ({ survey: survey(7, { title: 'x'.repeat(1001) }), owner })],
  ['a NUL in a text', () => ({ survey: survey(7, { prefix: 'a\0b' }), owner })],
  ['a state that does not exist', () => ({ survey: survey(7, { state: 77 as SurveyState }), owner })],
  ['a scene that does not exist', () => ({ survey: survey(7, { scene: 77 as SurveyScene }), owner })],
  [
    'a type of question that does not exist',
    () => ({ survey: survey(7, { pages: [{ questions: [{ type: 'hologram' }] }] }), owner }),
  ],
  ['members nested more than 20 deep', () => ({ survey: survey(7, { extra: nested(21) }), owner })],
  ['members nested so deep that decoding them fails', () => deepBytes()],
  [
    'more than 200 other members',
    () => ({
      survey: survey(7, { extra: Object.fromEntries(Array.from({ length: 201 }, (_, at) => [`m${at}`, at])) }),
      owner,
    }),
  ],
  ['a member with a name beyond our bounds', () => ({ survey: survey(7, { extra: { ['x'.repeat(129)]: 1 } }), owner })],
  ['a time beyond the year 9999', () => ({ survey: survey(7, { endTime: { seconds: 1n << 60n } }), owner })],
  [
    'an end before its start',
    () => ({ survey: survey(7, { startTime: { seconds: 9n }, endTime: { seconds: 8n } }), owner }),
  ],
]

/** So that no failure of another test counts for the breaker. */
const succeed = async () => {
  Object.assign(provider.behaviour, good)
  expect((await service.survey(ana, 7)).code).toBe('OK')
}

test.each(failing)(
  'an app that reads a survey is told to retry when the provider answers with %s',
  async (_, getSurvey) => {
    await succeed()
    provider.behaviour.getSurvey = getSurvey
    const startedAt = performance.now()
    const answer = await service.survey(ana, 7)
    expectError(answer, 'remote_server_error')
    expect(answer.headers.get('retry-after')).toBe('1')
    expect(performance.now() - startedAt).toBeLessThan(2_500)
    await succeed()
  },
)

const item = (id: number, more = {}) => ({ survey: survey(id, more), owner })
const badLists: readonly (readonly [string, Behaviour['listSurveys']])[] = [
  ['UNAUTHENTICATED', () => Promise.reject(status('UNAUTHENTICATED'))],
  ['PERMISSION_DENIED', () => Promise.reject(status('PERMISSION_DENIED'))],
  ['nothing', never],
  [
    "another owner's survey among others",
    () => ({ surveys: [item(5), { ...item(6), owner: { externalId: 'ben' } }], totalSize: 2n }),
  ],
  ['a survey without an owner', () => ({ surveys: [{ survey: survey(5) }], totalSize: 1n })],
  ['an item without a survey', () => ({ surveys: [{ owner }], totalSize: 1n })],
  ['ids that do not ascend', () => ({ surveys: [item(7), item(5)], totalSize: 2n })],
  ['an id twice', () => ({ surveys: [item(5), item(5)], totalSize: 2n })],
  ['an id of 0', () => ({ surveys: [item(0)], totalSize: 1n })],
  ['a negative id', () => ({ surveys: [item(-5)], totalSize: 1n })],
  ['an id beyond 2^53', () => ({ surveys: [{ owner, survey: { ...survey(1), id: 1n << 53n } }], totalSize: 1n })],
  ['more than was asked for', () => ({ surveys: [1, 2, 3].map((id) => item(id)), totalSize: 3n })],
  ['a negative total', () => ({ totalSize: -1n })],
  ['a state that does not exist', () => ({ surveys: [item(5, { state: 9 as SurveyState })], totalSize: 1n })],
  ['a title beyond our bounds', () => ({ surveys: [item(5, { title: 'x'.repeat(1001) })], totalSize: 1n })],
]

test.each(badLists)(
  'an app that lists surveys is told to retry when the provider answers with %s',
  async (_, listSurveys) => {
    await succeed()
    provider.behaviour.listSurveys = listSurveys
    expectError(await service.surveys(ana, { per_page: 2 }), 'remote_server_error')
    await succeed()
  },
)

test('a total below what is listed is corrected: a platform may count at another moment', async () => {
  provider.behaviour.listSurveys = () => ({ surveys: [item(7), item(9)], totalSize: 1n })
  expect((await service.surveys(ana, { page: 2, per_page: 2 })).data).toMatchObject({ total: 4 })
  provider.behaviour.listSurveys = () => ({ totalSize: 1n << 50n })
  expect((await service.surveys(ana)).data).toMatchObject({ total: 2 ** 31 - 1 })
})

test('a call that fails as UNAVAILABLE is made once more, and no other', async () => {
  const failOnce = (code: keyof typeof grpc.status): Behaviour['getSurvey'] => {
    let calls = 0
    return (request) => {
      calls += 1
      if (calls === 1) throw status(code)
      return good.getSurvey(request)
    }
  }
  provider.behaviour.getSurvey = failOnce('UNAVAILABLE')
  expect((await service.survey(ana, 7)).code).toBe('OK')
  provider.behaviour.getSurvey = failOnce('INTERNAL')
  expectError(await service.survey(ana, 7), 'remote_server_error')
  expect(provider.calls.length).toBe(3)
})

test('a violation of ownership is counted and logged by that name', async () => {
  provider.behaviour.getSurvey = () => ({ survey: survey(7), owner: { externalId: 'ben' } })
  expectError(await service.survey(ana, 7), 'survey_not_found')
  expect(service.backend.log()).toContain('provider_ownership_violation')
})

test('surveys are imported, deleted and exported where they are', async () => {
  const { survey } = service.backend
  for (const refused of [
    survey.importSurveys({ ownerUserId: ana.user.userId, surveys: [{ title: 'x' }] }),
    survey.deleteSurveys({ surveyIds: [1n] }),
    survey.exportSurveys({}),
  ]) {
    await expect(refused).rejects.toThrow(/failed_precondition.*SURVEY_PROVIDER_URL/)
  }
  expect(await survey.listSurveyEvents({})).toMatchObject({ events: [] })
})
