import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { beforeAll, describe, expect, test } from 'vitest'
import { type Answer, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import { expectError } from '../harness/envelope.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import type { Access, TestUser, Verbs } from '../harness/verbs.js'
import { openService } from '../harness.js'

let service: Verbs
let owner: TestUser
/** With consent to answers. */
let access: Access
let surveyId: number
beforeAll(async () => {
  service = await openService()
  owner = await service.createUser()
  access = await service.grantAccess({ user: owner, app: await service.createApp({ readsAnswers: true }) })
  surveyId = await newSurvey()
  await store(
    surveyId,
    Array.from({ length: 45 }, (_, at) => answered({ end: START + at * 600 })),
  )
  return () => service.backend.close()
})

const START = 1_767_225_600

async function newSurvey(user = owner): Promise<number> {
  const [id = 0] = await service.importSurveys(user, [smallSurvey()])
  return id
}

function answered({ end = START, respondent = '', text = '很好' } = {}): Answer {
  const questions = [{ id: 'q-1', type: 'text', text }]
  const endTime = timestampFromMs(end * 1000)
  return create(AnswerSchema, { respondentId: respondent, endTime, pages: [{ id: 'p-1', questions }] })
}

function store(id: number, answers: Answer[]) {
  return service.backend.survey.importAnswers({ surveyId: BigInt(id), answers })
}

interface Listed {
  readonly total: number
  readonly last_answer_id: number
  readonly list: readonly Readonly<Record<string, unknown>>[]
}

async function list(id: number | string, query = {}, by = access): Promise<Listed> {
  const { code, data } = await service.answers(by, id, query)
  expect(code).toBe('OK')
  return data as unknown as Listed
}

const idsIn = ({ list }: Listed) => list.map(({ answer_id }) => answer_id)
const range = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, at) => first + at)

describe('the list of answers', () => {
  test.each([
    { query: {}, first: 1, last: 20 },
    { query: { per_page: 7 }, first: 1, last: 7 },
    { query: { per_page: 7, last_answer_id: 0 }, first: 1, last: 7 },
    { query: { last_answer_id: 30 }, first: 31, last: 45 },
    { query: { last_answer_id: 44, per_page: 1 }, first: 45, last: 45 },
    { query: { per_page: 1_001 }, first: 1, last: 45 },
    { query: { per_page: '9'.repeat(40) }, first: 1, last: 45 },
  ])('of $query holds $first to $last, the total, and the last id that was sent', async ({ query, first, last }) => {
    const page = await list(surveyId, query)
    expect([page.total, page.last_answer_id, idsIn(page)]).toEqual([45, last, range(first, last)])
  })

  test('of more than 1000 holds 1000', async () => {
    const many = await newSurvey()
    for (const count of [1000, 3])
      await store(
        many,
        Array.from({ length: count }, () => answered()),
      )
    const page = await list(many, { per_page: 5000 })
    expect([page.total, page.last_answer_id, page.list.length]).toEqual([1003, 1000, 1000])
    expect(idsIn(await list(many, { per_page: 5000, last_answer_id: 1000 }))).toEqual([1001, 1002, 1003])
  })

  test.each([45, 46, 9_007_199_254_740_991])(
    'after %d is empty, and its last_answer_id is what was sent',
    async (last) => {
      expect(await list(surveyId, { last_answer_id: last })).toEqual({ total: 45, last_answer_id: last, list: [] })
    },
  )

  test('of a survey without answers is empty, and its last_answer_id 0', async () => {
    expect(await list(await newSurvey())).toEqual({ total: 0, last_answer_id: 0, list: [] })
  })

  test.each(['-1', '1.5', 'abc', '1e2', '+1', ' 1', '01', '9007199254740992', '１'])(
    'from a last_answer_id, since or until of %j is refused as invalid_argument',
    async (value) => {
      for (const name of ['last_answer_id', 'since', 'until'])
        expectError(await service.answers(access, surveyId, { [name]: value }), 'invalid_argument')
    },
  )

  test.each(['0', '-1', 'abc', '1.5'])('with a per_page of %j is refused as invalid_argument', async (value) => {
    expectError(await service.answers(access, surveyId, { per_page: value }), 'invalid_argument')
  })

  test('holds what ended from since on and before until, on every page, and counts only that', async () => {
    const query = { since: START + 600, until: START + 10 * 600, per_page: 4 }
    for (const [last, ids] of [
      [0, range(2, 5)],
      [5, range(6, 9)],
      [9, [10]],
      [10, []],
    ] as const) {
      const page = await list(surveyId, { ...query, last_answer_id: last })
      expect([page.total, idsIn(page)]).toEqual([9, ids])
    }
    expect(await list(surveyId, { since: START + 99 * 600 })).toMatchObject({ total: 0, list: [] })
    expect(idsIn(await list(surveyId, { until: START + 1 }))).toEqual([1])
  })

  test('is cut before it is larger than 4 MiB, and goes on from there', async () => {
    const large = await newSurvey()
    const text = '\u0001'.repeat(19_000)
    const question = { id: 'q', type: 'text', text }
    for (let batch = 0; batch < 4; batch += 1) {
      const pages = [{ id: 'p', questions: Array.from({ length: 10 }, () => question) }]
      await store(
        large,
        Array.from({ length: 5 }, () => create(AnswerSchema, { endTime: timestampFromMs(START * 1000), pages })),
      )
    }
    const ids: unknown[] = []
    for (let last = 0, isMore = true; isMore; ) {
      const reply = await fetch(
        `${service.url}/api/surveys/${large}/answers?${new URLSearchParams({
          appid: access.app.appid,
          access_token: access.tokens.access_token,
          per_page: '1000',
          last_answer_id: String(last),
        })}`,
      )
      const body = await reply.text()
      expect(body.length).toBeLessThan(4 * 1024 * 1024)
      const page = JSON.parse(body).data as Listed
      ids.push(...idsIn(page))
      isMore = page.list.length > 0
      last = page.last_answer_id
    }
    expect(ids).toEqual(range(1, 20))
  })
})

describe('an answer', () => {
  test('has exactly the members of decisions 51, in their types', async () => {
    const id = await newSurvey()
    const questions = [
      { id: 'q-1', type: 'radio', options: [{ id: 'o-1', text: '是' }] },
      { id: 'q-2', type: 'star', text: '4' },
      { id: 'q-3', type: 'matrix_radio', groups: [{ id: 'g-1', text: '行', options: [{ id: 'o-2', text: '列' }] }] },
      { id: 'q-4', type: 'text_multiple', subType: 'x', blanks: [{ id: 'b-1', value: '填' }] },
    ]
    const times = { startTime: timestampFromMs(START * 1000), endTime: timestampFromMs((START + 61) * 1000 + 999) }
    await store(id, [
      create(AnswerSchema, { ...times, score: 87.5, pages: [{ id: 'p-1', questions }] }),
      create(AnswerSchema, { endTime: times.endTime }),
    ])
    const nothing = { text: '', options: [], groups: [], blanks: [] }
    const whole = {
      answer_id: 1,
      survey_id: id,
      openid: '',
      respondent_id: 0,
      started_at: '2026-01-01 08:00:00',
      ended_at: '2026-01-01 08:01:01',
      score: 87.5,
      answer: [
        {
          id: 'p-1',
          questions: [
            { id: 'q-1', type: 'radio', sub_type: '', ...nothing, options: [{ id: 'o-1', checked: 1, text: '是' }] },
            { id: 'q-2', type: 'star', sub_type: '', ...nothing, text: '4' },
            {
              id: 'q-3',
              type: 'matrix_radio',
              sub_type: '',
              ...nothing,
              groups: [{ id: 'g-1', text: '行', options: [{ id: 'o-2', checked: 1, text: '列' }] }],
            },
            { id: 'q-4', type: 'text_multiple', sub_type: 'x', ...nothing, blanks: [{ id: 'b-1', value: '填' }] },
          ],
        },
      ],
    }
    const empty = { ...whole, answer_id: 2, started_at: '', score: null, answer: [] }
    const { list: both } = await list(id)
    expect(both).toEqual([whole, empty])
    expect(Object.keys(both[0] ?? {})).toEqual(Object.keys(whole))
    const single = await service.survey(access, `${id}/answers/1`)
    expect([single.code, single.data]).toEqual(['OK', whole])
  })

  test.each(['0', '-1', '1.0', 'x', '9007199254740992'])('of id %s is refused as invalid_argument', async (id) => {
    expectError(await service.survey(access, `${surveyId}/answers/${id}`), 'invalid_argument')
    expectError(await service.answers(access, id), 'invalid_argument')
  })

  test('that is not there, or was deleted, is survey_not_found', async () => {
    expectError(await service.survey(access, `${surveyId}/answers/46`), 'survey_not_found')
    const id = await newSurvey()
    await store(id, [answered(), answered()])
    await service.backend.survey.deleteAnswers({ surveyId: BigInt(id), answerIds: [1n] })
    expectError(await service.survey(access, `${id}/answers/1`), 'survey_not_found')
    expect(await list(id)).toMatchObject({ total: 1, last_answer_id: 2, list: [{ answer_id: 2 }] })
  })
})

describe('answers', () => {
  test("of somebody else's survey, one that never existed and a deleted one are survey_not_found", async () => {
    const other = await service.createUser()
    const [foreign, deleted] = [await newSurvey(other), await newSurvey()]
    for (const id of [foreign, deleted]) await store(id, [answered()])
    await service.backend.survey.deleteSurveys({ surveyIds: [BigInt(deleted)] })
    for (const id of [foreign, deleted, 999_999_999]) {
      expectError(await service.answers(access, id), 'survey_not_found')
      expectError(await service.survey(access, `${id}/answers/1`), 'survey_not_found')
    }
    await service.backend.survey.importSurveys({
      ownerUserId: owner.userId,
      surveys: [{ id: BigInt(deleted), title: 'x' }],
    })
    expect(await list(deleted)).toEqual({ total: 0, last_answer_id: 0, list: [] })
  })

  test('without consent are answers_not_granted, whether or not there is such a survey', async () => {
    const without = await service.grantAccess({ user: owner })
    for (const id of [surveyId, 999_999_999]) {
      expectError(await service.answers(without, id), 'answers_not_granted')
      expectError(await service.survey(without, `${id}/answers/1`), 'answers_not_granted')
    }
    expectError(await service.answers(access, surveyId, { access_token: 'sat_x' }), 'invalid_token')
    expectError(await service.answers(access, surveyId, { openid: 'another' }), 'claim_error')
    expect((await service.answers(access, surveyId, { openid: access.tokens.openid })).code).toBe('OK')
  })

  test('name who gave them by a number that is stable for an app, differs between apps, and is 0 for nobody', async () => {
    const second = await service.grantAccess({ user: owner, app: await service.createApp({ readsAnswers: true }) })
    const ids = [await newSurvey(), await newSurvey()]
    for (const id of ids)
      await store(
        id,
        ['13800000000', 'b', '', '13800000000'].map((respondent) => answered({ respondent })),
      )
    const [first = 0, other = 0] = ids
    const of = async (by: Access, id: number) => (await list(id, {}, by)).list.map((one) => Number(one.respondent_id))
    const [ours, theirs] = [await of(access, first), await of(second, first)]
    expect(await of(access, other)).toEqual(ours)
    for (const seen of [ours, theirs]) {
      expect(seen[0]).toBe(seen[3])
      expect(seen[2]).toBe(0)
      expect(new Set(seen).size).toBe(3)
      for (const number of seen) expect(Number.isSafeInteger(number)).toBe(true)
    }
    expect(ours.filter((number) => number !== 0 && theirs.includes(number))).toEqual([])
    const single = await service.survey(access, `${first}/answers/1`)
    expect(single.data.respondent_id).toBe(ours[0])
    expect(JSON.stringify(await list(first))).not.toContain('13800000000')
  })

  test('that several write at once never appear below one that an app has seen', async () => {
    const id = await newSurvey()
    let areWriting = true
    const reader = async () => {
      const seen: unknown[] = []
      for (let isLast = false; !isLast; ) {
        isLast = !areWriting
        const page = await list(id, { last_answer_id: Number(seen.at(-1) ?? 0), per_page: 7 })
        seen.push(...idsIn(page))
        if (page.list.length > 0) isLast = false
      }
      return seen
    }
    const writer = async () => {
      for (let count = 1; count <= 10; count += 1)
        await store(
          id,
          Array.from({ length: count }, () => answered()),
        )
    }
    const readers = [reader(), reader()]
    await Promise.all([writer(), writer(), writer()])
    areWriting = false
    for (const seen of await Promise.all(readers)) expect(seen).toEqual(range(1, 165))
  })

  test('that an app has read are in the audit trail, once an hour', async () => {
    const id = await newSurvey()
    await store(
      id,
      Array.from({ length: 5 }, () => answered()),
    )
    const events = async () => {
      const found = await service.backend.survey.listSurveyEvents({ surveyId: BigInt(id) })
      return found.events.filter(({ kind }) => kind === 'answers.read')
    }
    await list(id, { last_answer_id: 99 })
    expect(await events(), 'nothing was read').toEqual([])
    for (const last of [0, 2, 4]) await list(id, { last_answer_id: last, per_page: 2 })
    await service.survey(access, `${id}/answers/3`)
    const [event, ...more] = await events()
    expect(more).toEqual([])
    const about = { actor: 'app', actorId: '', appid: access.app.appid, ownerUserId: owner.userId, firstAnswerId: 1n }
    expect(event).toMatchObject(about)
  })
})
