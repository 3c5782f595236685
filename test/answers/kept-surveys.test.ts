// Answers about surveys that a process caches from a SurveyService in another, compared with the service's own.
import { create, fromBinary, type Message, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { expect, test, vi } from 'vitest'
import { RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import {
  GetSurveyResponseSchema,
  ListSurveysResponseSchema,
  type Survey,
  SurveySchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { Decoder, encode } from '../../services/rpc/large-messages.js'
import { reasonIn, ServiceError, toConnectError } from '../../services/rpc/service-error.js'
import { StoreUnavailable } from '../../services/store/store-unavailable.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { fingerprintOf, validatorOfSurvey } from '../../services/survey/validators.js'
import { byOperator, findGrant, NOW } from '../store/token-store-verbs.js'
import {
  type Ending,
  endings,
  expectChanged,
  type Granted,
  granted,
  outcomesOf,
  type Service,
  startService,
  untilHeld,
} from './kept-service.js'

const ANN = 'user_ann'
const titled = (title: string, id = 0n) => create(SurveySchema, { id, title, prefix: '长'.repeat(300) })

/** Ann's surveys 1 to 3 and bob's survey 4. */
async function withSurveys() {
  const service = await startService()
  await service.survey.importSurveys({
    ownerUserId: ANN,
    surveys: ['one', 'two', 'three'].map((title) => titled(title)),
  })
  await service.survey.importSurveys({ ownerUserId: 'user_bob', surveys: [titled('of bob')] })
  return service
}

/** Each call's answer, or why it failed. */
async function answersOf(client: Service['survey'], { presented, token }: Granted): Promise<unknown[]> {
  const calls: Promise<Message>[] = [
    client.getSurvey({ ...presented, surveyId: 1n }),
    client.getSurvey({ ...token, surveyId: 2n }),
    client.listSurveys({ ...presented, page: 1, perPage: 2 }),
    client.listSurveys({ ...presented, page: 2, perPage: 2 }),
    client.listSurveys({ ...presented, page: 1, perPage: 11 }),
    client.listSurveys({ ...presented, page: 11, perPage: 1 }),
    client.getSurvey({ ...presented, surveyId: 4n }),
    client.getSurvey({ ...presented, surveyId: 5n }),
    client.getSurvey({ ...presented, appid: 'app2', surveyId: 1n }),
    client.listSurveys({ ...presented, openid: 'another', page: 1, perPage: 2 }),
  ]
  return outcomesOf(calls)
}

test('cached answers equal those of the service; one call revalidates all that are used in a turn', async () => {
  const service = await withSurveys()
  const [ann, bob] = [await granted(service.store), await granted(service.store, 'bob')]
  const said = [await answersOf(service.survey, ann), await answersOf(service.survey, bob)]
  for (let i = 0; i < 3; i += 1) {
    expect([await answersOf(service.keepingSurveys, ann), await answersOf(service.keepingSurveys, bob)]).toEqual(said)
  }

  const ask = () =>
    Promise.all([1n, 2n].map((surveyId) => service.keepingSurveys.getSurvey({ ...ann.presented, surveyId })))
  await ask()
  service.names()
  service.onRevalidated.mockClear()
  const [one, two] = await ask()
  expect(service.calls.map(({ validators }) => validators.length)).toEqual([2])
  expect(service.names()).toEqual(['RevalidateSurveys'])
  expect(service.onRevalidated.mock.calls).toEqual([[2]])
  expect([one?.survey?.title, two?.survey?.title]).toEqual(['one', 'two'])
  const again = await ask()
  expect(again.map(({ survey }) => survey)).toEqual([one?.survey, two?.survey])
  again.forEach(({ survey }, at) => {
    expect(survey).toBe([one, two][at]?.survey) // so that its JSON is made once
  })
})

const changes: readonly Ending[] = [
  {
    title: 'the survey is stored again',
    end: ({ survey }) => survey.importSurveys({ ownerUserId: ANN, surveys: [titled('one, again', 1n)] }),
  },
  { title: 'the survey is deleted', end: ({ survey }) => survey.deleteSurveys({ surveyIds: [1n] }) },
  {
    title: 'another survey is stored',
    end: ({ survey }) => survey.importSurveys({ ownerUserId: ANN, surveys: [titled('four')] }),
  },
  {
    title: 'another process stores the survey again',
    async end({ surveyFile }) {
      const other = openSqliteSurveyStore({ file: surveyFile })
      const document = toBinary(SurveySchema, titled('of another'))
      await other.putSurveys(
        ANN,
        [{ surveyId: 2, hash: 'abcd', title: 'of another', state: 2, document }],
        NOW,
        byOperator,
      )
      await other.close()
    },
  },
]

test.each([...endings, ...changes])('an answer cached for a token is no longer given once $title', async (ending) => {
  const service = await withSurveys()
  await expectChanged(service, ending, [service.survey, service.keepingSurveys], answersOf)
})

test.each([...endings, ...changes])(
  'an answer held under leases for a token is no longer given once $title, however late its holder hears of it',
  async (ending) => {
    const service = await withSurveys()
    const clients = [service.survey, service.leasingSurveys] as const
    await expectChanged(service, ending, clients, answersOf, (ask) => untilHeld(service, ask))
  },
)

test('a survey that cannot be looked up fails alone', async () => {
  const { behind, store, keepingSurveys, names } = await withSurveys()
  const { presented } = await granted(store)
  const surveys = behind.surveys
  const ask = () =>
    Promise.allSettled([1n, 2n, 3n].map((surveyId) => keepingSurveys.getSurvey({ ...presented, surveyId })))
  const statuses = async () => (await ask()).map(({ status }) => status)
  await ask()
  for (const error of [new StoreUnavailable(new Error('too slow')), new Error('a defect')]) {
    behind.surveys = {
      ...surveys,
      findSurvey: (id) => (id === 2 ? Promise.reject(error) : surveys.findSurvey(id)),
    }
    names()
    expect(await statuses()).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(names()).toEqual(['RevalidateSurveys', 'GetSurvey'])
    behind.surveys = surveys
    expect(await statuses()).toEqual(['fulfilled', 'fulfilled', 'fulfilled'])
  }

  behind.surveys = { ...surveys, findSurvey: () => Promise.reject(new StoreUnavailable(new Error('away'))) }
  names()
  expect(await statuses()).toEqual(['rejected', 'rejected', 'rejected'])
  expect(names()).toEqual(['RevalidateSurveys']) // an unavailable database is not queried again for each
  behind.surveys = surveys
  expect(await statuses()).toEqual(['fulfilled', 'fulfilled', 'fulfilled'])
})

test('a survey that is slow to look up does not delay others asked for at the same moment', async () => {
  const { behind, store, keepingSurveys } = await withSurveys()
  const { presented } = await granted(store)
  const surveys = behind.surveys
  const ask = () => [1n, 2n].map((surveyId) => keepingSurveys.getSurvey({ ...presented, surveyId }))
  await Promise.all(ask())
  let go: () => void = () => undefined
  const gate = new Promise<void>((resolve) => {
    go = resolve
  })
  behind.surveys = {
    ...surveys,
    findSurvey: (id) => (id === 2 ? gate.then(() => surveys.findSurvey(id)) : surveys.findSurvey(id)),
  }
  const [one, two] = ask()
  expect((await one)?.survey?.title).toBe('one')
  go()
  expect((await two)?.survey?.title).toBe('two')
})

test('when the token service is unavailable so are surveys, and what was cached is still used once it is back', async () => {
  const { behind, store, keepingSurveys, names } = await withSurveys()
  const { presented } = await granted(store)
  const ask = () => keepingSurveys.getSurvey({ ...presented, surveyId: 1n })
  await ask()
  const token = behind.token
  behind.token = { ...token, revalidateAnswers: () => Promise.reject(new ConnectError('gone', Code.Unavailable)) }
  await expect(ask()).rejects.toThrow('the token service is unavailable')
  behind.token = token
  names()
  expect((await ask()).survey?.title).toBe('one')
  expect(names()).toEqual(['RevalidateSurveys'])
})

test.each([
  [Code.Unavailable, Code.Unavailable],
  [Code.DeadlineExceeded, Code.Unavailable],
  [Code.Canceled, Code.Unavailable],
  [Code.ResourceExhausted, Code.Unavailable],
  [Code.Internal, Code.Internal],
  [Code.Unimplemented, Code.Internal],
])('a token service that fails with code %i makes the survey service fail with %i', async (code, expected) => {
  const { behind, survey } = await withSurveys()
  const fail = () => Promise.reject(new ConnectError('canary', code))
  behind.token = { ...behind.token, verifyAccessToken: fail }
  const asked = survey.getSurvey({ appid: 'app1', accessToken: 'x', surveyId: 1n })
  const failure = await asked.then(() => expect.unreachable(), ConnectError.from)
  expect(failure.code).toBe(expected)
  expect(failure.message).not.toContain('canary')
  const [info] = failure.findDetails(RetryInfoSchema)
  expect(info?.retryDelay?.seconds).toBe(expected === Code.Unavailable ? 1n : undefined)
})

test.each([
  ErrorReason.INVALID_ARGUMENT,
  ErrorReason.INVALID_APPID,
  ErrorReason.INVALID_TOKEN,
  ErrorReason.CLAIM_ERROR,
] as const)('an error of the token service about the credentials is passed on: reason %i', async (reason) => {
  const { behind, survey } = await withSurveys()
  const refuse = () => Promise.reject(toConnectError(new ServiceError(reason, 'as it says')))
  behind.token = { ...behind.token, verifyAccessToken: refuse }
  const asked = survey.getSurvey({ appid: 'app1', accessToken: 'x', surveyId: 1n })
  const failure = await asked.then(() => expect.unreachable(), ConnectError.from)
  expect([reasonIn(failure), failure.rawMessage]).toEqual([reason, 'as it says'])
})

test('the token service is asked with the request id', async () => {
  const { behind, store, survey } = await withSurveys()
  const { presented } = await granted(store)
  const verify = vi.fn(behind.token.verifyAccessToken)
  const revalidate = vi.fn(behind.token.revalidateAnswers)
  behind.token = { ...behind.token, verifyAccessToken: verify, revalidateAnswers: revalidate }
  const options = { headers: { 'x-request-id': 'of the request' } }
  const { validator } = await survey.getSurvey({ ...presented, surveyId: 1n, wantsValidator: true }, options)
  await survey.revalidateSurveys({ validators: [validator] }, options)
  expect([verify, revalidate].map(({ mock }) => mock.calls.map(([, options]) => options))).toEqual([
    [options],
    [options],
  ])
})

test('a page has at most 100 surveys, even when more are asked for', async () => {
  const { store, survey } = await withSurveys()
  const { presented } = await granted(store)
  await survey.importSurveys({ ownerUserId: ANN, surveys: Array.from({ length: 98 }, (_, at) => titled(`more ${at}`)) })
  const pages = [1, 2].map((page) => survey.listSurveys({ ...presented, page, perPage: 1_000 }))
  expect((await Promise.all(pages)).map(({ total, list }) => [total, list.length])).toEqual([
    [101, 100],
    [101, 1],
  ])
})

test('a fingerprint depends on everything that was read, not on the version alone', () => {
  const row = { surveyId: 1, ownerUserId: ANN, version: 1, hash: 'abcd', document: new Uint8Array([1, 2]) }
  const summary = { surveyId: 1, hash: 'abcd', title: 'one', state: 2 }
  const found = [
    row,
    { ...row, surveyId: 2 },
    { ...row, ownerUserId: 'user_bob' },
    { ...row, version: 2 },
    { ...row, hash: 'abce' },
    { ...row, document: new Uint8Array([1, 3]) },
    { total: 1, rows: [summary] },
    { total: 2, rows: [summary] },
    { total: 1, rows: [] },
    ...[{ surveyId: 2 }, { hash: 'abce' }, { title: 'two' }, { state: 3 }].map((other) => ({
      total: 1,
      rows: [{ ...summary, ...other }],
    })),
  ]
  expect(new Set(found.map(fingerprintOf)).size).toBe(found.length)
  expect(found.map((one) => fingerprintOf({ ...one }))).toEqual(found.map(fingerprintOf))
})

test('of many surveys asked about at the same time, only those that changed are asked for again', async () => {
  const service = await withSurveys()
  const [ann, bob] = [await granted(service.store), await granted(service.store, 'bob')]
  const ask = () =>
    Promise.all(
      Array.from({ length: 1_200 }, (_, index) =>
        index % 4 === 3
          ? service.keepingSurveys.getSurvey({ ...bob.presented, surveyId: 4n })
          : service.keepingSurveys.getSurvey({ ...ann.presented, surveyId: BigInt((index % 4) + 1) }),
      ),
    )
  await ask()
  await service.survey.importSurveys({ ownerUserId: ANN, surveys: [titled('two, again', 2n)] })
  service.calls.splice(0)
  const titles = (await ask()).map(({ survey }) => survey?.title)
  expect(titles).toEqual(titles.map((_, index) => ['one', 'two, again', 'three', 'of bob'][index % 4]))
  const asked = service.calls.filter(({ name }) => name === 'RevalidateSurveys')
  expect(asked.map(({ validators }) => validators.length)).toEqual([500, 500, 200])
  expect(service.calls.filter(({ name }) => name === 'GetSurvey')).toHaveLength(300)
})

test('a revalidated survey counts as a use of its grant', async () => {
  const { store, time, uses, keepingSurveys } = await withSurveys()
  const { presented, grantId } = await granted(store)
  await keepingSurveys.getSurvey({ ...presented, surveyId: 1n })
  time.now = NOW + 120_000
  await keepingSurveys.getSurvey({ ...presented, surveyId: 1n })
  await uses.flush()
  expect((await findGrant(store, grantId))?.lastUsedAtMs).toBe(NOW + 120_000)
})

test('malformed or mixed-up validators are reported as changed', async () => {
  const { behind, store, survey } = await withSurveys()
  const [ann, bob] = [await granted(store), await granted(store, 'bob')]
  const wanted = { ...ann.presented, wantsValidator: true }
  const one = Buffer.from((await survey.getSurvey({ ...wanted, surveyId: 1n })).validator)
  const list = Buffer.from((await survey.listSurveys({ ...wanted, page: 1, perPage: 2 })).validator)
  const ofBob = await survey.getSurvey({ ...bob.presented, wantsValidator: true, surveyId: 4n })
  const tokenEnd = 17 + (one[16] ?? 0)
  const asking = (text: string) => Buffer.concat([one.subarray(0, tokenEnd), Buffer.from(text)])
  const flipped = (at: number) => Buffer.from(one.map((byte, index) => (index === at ? byte ^ 1 : byte)))
  const strangers = [
    Buffer.alloc(0),
    Buffer.alloc(17, 255),
    one.subarray(0, 16),
    one.subarray(0, tokenEnd),
    ...[0, 15, 16, 17, tokenEnd, one.length - 1].map(flipped),
    ...['survey 2', 'survey 9', 'survey x', 'survey 1e999', `survey ${2n ** 64n}`, 'survey -1', 'survey'].map(asking),
    ...['list', 'list 0 2', `list 0 0 ${ANN}`, `list 0 101 ${ANN}`, `list -1 2 ${ANN}`, 'list 0 2 a\0b'].map(asking),
    Buffer.concat([list.subarray(0, 16), one.subarray(16)]),
    Buffer.concat([one.subarray(0, 16), list.subarray(16)]),
    Buffer.alloc(5_000, one),
    Buffer.concat([one.subarray(0, 16), Buffer.of(101), Buffer.alloc(101), Buffer.from('survey 1')]),
    asking(`list 0 2 ${'x'.repeat(500)}`),
  ]
  const changed = async (validators: Uint8Array[]) => (await survey.revalidateSurveys({ validators })).changed
  for (const stranger of strangers) {
    expect(await changed([one, stranger, list, ofBob.validator])).toEqual([1])
  }
  expect(await changed([asking('survey 1')])).toEqual([])
  const [listing, revalidate] = [vi.fn(behind.surveys.listSurveys), vi.fn(behind.token.revalidateAnswers)]
  behind.surveys = { ...behind.surveys, listSurveys: listing }
  behind.token = { ...behind.token, revalidateAnswers: revalidate }
  await changed([...strangers, asking(`list 0 999999999 ${ANN}`)])
  expect(listing.mock.calls.filter(([, { limit }]) => limit > 100)).toEqual([])
  const lengths = revalidate.mock.calls.flatMap(([{ validators = [] }]) => validators.map(({ length }) => length))
  expect(Math.max(...lengths), 'what TokenService takes').toBeLessThanOrEqual(100)
  await expect(survey.revalidateSurveys({ validators: Array.from({ length: 501 }, () => one) })).rejects.toThrow(
    'at most 500 items',
  )
})

test('a survey gets no validator when that of its token is longer than any we issue', () => {
  const row = { surveyId: 1, ownerUserId: ANN, version: 1, hash: 'abcd', document: new Uint8Array([1]) }
  expect(validatorOfSurvey(new Uint8Array(100), row).length).toBeGreaterThan(100)
  expect(validatorOfSurvey(new Uint8Array(101), row)).toHaveLength(0)
})

/** A message that is encoded, and decoded by a peer that keeps what it decoded. */
const sent = { survey: titled('one', 7n), creatorUserId: 5n }
const validator = (byte: number) => new Uint8Array(60).fill(byte)

test('answers that differ only in their validators are encoded once, and share their parts when decoded', async () => {
  const service = await withSurveys()
  const [first, second] = [await granted(service.store), await granted(service.store)]
  const ask = ({ presented }: Granted) => service.survey.getSurvey({ ...presented, surveyId: 1n, wantsValidator: true })
  const answers = [await ask(first), await ask(second)]
  const whole = answers.map((answer) => Buffer.from(toBinary(GetSurveyResponseSchema, { ...answer })))
  const [one, two] = answers.map((answer) => {
    const encoded = Buffer.from(encode(GetSurveyResponseSchema, answer))
    if (answer.survey) answer.survey.title = 'not encoded a second time'
    return encoded
  })
  expect([one, two]).toEqual(whole)
  if (answers[0]?.survey) answers[0].survey.title = 'one'
  const decoder = new Decoder()
  const decoded = whole.map((encoded) => decoder.decode(GetSurveyResponseSchema, new Uint8Array(encoded)))
  expect(decoded).toEqual(answers.map((answer) => ({ ...answer, validator: new Uint8Array(answer.validator) })))
  expect(decoded[0]?.validator).not.toEqual(decoded[1]?.validator)
  expect(decoded[0]?.survey).toBe(decoded[1]?.survey)

  const list = await service.survey.listSurveys({ ...first.presented, page: 1, perPage: 2, wantsValidator: true })
  expect(fromBinary(ListSurveysResponseSchema, encode(ListSurveysResponseSchema, list))).toEqual(list)
})

test('a validator in the middle of a message, given twice or cut off is read as protobuf prescribes', () => {
  const decoder = new Decoder()
  const part = (fields: { survey?: Survey; creatorUserId?: bigint; validator?: Uint8Array }) =>
    toBinary(GetSurveyResponseSchema, create(GetSurveyResponseSchema, fields))
  const orders = [
    [{ validator: validator(1) }, sent],
    [{ survey: sent.survey, validator: validator(1) }, { creatorUserId: 5n }],
    [sent, { validator: validator(2) }, { validator: validator(1) }],
    [{ validator: validator(2) }, sent, { validator: validator(1) }],
  ]
  const expected = create(GetSurveyResponseSchema, { ...sent, validator: validator(1) })
  for (const parts of orders) {
    const bytes = new Uint8Array(Buffer.concat(parts.map(part)))
    expect(decoder.decode(GetSurveyResponseSchema, bytes)).toEqual(expected)
    expect(decoder.decode(GetSurveyResponseSchema, bytes)).toEqual(expected)
  }
  const whole = Buffer.concat([part(sent), part({ validator: validator(1) })])
  expect(() => decoder.decode(GetSurveyResponseSchema, whole.subarray(0, -1))).toThrow()
})
