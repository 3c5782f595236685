import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { create } from '@bufbuild/protobuf'
import { TimestampSchema } from '@bufbuild/protobuf/wkt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { SurveySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import { SurveyView } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { expectError } from '../harness/envelope.js'
import {
  everyQuestionType,
  MAX_SURVEY_BYTES,
  QUESTION_TYPES,
  type SurveyJson,
  smallSurvey,
  surveyOf,
} from '../harness/sample-surveys.js'
import type { Access, Verbs } from '../harness/verbs.js'
import { openService, startService } from '../harness.js'

const COUNT = 130

let service: Verbs
let access: Access
/** Access to a user whose surveys no test counts. */
let another: Access
let ids: readonly number[]
beforeAll(async () => {
  service = await openService()
  const user = await service.createUser()
  const states = [0, 2, 3]
  ids = await service.importSurveys(
    user,
    Array.from({ length: COUNT }, (_, at) => smallSurvey(`问卷 ${at}`, states[at % 3])),
  )
  access = await service.grantAccess({ user })
  another = await service.grantAccess()
})
afterAll(() => service.backend.close())

interface Listed {
  readonly total: number
  readonly list: readonly {
    readonly id: number
    readonly hash: string
    readonly title: string
    readonly state: number
  }[]
}

async function list(query: Record<string, string | number> = {}): Promise<Listed> {
  const { code, data } = await service.surveys(access, query)
  expect(code).toBe('OK')
  return data as unknown as Listed
}

describe('the list', () => {
  test('without paging parameters holds the first 20, ascending by id, and the total', async () => {
    const { total, list: rows } = await list()
    expect(total).toBe(COUNT)
    expect(rows.map(({ id }) => id)).toEqual(ids.slice(0, 20))
  })

  test('has exactly id, hash, title and state of each survey', async () => {
    const { list: rows } = await list({ per_page: 3 })
    rows.forEach((row, at) => {
      expect(Object.keys(row)).toEqual(['id', 'hash', 'title', 'state'])
      expect(row).toMatchObject({ id: ids[at], title: `问卷 ${at}`, state: [0, 2, 3][at % 3] })
      expect(row.hash).toMatch(/^[0-9a-f]{4}$/)
    })
  })

  test.each([
    { page: 1, per_page: 50, first: 0, length: 50 },
    { page: 3, per_page: 50, first: 100, length: 30 },
    { page: 2, per_page: 100, first: 100, length: 30 },
    { page: 130, per_page: 1, first: 129, length: 1 },
    { page: 1, per_page: 101, first: 0, length: 100 },
    { page: 1, per_page: 100_000, first: 0, length: 100 },
    { page: 2, per_page: 9_007_199_254_740_991, first: 100, length: 30 },
    { page: 1, per_page: '1'.repeat(33), first: 0, length: 100 },
  ])('page $page of $per_page holds $length from position $first', async ({ page, per_page, first, length }) => {
    const { total, list: rows } = await list({ page, per_page })
    expect(total).toBe(COUNT)
    expect(rows.map(({ id }) => id)).toEqual(ids.slice(first, first + length))
  })

  test.each([
    { page: 8, per_page: 20 },
    { page: 9_007_199_254_740_991, per_page: 100 },
    { page: '9'.repeat(3_000), per_page: '9'.repeat(3_000) },
  ])('page $page of $per_page is past the end: an empty list, and the total', async (query) => {
    expect(await list(query)).toEqual({ total: COUNT, list: [] })
  })

  test('all pages together hold every survey once', async () => {
    const seen: number[] = []
    for (let page = 1; page <= 19; page += 1) seen.push(...(await list({ page, per_page: 7 })).list.map(({ id }) => id))
    expect(seen).toEqual(ids)
  })

  const bad = ['0', '-1', '1.5', 'abc', '1e2', '0x1', '+1', ' 1', '１', 'NaN']
  test.each(bad)('page or per_page %j is refused as invalid_argument', async (value) => {
    expectError(await service.surveys(access, { page: value }), 'invalid_argument')
    expectError(await service.surveys(access, { per_page: value }), 'invalid_argument')
  })

  test('of a user without surveys is empty', async () => {
    const other = await service.grantAccess()
    expect((await service.surveys(other)).data).toEqual({ total: 0, list: [] })
  })

  test("never holds another user's survey", async () => {
    const other = await service.grantAccess()
    const [own] = await service.importSurveys(other.user, [smallSurvey('mine')])
    expect((await service.surveys(other)).data).toMatchObject({ total: 1, list: [{ id: own }] })
    expect((await list()).total).toBe(COUNT)
  })
})

describe('the detail', () => {
  const KEYS = [
    'id',
    'hash',
    'scene',
    'title',
    'prefix',
    'suffix',
    'state',
    'page_count',
    'topic_count',
    'startTime',
    'endTime',
    'started_at',
    'end_at',
    'createTime',
    'updateTime',
    'creator_user_id',
    'pages',
  ]

  async function stored(survey: SurveyJson): Promise<Record<string, unknown>> {
    const [id = 0] = await service.importSurveys(another.user, [survey])
    const { code, data } = await service.survey(another, id)
    expect(code).toBe('OK')
    return data
  }

  test('has exactly the members of decisions 26, in their types', async () => {
    const data = await stored({ ...smallSurvey(), startTime: 1_704_067_200, endTime: 1_735_689_599 })
    expect(Object.keys(data)).toEqual(KEYS)
    for (const key of [
      'id',
      'state',
      'page_count',
      'topic_count',
      'startTime',
      'endTime',
      'createTime',
      'updateTime',
      'creator_user_id',
    ]) {
      expect(Number.isSafeInteger(data[key])).toBe(true)
    }
    expect(data.scene).toBe('1')
    expect(data.started_at).toBe('2024-01-01 08:00:00')
    expect(data.end_at).toBe('2025-01-01 07:59:59')
    expect(data).toMatchObject({ page_count: 1, topic_count: 1, createTime: 1_700_000_000, updateTime: 1_700_000_100 })
  })

  test('has 0 for times that are not set', async () => {
    expect(await stored(smallSurvey())).toMatchObject({ startTime: 0, endTime: 0 })
  })

  test('returns the published record as it was imported, values and types', async () => {
    const { creator_user_id: _, ...published } = JSON.parse(readFileSync('test/harness/published-survey.json', 'utf8'))
    const { creator_user_id: __, ...shown } = await stored(published)
    expect(shown).toEqual(published)
  })

  test('is at the path of published clients too, word for word and by the same rules', async () => {
    const id = ids[0] ?? 0
    const perRequest = { headers: {}, requestId: '' }
    const read = (path: string, query: object = {}) =>
      service.get(path, { appid: access.app.appid, access_token: access.tokens.access_token, ...query })
    for (const [at, query, type] of [
      [id, {}, ''],
      [id, { openid: access.tokens.openid }, ''],
      [id, { openid: 'other' }, 'claim_error'],
      [id, { access_token: 'other' }, 'invalid_token'],
      [987_654_321, {}, 'survey_not_found'],
      ['x', {}, 'invalid_argument'],
    ] as const) {
      const [detail, legacy] = [await read(`/api/surveys/${at}`, query), await read(`/api/surveys/${at}/legacy`, query)]
      expect({ ...legacy, ...perRequest }).toEqual({ ...detail, ...perRequest })
      expect(legacy.type).toBe(type)
    }
    for (const path of [
      '/api/surveys/1/Legacy',
      '/api/surveys/1/legacy/',
      '/api/surveys//legacy',
      '/api/surveys/1/2/legacy',
    ])
      expectError(await read(path), 'no_route')
  })

  test('returns every question type with everything that was imported', async () => {
    const survey = everyQuestionType()
    const data = await stored(survey)
    expect(data.pages).toEqual(survey.pages)
    const [page] = data.pages as (typeof survey)['pages']
    expect(page?.questions.map(({ type }) => type)).toEqual([...QUESTION_TYPES])
    expect(page?.index).toBe('1')
  })

  test('without openid is answered, and with the right openid too', async () => {
    const id = ids[0] ?? 0
    expect((await service.survey(access, id)).code).toBe('OK')
    expect((await service.survey(access, id, { openid: access.tokens.openid })).code).toBe('OK')
    expectError(await service.survey(access, id, { openid: 'other' }), 'claim_error')
  })

  test("of another user's survey gets word for word the answer of a missing one", async () => {
    const other = await service.grantAccess()
    const answers = [await service.survey(other, ids[0] ?? 0), await service.survey(other, 987_654_321)]
    for (const answer of answers) expectError(answer, 'survey_not_found')
    expect(answers[0]?.message).toBe(answers[1]?.message)
  })

  test('names its owner by a number that is stable for an app and differs between apps', async () => {
    const id = ids[0] ?? 0
    const again = await service.grantAccess({ app: access.app, user: access.user })
    const elsewhere = await service.grantAccess({ user: access.user })
    const owner = async (by: Access) => (await service.survey(by, id)).data.creator_user_id
    expect(await owner(again)).toBe(await owner(access))
    expect(await owner(elsewhere)).not.toBe(await owner(access))
    // Apps have stored it: derived in another way, it would look like another owner to them.
    const digest = createHash('sha256').update(access.tokens.openid).digest()
    expect(await owner(access)).toBe(digest.readUIntBE(0, 6))
  })
})

describe('an export', () => {
  test('has fewer surveys per page when they are large, and all of them in all its pages', async () => {
    const own = await startService()
    const user = await own.createUser()
    const large = Array.from({ length: 4 }, () => surveyOf(950_000))
    const ids: number[] = []
    for (let round = 0; round < 3; round += 1) ids.push(...(await own.importSurveys(user, large)))
    const pages: number[][] = []
    let pageToken = ''
    do {
      const page = await own.backend.survey.exportSurveys({ pageToken })
      pages.push(page.surveys.map(({ survey }) => Number(survey?.id)))
      pageToken = page.nextPageToken
    } while (pageToken !== '')
    expect(pages).toEqual([ids.slice(0, 9), ids.slice(9)])
  })

  test('has a hundred surveys per page, or fewer where fewer are asked for, and continues after them', async () => {
    const { survey } = service.backend
    for (const [pageSize, count] of [
      [0, 100],
      [1_000, 100],
      [101, 100],
      [2, 2],
    ] as const) {
      const page = await survey.exportSurveys({ pageSize })
      expect(page.surveys.map((each) => Number(each.survey?.id))).toEqual(ids.slice(0, count))
      const { surveys } = await survey.exportSurveys({ pageSize: 1, pageToken: page.nextPageToken })
      expect(surveys.map((each) => Number(each.survey?.id))).toEqual([ids[count]])
    }
    for (const pageToken of ['another', '0x10', ' 1', '-1', '9007199254740993']) {
      await expect(survey.exportSurveys({ pageToken })).rejects.toThrow('the page token is not valid')
    }
  })

  test('has the id, hash, title and state alone where no more is asked for, a hundred or fewer per page', async () => {
    const { survey } = service.backend
    const full = await survey.exportSurveys({})
    const { surveys, nextPageToken } = await survey.exportSurveys({ view: SurveyView.BASIC })
    expect(nextPageToken).toBe(full.nextPageToken)
    expect(surveys.map(({ ownerUserId, survey }) => [ownerUserId, survey])).toEqual(
      full.surveys.map(({ ownerUserId, survey }) => {
        const { id, hash, title, state } = survey ?? create(SurveySchema)
        return [ownerUserId, create(SurveySchema, { id, hash, title, state })]
      }),
    )
    const ownerUserId = access.user.userId
    const listed: number[] = []
    let pageToken = ''
    do {
      const page = await survey.exportSurveys({ ownerUserId, view: SurveyView.BASIC, pageSize: 26, pageToken })
      listed.push(...page.surveys.map((each) => Number(each.survey?.id)))
      pageToken = page.nextPageToken
    } while (pageToken !== '')
    expect(listed).toEqual(ids)
  })

  test('of one survey holds it, unless it is deleted or of another owner than the one that is asked for', async () => {
    const own = await startService()
    const [ann, bob] = [await own.createUser(), await own.createUser()]
    const [first, second] = (await own.importSurveys(ann, [smallSurvey('a'), smallSurvey('b')])).map(BigInt)
    const titles = async (request: object) => {
      const { surveys, nextPageToken } = await own.backend.survey.exportSurveys(request)
      expect(nextPageToken).toBe('')
      return surveys.map(({ ownerUserId, survey }) => [ownerUserId, survey?.title])
    }
    expect(await titles({ surveyId: second })).toEqual([[ann.userId, 'b']])
    expect(await titles({ surveyId: second, ownerUserId: ann.userId })).toEqual([[ann.userId, 'b']])
    expect(await titles({ surveyId: second, ownerUserId: bob.userId })).toEqual([])
    await own.backend.survey.deleteSurveys({ surveyIds: [first ?? 0n] })
    expect(await titles({ surveyId: first })).toEqual([])
  })

  test('continues after a page of exactly the maximum size', async () => {
    const own = await startService()
    const user = await own.createUser()
    const ids: number[] = []
    for (const bytes of [4_000_000, 4_000_000, 8 * 1024 * 1024 - 8_000_000, 2_000]) {
      ids.push(...(await own.importSurveys(user, [surveyOf(bytes)])))
    }
    const { surveys, nextPageToken } = await own.backend.survey.exportSurveys({})
    expect(surveys.map(({ survey }) => Number(survey?.id))).toEqual(ids.slice(0, 3))
    const rest = await own.backend.survey.exportSurveys({ pageToken: nextPageToken })
    expect(rest.surveys.map(({ survey }) => Number(survey?.id))).toEqual(ids.slice(3))
  })
})

describe('an import of what contradicts itself', () => {
  const question = (type: string, held: object) => ({
    title: 't',
    pages: [{ questions: [{ type: 'text' }, { type, ...held }] }],
  })
  const rows = { subTitles: [{ text: 'Row' }] }
  const at = (seconds: bigint) => create(TimestampSchema, { seconds })

  test.each([
    [{ startTime: at(7n), endTime: at(6n) }, 'endTime is before startTime'],
    [{ createTime: at(-1n) }, 'createTime is before 1970'],
    [question('radio', { starNum: 5 }), 'pages[0].questions[1].starNum is not a member of a question of type radio'],
    [question('radio', { starBeginNum: 0 }), 'pages[0].questions[1].starBeginNum is not a member'],
    [question('star', rows), 'pages[0].questions[1].subTitles is not a member of a question of type star'],
  ])('is refused with all that comes with it: row %#', async (survey, why) => {
    const own = await startService()
    const ownerUserId = 'user_ann'
    const importing = own.backend.survey.importSurveys({ ownerUserId, surveys: [{ title: 'right' }, survey] })
    await expect(importing).rejects.toThrow(`surveys[1]: ${why}`)
    expect((await own.backend.survey.exportSurveys({ ownerUserId })).surveys).toEqual([])
  })

  test.each([
    { startTime: at(7n), endTime: at(7n) },
    { startTime: at(7n) },
    { endTime: at(7n) },
    question('nps', { starNum: 11, starBeginNum: 0 }),
    question('matrix_star', { starNum: 5, starBeginNum: 1, ...rows }),
    question('matrix_blank', rows),
    question('sheet', rows),
  ])('does not refuse what only looks like it: row %#', async (survey) => {
    const own = await startService()
    const ownerUserId = 'user_ann'
    await own.backend.survey.importSurveys({ ownerUserId, surveys: [survey] })
    expect((await own.backend.survey.exportSurveys({ ownerUserId })).surveys).toMatchObject([{ survey }])
  })
})

describe('a deletion', () => {
  test('takes effect on the very next request, and deletes all that are named or none', async () => {
    const own = await startService()
    const user = await own.createUser()
    const access = await own.grantAccess({ user })
    const ids = await own.importSurveys(user, [smallSurvey('a'), smallSurvey('b'), smallSurvey('c')])
    const [a = 0, b = 0, c = 0] = ids
    const { survey } = own.backend
    const listed = async () => {
      const { data } = await own.surveys(access)
      return [data.total, ...(data.list as { id: number }[]).map(({ id }) => id)]
    }
    for (const id of ids) expect((await own.survey(access, id)).type).toBe('')
    expect(await listed()).toEqual([3, a, b, c])

    const unknown = survey.deleteSurveys({ surveyIds: [a, c, c + 1].map(BigInt) })
    await expect(unknown).rejects.toThrow(`there is no survey ${c + 1}`)
    expect(await listed()).toEqual([3, a, b, c])

    for (const _ of ['once', 'again']) {
      await survey.deleteSurveys({ surveyIds: [a, c].map(BigInt) })
      for (const id of [a, c]) expectError(await own.survey(access, id), 'survey_not_found')
      expect((await own.survey(access, b)).data.title).toBe('b')
      expect(await listed()).toEqual([1, b])
    }
    expect(await own.importSurveys(user, [smallSurvey('d')])).toEqual([c + 1])

    const stranger = await own.grantAccess()
    await own.importSurveys(stranger.user, [{ ...smallSurvey('e'), id: a } as SurveyJson])
    expect((await own.survey(stranger, a)).data.title).toBe('e')
    expectError(await own.survey(access, a), 'survey_not_found')
  })

  test.each([
    { what: 'no survey', surveyIds: [], why: 'survey_ids: at least 1 items' },
    { what: 'an id below 1', surveyIds: [1n, 0n], why: 'survey_ids[1]: ' },
    { what: 'more than a thousand', surveyIds: Array.from({ length: 1001 }, () => 1n), why: 'at most 1000 items' },
  ])('of $what is refused', async ({ surveyIds, why }) => {
    await expect(service.backend.survey.deleteSurveys({ surveyIds })).rejects.toThrow(why)
  })
})

describe('the audit trail of surveys', () => {
  test('says what was stored and deleted, by whom, in which request, and nothing of the contents', async () => {
    const own = await startService()
    const [ann, bob] = [await own.createUser(), await own.createUser()]
    const [a = 0, b = 0] = await own.importSurveys(ann, [smallSurvey('confidential'), smallSurvey('b')])
    own.clock.advance({ seconds: 1 })
    await own.importSurveys(ann, [{ ...smallSurvey('confidential again'), id: a } as SurveyJson])
    await expect(own.importSurveys(bob, [{ ...smallSurvey('stolen'), id: a } as SurveyJson])).rejects.toThrow('belongs')
    own.clock.advance({ seconds: 1 })
    for (const _ of ['once', 'again']) await own.backend.survey.deleteSurveys({ surveyIds: [BigInt(a)] })
    await own.importSurveys(bob, [smallSurvey('c')])
    const list = async (filter: { surveyId?: bigint; ownerUserId?: string }) => {
      const { events } = await own.backend.survey.listSurveyEvents(filter)
      return events.map(({ kind, surveyId, ownerUserId, actor }) => [kind, Number(surveyId), ownerUserId, actor])
    }
    const all = [
      ['survey.created', b + 1, bob.userId, 'operator'],
      ['survey.deleted', a, ann.userId, 'operator'],
      ['survey.replaced', a, ann.userId, 'operator'],
      ['survey.created', b, ann.userId, 'operator'],
      ['survey.created', a, ann.userId, 'operator'],
    ]
    expect(await list({})).toEqual(all)
    expect(await list({ surveyId: BigInt(a) })).toEqual(all.filter(([, id]) => id === a))
    expect(await list({ ownerUserId: bob.userId })).toEqual(all.slice(0, 1))
    expect(await list({ ownerUserId: bob.userId, surveyId: BigInt(a) })).toEqual([])

    const { events } = await own.backend.survey.listSurveyEvents({})
    expect(JSON.stringify(events, (_, value) => (typeof value === 'bigint' ? String(value) : value))).not.toMatch(
      /confidential|stolen/,
    )
    for (const { eventId, requestId } of events) {
      expect(eventId).toMatch(/^[0-9a-f]{36}$/)
      expect(requestId).toMatch(/^[0-9a-f-]{36}$/)
    }
    expect(new Set(events.map(({ requestId }) => requestId)).size).toBe(4)
    expect(events[3]?.requestId).toBe(events[4]?.requestId)
  })

  test('is paged, and refuses a page token that it did not issue', async () => {
    const own = await startService()
    const user = await own.createUser()
    await own.importSurveys(
      user,
      ['a', 'b', 'c', 'd', 'e'].map((title) => smallSurvey(title)),
    )
    const ids: number[] = []
    let pageToken = ''
    do {
      const page = await own.backend.survey.listSurveyEvents({ pageSize: 2, pageToken })
      expect(page.events.length).toBeLessThanOrEqual(2)
      ids.push(...page.events.map(({ surveyId }) => Number(surveyId)))
      pageToken = page.nextPageToken
    } while (pageToken !== '')
    expect(ids).toEqual([...ids].sort((one, other) => other - one))
    expect(ids).toHaveLength(5)
    const foreign = own.backend.survey.listSurveyEvents({ pageToken: '7' })
    await expect(foreign).rejects.toThrow('the page token is not valid')
  })

  test('is deleted after KEEP_AUDIT_DAYS, and the surveys stay', async () => {
    const own = await startService({ env: { KEEP_AUDIT_DAYS: '7' } })
    const access = await own.grantAccess()
    const [id = 0] = await own.importSurveys(access.user, [smallSurvey('a')])
    own.clock.advance({ days: 2 })
    await own.importSurveys(access.user, [smallSurvey('b')])
    const left = async () => (await own.backend.survey.listSurveyEvents({})).events.map(({ surveyId }) => surveyId)
    own.clock.advance({ days: 5 })
    await own.backend.runJanitors()
    expect(await left()).toEqual([BigInt(id + 1), BigInt(id)])
    own.clock.advance({ ms: 1 })
    await own.backend.runJanitors()
    expect(await left()).toEqual([BigInt(id + 1)])
    expect((await own.backend.survey.exportSurveys({})).surveys).toHaveLength(2)
    expect(own.backend.log()).toContain('"surveyEvents":1')
  })
})

describe('an import', () => {
  test('whose deadline passed before it could begin does not happen', async () => {
    const own = await startService()
    const { userId: ownerUserId } = await own.createUser()
    const importing = (title: string, timeoutMs: number) =>
      own.backend.survey.importSurveys({ ownerUserId, surveys: [{ title }] }, { timeoutMs })
    const late = importing('late', 1).then(
      () => 'stored',
      () => 'failed',
    )
    const until = performance.now() + 50
    while (performance.now() < until); // blocks the process
    expect(await late).toBe('failed')
    await importing('in time', 60_000)
    const { surveys } = await own.backend.survey.exportSurveys({})
    expect(surveys.map(({ survey }) => survey?.title)).toEqual(['in time'])
  })

  test('sets the times that a survey does not give to the time of the import', async () => {
    const own = await startService()
    own.clock.advance({ ms: 999 })
    const { user, ...rest } = await own.grantAccess()
    const { createTime: _, updateTime: __, ...undated } = smallSurvey()
    const surveys = [undated, { ...undated, createTime: 5 }] as SurveyJson[]
    const now = Math.floor(own.clock.now() / 1000)
    const times = []
    for (const id of await own.importSurveys(user, surveys)) {
      const { createTime, updateTime } = (await own.survey(rest, id)).data
      times.push([createTime, updateTime])
    }
    expect(times).toEqual([
      [now, now],
      [5, now],
    ])
  })

  test('replaces a survey of the same owner and refuses the id of another, storing nothing', async () => {
    const own = await startService()
    const { user, ...rest } = await own.grantAccess()
    const [id = 0] = await own.importSurveys(user, [smallSurvey('first')])
    const withId = (title: string, survey = id) => ({ ...smallSurvey(title), id: survey })
    await own.importSurveys(user, [withId('second')])
    expect((await own.survey(rest, id)).data.title).toBe('second')
    const stranger = await own.createUser()
    await expect(own.importSurveys(stranger, [smallSurvey('new'), withId('stolen')])).rejects.toThrow()
    expect((await own.survey(rest, id)).data.title).toBe('second')
    const { surveys } = await own.backend.survey.exportSurveys({ ownerUserId: stranger.userId })
    expect(surveys).toEqual([])
  })

  const bad = [
    { what: 'a survey that is too large', last: surveyOf(MAX_SURVEY_BYTES + 1), why: 'at most 4000000 bytes encoded' },
    { what: 'an id that comes twice', last: { ...smallSurvey(), id: 7 }, why: 'an earlier survey has the id 7' },
  ]
  test.each(bad)('with $what is refused with its place, storing nothing', async ({ last, why }) => {
    const own = await startService()
    const user = await own.createUser()
    const surveys = [{ ...smallSurvey(), id: 7 }, last]
    await expect(own.importSurveys(user, surveys)).rejects.toThrow(`surveys[1]: ${why}`)
    expect((await own.backend.survey.exportSurveys({ ownerUserId: user.userId })).surveys).toEqual([])
  })
})
