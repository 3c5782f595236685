// Providers that are wrong in one thing each, and the tests of the kit that must notice: those and no others.
import { clone, create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { Code } from '@connectrpc/connect'
import {
  type GetProviderInfoResponse,
  type GetSurveyResponse,
  ListAnswersResponseSchema,
  type ListSurveysResponse,
  ListSurveysResponseSchema,
  type ProviderCapability,
} from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type Answer, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import { SurveySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import { type Methods, Refusal, right, surveys, withoutAnswers } from './array-provider.js'

interface WrongProvider {
  readonly fault: string
  /** Ids of tests. */
  readonly fails: readonly string[]
  /** What it does differently. `state.isCancelled` is set when nobody waits for a call any longer. */
  readonly methods: (state: { isCancelled: boolean }) => Partial<Methods>
}

const SLOW_MS = 1_600
const after = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

type List = Methods['listSurveys']
type ListAnswers = Methods['listAnswers']

/** The right list, changed. */
function list(change: (found: ListSurveysResponse, request: Parameters<List>[0]) => unknown): Partial<Methods> {
  return {
    async listSurveys(request) {
      const found = await right.listSurveys(request)
      change(found, request)
      return found
    },
  }
}

function titlesInList(title: string): Partial<Methods> {
  return list(({ surveys: rows }) => {
    for (const { survey: one } of rows) if (one) one.title = title
  })
}

/** The right description of itself, changed. */
function info(change: Partial<GetProviderInfoResponse>): Partial<Methods> {
  return { getProviderInfo: async (request) => ({ ...(await right.getProviderInfo(request)), ...change }) }
}

/** The right survey, changed. */
function survey(change: (found: GetSurveyResponse) => unknown): Partial<Methods> {
  return {
    async getSurvey(request) {
      const found = await right.getSurvey(request)
      if (found.survey) found.survey = clone(SurveySchema, found.survey)
      change(found)
      return found
    },
  }
}

/** Every answer, changed alike in the list and by itself. */
function answers(change: (answer: Answer) => unknown): Partial<Methods> {
  const changed = (answer: Answer) => {
    const copy = clone(AnswerSchema, answer)
    change(copy)
    return copy
  }
  return {
    async listAnswers(request) {
      const found = await right.listAnswers(request)
      return { ...found, answers: found.answers.map(changed) }
    },
    async getAnswer(request) {
      const found = await right.getAnswer(request)
      return { ...found, ...(found.answer && { answer: changed(found.answer) }) }
    },
  }
}

/** The list of all surveys that are of an owner in the eyes of `isOf`. */
function listBy(isOf: (externalId: string, asked: string) => boolean): List {
  return async (request) => {
    const { owner, offset, limit } = request
    await right.listSurveys(request)
    const mine = surveys.filter(({ externalId }) => isOf(externalId, owner?.externalId ?? ''))
    const pages = await Promise.all(
      mine.map(({ externalId, survey: { id } }) => {
        const all = right.listSurveys({
          ...request,
          owner: { ...request.owner, externalId },
          offset: 0n,
          limit: 100,
        } as never)
        return Promise.resolve(all).then((found) => found.surveys.filter((row) => row.survey?.id === id))
      }),
    )
    const rows = pages.flat().slice(Number(offset), Number(offset) + limit)
    return create(ListSurveysResponseSchema, { surveys: rows, totalSize: BigInt(mine.length) })
  }
}

let calls = 0

export const wrongProviders: readonly WrongProvider[] = [
  {
    fault: 'says PERMISSION_DENIED of a survey of somebody else',
    fails: ['SP-07'],
    methods: () => ({
      getSurvey(request) {
        const isOthers = surveys.some(
          (one) => one.survey.id === request.surveyId && request.owner?.externalId !== one.externalId,
        )
        if (request.owner && isOthers) throw new Refusal(Code.PermissionDenied, 'not yours')
        return right.getSurvey(request)
      },
    }),
  },
  {
    fault: 'gives a survey to whoever asks',
    fails: ['SP-07', 'SP-15', 'SP-17', 'SP-18'],
    methods: () => ({
      getSurvey(request) {
        const externalId = surveys.find((one) => one.survey.id === request.surveyId)?.externalId ?? ''
        return right.getSurvey(request.owner ? { ...request, owner: { ...request.owner, externalId } } : request)
      },
    }),
  },
  {
    fault: 'lists in another order each time',
    fails: ['SP-04', 'SP-06'],
    methods: () => ({
      async listSurveys(request) {
        const all = await right.listSurveys({ ...request, offset: 0n, limit: 100 })
        await right.listSurveys(request)
        calls += 1
        if (calls % 2 === 0) all.surveys.reverse()
        const [from, to] = [Number(request.offset), Number(request.offset) + request.limit]
        return { ...all, surveys: all.surveys.slice(from, to) }
      },
    }),
  },
  {
    fault: 'begins a page of answers with the one that was the last before',
    fails: ['SP-31', 'SP-32', 'SP-34'],
    methods: () => ({
      async listAnswers(request) {
        await right.listAnswers(request)
        return right.listAnswers({
          ...request,
          afterAnswerId: request.afterAnswerId === 0n ? 0n : request.afterAnswerId - 1n,
        })
      },
    }),
  },
  {
    fault: 'takes any limit, and counts only the page in total_size',
    fails: ['SP-05', 'SP-12'],
    methods: () => ({
      async listSurveys(request) {
        const limit = Math.min(Math.max(request.limit, 1), 100)
        const found = await right.listSurveys({ ...request, limit, offset: request.offset < 0n ? 0n : request.offset })
        return { ...found, totalSize: BigInt(found.surveys.length) }
      },
    }),
  },
  {
    fault: 'has no name',
    fails: ['SP-01'],
    methods: () => info({ name: '' }),
  },
  {
    fault: 'claims a capability that there is not',
    fails: ['SP-02'],
    methods: () => info({ capabilities: [1, 99 as ProviderCapability] }),
  },
  {
    fault: 'leaves a survey out of the list',
    fails: ['SP-03'],
    methods: () => ({
      async listSurveys(request) {
        const all = await right.listSurveys({ ...request, offset: 0n, limit: 100 })
        await right.listSurveys(request)
        const [from, to] = [Number(request.offset), Number(request.offset) + request.limit]
        return { ...all, surveys: all.surveys.slice(1).slice(from, to) }
      },
    }),
  },
  {
    fault: 'lists the newest first',
    fails: ['SP-04'],
    methods: () => ({
      async listSurveys(request) {
        const all = await right.listSurveys({ ...request, offset: 0n, limit: 100 })
        await right.listSurveys(request)
        const [from, to] = [Number(request.offset), Number(request.offset) + request.limit]
        return { ...all, surveys: all.surveys.reverse().slice(from, to) }
      },
    }),
  },
  {
    fault: 'fails past the end of a list',
    fails: ['SP-05', 'SP-19'],
    methods: () =>
      list(({ totalSize }, { offset }) => {
        if (offset >= totalSize && offset > 0n) throw new Refusal(Code.OutOfRange, 'no such page')
      }),
  },
  {
    fault: 'takes the offset for the number of a page',
    fails: ['SP-06'],
    methods: () => ({
      listSurveys: (request) => right.listSurveys({ ...request, offset: request.offset * BigInt(request.limit) }),
    }),
  },
  {
    fault: 'says of a survey that it is somebody else’s',
    fails: ['SP-07'],
    methods: () => ({
      getSurvey(request) {
        const isThere = surveys.some((one) => one.survey.id === request.surveyId)
        try {
          return right.getSurvey(request)
        } catch (error) {
          if (isThere && error instanceof Refusal) throw new Refusal(error.code, 'belongs to somebody else')
          throw error
        }
      },
    }),
  },
  {
    fault: 'lists without owners',
    fails: ['SP-08'],
    methods: () =>
      list(({ surveys: rows }) => {
        for (const row of rows) delete row.owner
      }),
  },
  {
    fault: 'says NOT_FOUND of an owner it does not know',
    fails: ['SP-09', 'SP-15', 'SP-17', 'SP-18'],
    methods: () =>
      list(({ totalSize }) => {
        if (totalSize === 0n) throw new Refusal(Code.NotFound, 'no such user')
      }),
  },
  {
    fault: 'answers another survey than was asked for',
    fails: ['SP-10'],
    methods: () => survey(({ survey: found }) => found && Object.assign(found, { id: found.id + 1n })),
  },
  {
    fault: 'echoes the wrong owner',
    fails: ['SP-10'],
    methods: () => survey(({ owner }) => owner && Object.assign(owner, { externalId: 'u-9' })),
  },
  {
    fault: 'cuts titles in the list',
    fails: ['SP-11'],
    methods: () => titlesInList('Survey…'),
  },
  {
    fault: 'takes 0 for a survey that is missing',
    fails: ['SP-13'],
    methods: () => ({
      getSurvey(request) {
        if (request.owner && request.surveyId <= 0n) throw new Refusal(Code.NotFound, 'there is no such survey')
        return right.getSurvey(request)
      },
    }),
  },
  {
    fault: 'takes no owner for all of them',
    fails: ['SP-14'],
    methods: () => ({
      listSurveys: (request) =>
        request.owner ? right.listSurveys(request) : create(ListSurveysResponseSchema, { totalSize: 11n }),
    }),
  },
  {
    fault: 'takes an empty id for any',
    fails: ['SP-15'],
    methods: () => ({ listSurveys: listBy((externalId, asked) => asked === '' || externalId === asked) }),
  },
  {
    fault: 'has a title that is too long',
    fails: ['SP-16'],
    methods: () => {
      const title = 'x'.repeat(1_001)
      return {
        ...titlesInList(title),
        ...survey(({ survey: found }) => found && Object.assign(found, { title })),
      }
    },
  },
  {
    fault: 'has stars on a question without',
    fails: ['SP-16'],
    methods: () => survey(({ survey: found }) => Object.assign(found?.pages[0]?.questions[0] ?? {}, { starNum: 5 })),
  },
  {
    fault: 'compares ids as a collation does',
    fails: ['SP-17'],
    methods: () => {
      const key = (text: string) => text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase().trimEnd()
      return { listSurveys: listBy((externalId, asked) => key(externalId) === key(asked)) }
    },
  },
  {
    fault: 'takes % for any text',
    fails: ['SP-18'],
    methods: () => ({ listSurveys: listBy((externalId, asked) => asked === '%' || externalId === asked) }),
  },
  {
    fault: 'fails with ids beyond ASCII',
    fails: ['SP-17', 'SP-18'],
    methods: () =>
      list((_, { owner }) => {
        if (/[^ -~]/.test(owner?.externalId ?? '')) throw new Refusal(Code.Internal, 'bad encoding')
      }),
  },
  {
    fault: 'keeps ids in 32 bits',
    fails: ['SP-19'],
    methods: () => ({
      getSurvey(request) {
        if (request.owner && request.surveyId > 2n ** 31n) throw new Refusal(Code.Internal, 'integer out of range')
        return right.getSurvey(request)
      },
    }),
  },
  {
    fault: 'claims no answers and answers none',
    fails: ['SP-20'],
    methods: () => ({
      ...info({ capabilities: [] }),
      listAnswers: () => create(ListAnswersResponseSchema),
    }),
  },
  {
    fault: 'takes its time to say who it is',
    fails: ['SP-21'],
    methods: () => ({
      async getProviderInfo(request) {
        await after(SLOW_MS)
        return right.getProviderInfo(request)
      },
    }),
  },
  {
    fault: 'fails after a call that was cancelled',
    fails: ['SP-22'],
    methods: (state) => ({
      ...withoutAnswers,
      async listSurveys(request) {
        await after(20)
        if (state.isCancelled) throw new Refusal(Code.Unavailable, 'the pool is empty')
        return right.listSurveys(request)
      },
    }),
  },
  {
    fault: 'loses an answer between two pages',
    fails: ['SP-32'],
    methods: () => ({
      async listAnswers(request) {
        const found = await right.listAnswers(request)
        return request.afterAnswerId > 0n ? { ...found, answers: found.answers.slice(1) } : found
      },
    }),
  },
  {
    fault: 'counts the answers that are left',
    fails: ['SP-33', 'SP-35'],
    methods: () => ({
      async listAnswers(request) {
        const found = await right.listAnswers(request)
        const all = await right.listAnswers({ ...request, limit: 1_000 })
        return { ...found, totalSize: BigInt(all.answers.length) }
      },
    }),
  },
  {
    fault: 'begins again after the last answer',
    fails: ['SP-34'],
    methods: () => ({
      async listAnswers(request) {
        const found = await right.listAnswers(request)
        return found.answers.length > 0 ? found : right.listAnswers({ ...request, afterAnswerId: 0n })
      },
    }),
  },
  {
    fault: 'leaves out the answer at since',
    fails: ['SP-35'],
    methods: () => {
      const listAnswers: ListAnswers = (request) => {
        const { since } = request
        return right.listAnswers(since ? { ...request, since: { ...since, seconds: since.seconds + 1n } } : request)
      }
      return { listAnswers }
    },
  },
  {
    fault: 'gives a single answer without its respondent',
    fails: ['SP-36'],
    methods: () => ({
      async getAnswer(request) {
        const { answer, ...found } = await right.getAnswer(request)
        return answer ? { ...found, answer: { ...answer, respondentId: '' } } : found
      },
    }),
  },
  {
    fault: 'has no answers for an owner of another survey',
    fails: ['SP-37'],
    methods: () => ({
      listAnswers(request) {
        const isThere = surveys.some((one) => one.survey.id === request.surveyId)
        try {
          return right.listAnswers(request)
        } catch (error) {
          if (isThere && error instanceof Refusal && error.code === Code.NotFound)
            return create(ListAnswersResponseSchema)
          throw error
        }
      },
    }),
  },
  {
    fault: 'answers an empty answer for one that is missing',
    fails: ['SP-38'],
    methods: () => ({
      async getAnswer(request) {
        try {
          return await right.getAnswer(request)
        } catch (error) {
          if (error instanceof Refusal && error.message === 'there is no such answer') return {} as never
          throw error
        }
      },
    }),
  },
  {
    fault: 'takes any number of answers for a limit',
    fails: ['SP-39'],
    methods: () => ({
      listAnswers: (request) => right.listAnswers({ ...request, limit: Math.min(request.limit, 1_000) }),
    }),
  },
  {
    fault: 'has answers that end before they begin',
    fails: ['SP-40'],
    methods: () => answers((answer) => Object.assign(answer, { startTime: timestampFromMs(Date.UTC(2027, 0, 1)) })),
  },
  {
    fault: 'gives stars in halves',
    fails: ['SP-41'],
    methods: () => answers(({ pages }) => Object.assign(pages[0]?.questions[1] ?? {}, { text: '4.5' })),
  },
  {
    fault: 'gives a negative number of stars',
    fails: ['SP-41'],
    methods: () => answers(({ pages }) => Object.assign(pages[0]?.questions[1] ?? {}, { text: '-1' })),
  },
  {
    fault: 'numbers options otherwise in answers',
    fails: ['SP-42'],
    methods: () => answers(({ pages }) => Object.assign(pages[0]?.questions[0]?.options[0] ?? {}, { id: '2' })),
  },
  {
    fault: 'gives answers without owner',
    fails: ['SP-43'],
    methods: () => ({
      async listAnswers(request) {
        const { owner: _, ...found } = await right.listAnswers(request)
        return found
      },
    }),
  },
  {
    fault: 'takes its time for an answer',
    fails: ['SP-44'],
    methods: () => ({
      async getAnswer(request) {
        if (request.answerId === 12n) await after(SLOW_MS)
        return right.getAnswer(request)
      },
    }),
  },
]
