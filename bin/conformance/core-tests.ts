// Profile core: what every provider does.
import { create, toBinary } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import {
  GetProviderInfoResponseSchema,
  type ListSurveysResponse,
  ProviderCapability,
  SurveyProvider,
} from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { SurveySchema, SurveySummarySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import { compileRules, type Violation } from '../../services/rpc/validation.js'
import { contradictionIn } from '../../services/survey/contradictions.js'
import { check, checkRules, checkSame } from './check.js'
import type { OwnerFixture, OwnerIds } from './fixtures.js'
import type { KitTest } from './kit-test.js'
import { checkOwner, idsLike } from './owners.js'
import { checkQuick, codeName, type Probe } from './probe.js'

const { getProviderInfo, listSurveys, getSurvey, listAnswers, getAnswer } = SurveyProvider.method

const MAX_PAGE = 100
/** An id is at most this. */
const LARGEST = BigInt(Number.MAX_SAFE_INTEGER)
const MAX_SURVEY_BYTES = 4_000_000

export const coreTests: readonly KitTest[] = [
  {
    id: 'SP-01',
    title: 'GetProviderInfo names the provider',
    why: 'its name and version are in the log when it is connected, and in this report',
    async run(probe) {
      checkRules(infoRules(await probe.answer(getProviderInfo, {})), 'the provider')
    },
  },
  {
    id: 'SP-02',
    title: 'the capabilities are known ones, each named once',
    why: 'a capability is a promise that survey-auth relies on; one it does not know promises nothing',
    async run(probe) {
      const { capabilities } = await probe.answer(getProviderInfo, {})
      const unknown = capabilities.find((one) => ProviderCapability[one] === undefined || one === 0)
      check(unknown === undefined, `${unknown} is not a capability`)
      check(new Set(capabilities).size === capabilities.length, 'a capability is named twice')
    },
  },
  {
    id: 'SP-03',
    title: 'the list holds every survey of its owner, once, and no other',
    why: 'users give an app access to their surveys: to all of them, and to nobody else’s',
    async run(probe, { owner, other }) {
      for (const one of [owner, other])
        checkSame(ascending(await idsOf(probe, one)), one.surveyIds, 'the list holds survey')
    },
  },
  {
    id: 'SP-04',
    title: 'the list is ascending by id',
    why: 'the pages that an app asks for one after the other fit together only if the order is known',
    async run(probe, { owner }) {
      const ids = await idsOf(probe, owner)
      checkSame(ids, ascending(ids), 'the list holds survey')
    },
  },
  {
    id: 'SP-05',
    title: 'total_size is how many surveys the owner has, on every page and past the end',
    why: 'apps count their pages by it; a page past the end is empty, not an error',
    async run(probe, { owner: { ids, surveyIds } }) {
      const total = surveyIds.length
      for (const offset of [0, 1, total - 1, total, total + 1_000]) {
        const { surveys, totalSize } = await probe.answer(listSurveys, { owner: ids, offset: BigInt(offset), limit: 1 })
        check(totalSize === BigInt(total), `total_size is ${totalSize}, not ${total}`)
        check(offset < total || surveys.length === 0, `${surveys.length} surveys are past the end`)
      }
    },
  },
  {
    id: 'SP-06',
    title: 'pages of 1, 7 and 100 hold the same surveys in the same order',
    why: 'an app that asks for other pages must not miss a survey, or get one twice',
    async run(probe, { owner }) {
      const expected = await idsOf(probe, owner)
      for (const limit of [1, 7, MAX_PAGE]) {
        for (let offset = 0; offset < expected.length; offset += limit) {
          const { surveys } = await probe.answer(listSurveys, { owner: owner.ids, offset: BigInt(offset), limit })
          const what = `the page of ${limit} from ${offset} holds survey`
          checkSame(surveys.map(idOf), expected.slice(offset, offset + limit), what)
        }
      }
    },
  },
  {
    id: 'SP-07',
    title: 'a survey of another owner is NOT_FOUND, with the message of one that never existed',
    why: 'whoever can tell them apart learns which ids exist, and whose they are not',
    async run(probe, { owner: { ids }, other, missingSurveyId }) {
      const messages: string[] = []
      for (const surveyId of [missingSurveyId, ...other.surveyIds]) {
        const message = await probe.refusal(getSurvey, { owner: ids, surveyId }, Code.NotFound)
        messages.push(message.replaceAll(String(surveyId), 'ID'))
      }
      checkSame(
        messages,
        messages.map(() => messages[0]),
        'the message is',
      )
    },
  },
  {
    id: 'SP-08',
    title: 'each survey of a list names its owner, who is the one that was asked for',
    why: 'survey-auth compares the two, and shows nothing of an answer in which they differ',
    async run(probe, { owner, other }) {
      for (const { ids } of [owner, other]) {
        const { surveys } = await probe.answer(listSurveys, { owner: ids, limit: MAX_PAGE })
        for (const row of surveys) checkOwner(row.owner, ids, `survey ${idOf(row)}`)
      }
    },
  },
  {
    id: 'SP-09',
    title: 'an owner whom nobody knows has an empty list',
    why: 'a user of survey-auth may have no surveys, or no account on the platform: the app shows an empty list, not an error',
    async run(probe, { missingOwner }) {
      checkEmpty(await probe.answer(listSurveys, { owner: missingOwner, limit: MAX_PAGE }), missingOwner)
    },
  },
  {
    id: 'SP-10',
    title: 'GetSurvey answers the survey that was asked for, with its owner',
    why: 'survey-auth compares both, and shows nothing of an answer in which they differ',
    async run(probe, { owner, other }) {
      for (const { ids, surveyIds } of [owner, other]) {
        for (const surveyId of surveyIds) {
          const answer = await probe.answer(getSurvey, { owner: ids, surveyId })
          check(answer.survey?.id === surveyId, `the survey is ${answer.survey?.id}, not ${surveyId}`)
          checkOwner(answer.owner, ids, `survey ${surveyId}`)
        }
      }
    },
  },
  {
    id: 'SP-11',
    title: 'a survey has the hash, title and state that it has in the list',
    why: 'an app shows the list, then the survey: to its user they are one thing',
    async run(probe, { owner: { ids } }) {
      const { surveys } = await probe.answer(listSurveys, { owner: ids, limit: MAX_PAGE })
      for (const { survey: listed } of surveys) {
        const { survey } = await probe.answer(getSurvey, { owner: ids, surveyId: listed?.id ?? 0n })
        for (const member of ['hash', 'title', 'state'] as const) {
          checkSame([survey?.[member]], [listed?.[member]], `the ${member} of survey ${listed?.id} is`)
        }
      }
    },
  },
  {
    id: 'SP-12',
    title: 'a limit of 0, -1 or 101 and a negative offset are INVALID_ARGUMENT',
    why: 'a request that is answered in part, or with everything there is, hides a defect on the other side',
    async run(probe, { owner: { ids: owner } }) {
      for (const limit of [0, -1, MAX_PAGE + 1])
        await probe.refusal(listSurveys, { owner, limit }, Code.InvalidArgument)
      await probe.refusal(listSurveys, { owner, offset: -1n, limit: 1 }, Code.InvalidArgument)
    },
  },
  {
    id: 'SP-13',
    title: 'a survey_id of 0 or -1 is INVALID_ARGUMENT',
    why: '0 is what protobuf makes of an id that was not set: the defect is the caller’s, and no survey is missing',
    async run(probe, { owner: { ids: owner } }) {
      for (const surveyId of [0n, -1n]) await probe.refusal(getSurvey, { owner, surveyId }, Code.InvalidArgument)
    },
  },
  {
    id: 'SP-14',
    title: 'a request without owner is INVALID_ARGUMENT',
    why: 'without an owner there is nobody whose surveys could be answered: it must never mean everybody’s',
    async run(probe, { owner: { surveyIds } }) {
      await probe.refusal(listSurveys, { limit: 1 }, Code.InvalidArgument)
      for (const surveyId of surveyIds) await probe.refusal(getSurvey, { surveyId }, Code.InvalidArgument)
    },
  },
  {
    id: 'SP-15',
    title: 'an owner with one id empty and the other unknown has no survey',
    why: 'users of survey-auth need not have an id of the platform: an empty one must not find surveys that lack an owner',
    async run(probe, { owner, missingOwner: { externalId, userId } }) {
      const unknown = externalId || userId
      await checkOwnsNothing(probe, { externalId: '', userId: unknown }, owner)
      await checkOwnsNothing(probe, { externalId: unknown, userId: '' }, owner)
    },
  },
  {
    id: 'SP-16',
    title: 'every survey keeps within the bounds of the record, by itself and in the list',
    why: 'survey-auth refuses a survey that does not, and its user cannot read it; the bounds are in survey.proto',
    async run(probe, { owner, other }) {
      for (const { ids, surveyIds } of [owner, other]) {
        const { surveys } = await probe.answer(listSurveys, { owner: ids, limit: MAX_PAGE })
        for (const row of surveys) checkRules(summaryRules(row), `survey ${idOf(row)} of the list`)
        for (const surveyId of surveyIds) {
          const { survey } = await probe.answer(getSurvey, { owner: ids, surveyId })
          check(survey !== undefined, `survey ${surveyId} is missing`)
          checkRules(surveyRules(survey), `survey ${surveyId}`)
          const contradiction = contradictionIn(survey)
          check(contradiction === undefined, `survey ${surveyId}: ${contradiction}`)
          const bytes = toBinary(SurveySchema, survey).length
          check(bytes <= MAX_SURVEY_BYTES, `survey ${surveyId} has ${bytes} bytes, more than ${MAX_SURVEY_BYTES}`)
        }
      }
    },
  },
  {
    id: 'SP-17',
    title: 'an id that differs in case, an accent or a space at its end is another owner’s',
    why: 'many databases take such texts for equal: then one user reads the surveys of another',
    async run(probe, { owner, other, missingOwner }) {
      const known = [owner.ids, other.ids, missingOwner].map((ids) => JSON.stringify(ids))
      const strangers = idsLike(owner.ids).filter((ids) => !known.includes(JSON.stringify(ids)))
      for (const ids of strangers) await checkOwnsNothing(probe, ids, owner)
    },
  },
  {
    id: 'SP-18',
    title: 'an id is text and nothing else, whatever it holds',
    why: 'ids of other scripts are looked up like any other; a quote or a wildcard in one must not reach a query as such',
    async run(probe, { owner }) {
      for (const text of ['用户-é-😀', `' OR '1'='1`, '%', '_', '*', '../..', '{"$ne":null}']) {
        await checkOwnsNothing(probe, { externalId: text, userId: text }, owner)
      }
    },
  },
  {
    id: 'SP-19',
    title: 'the largest survey_id is NOT_FOUND, and the largest offset is past the end',
    why: 'ids have up to 53 bits: a column or variable of 32 overflows into an error, or into another id',
    async run(probe, { owner: { ids: owner } }) {
      await probe.refusal(getSurvey, { owner, surveyId: LARGEST }, Code.NotFound)
      const { surveys } = await probe.answer(listSurveys, { owner, offset: LARGEST, limit: MAX_PAGE })
      check(surveys.length === 0, `${surveys.length} surveys are past the end`)
    },
  },
  {
    id: 'SP-20',
    title: 'what is not claimed, and what there is not, is UNIMPLEMENTED',
    why: 'survey-auth goes by what is claimed; an empty answer instead would be taken for the truth',
    async run(probe, { owner: { ids: owner, surveyIds } }) {
      const { capabilities } = await probe.answer(getProviderInfo, {})
      await probe.refusal({ ...getProviderInfo, name: 'NoSuchMethod' }, {}, Code.Unimplemented)
      if (capabilities.includes(ProviderCapability.ANSWERS)) return
      for (const surveyId of surveyIds) {
        await probe.refusal(listAnswers, { owner, surveyId, limit: 1 }, Code.Unimplemented)
        await probe.refusal(getAnswer, { owner, surveyId, answerId: 1n }, Code.Unimplemented)
      }
    },
  },
  {
    id: 'SP-21',
    title: 'every answer comes within 1.5 s, by 20 callers at once too',
    why: 'survey-auth waits no longer, because the apps in front of it give up at 2 s',
    async run(probe, { owner: { ids: owner, surveyIds } }) {
      const calls = [
        () => probe.call(getProviderInfo, {}),
        () => probe.call(listSurveys, { owner, limit: MAX_PAGE }),
        ...surveyIds.map((surveyId) => () => probe.call(getSurvey, { owner, surveyId })),
      ]
      for (const call of calls) checkQuick(await call())
    },
  },
  {
    id: 'SP-22',
    title: 'a call that is cancelled does no harm to those after it',
    why: 'apps close connections all the time; whatever a call holds (a connection, a transaction) must be free again',
    async run(probe, { owner }) {
      const [surveyId = 0n] = owner.surveyIds
      for (const afterMs of [0, 1, 5]) {
        await probe.cancel(listSurveys, { owner: owner.ids, limit: MAX_PAGE }, afterMs)
        await probe.cancel(getSurvey, { owner: owner.ids, surveyId }, afterMs)
        await probe.answer(listSurveys, { owner: owner.ids, limit: MAX_PAGE })
        await probe.answer(getSurvey, { owner: owner.ids, surveyId })
      }
    },
  },
]

const infoRules = compileRules(GetProviderInfoResponseSchema)
const surveyRules = compileRules(SurveySchema)

type Row = ListSurveysResponse['surveys'][number]

/** A row of a list has the bounds of the survey. */
function summaryRules({ survey }: Row): Violation | undefined {
  const { id, hash, title, state } = survey ?? create(SurveySummarySchema)
  return surveyRules(create(SurveySchema, { id, hash, title, state }))
}

function idOf({ survey }: Row): bigint {
  return survey?.id ?? 0n
}

function ascending(ids: readonly bigint[]): bigint[] {
  return [...ids].sort((a, b) => Number(a - b))
}

/** The list by the largest pages; no further than the owner has surveys. */
async function idsOf(probe: Probe, { ids, surveyIds }: OwnerFixture): Promise<bigint[]> {
  const found: bigint[] = []
  for (let offset = 0; offset < surveyIds.length; offset += MAX_PAGE) {
    const { surveys } = await probe.answer(listSurveys, { owner: ids, offset: BigInt(offset), limit: MAX_PAGE })
    found.push(...surveys.map(idOf))
  }
  return found
}

function checkEmpty({ surveys, totalSize }: ListSurveysResponse, ids: OwnerIds): void {
  check(
    surveys.length === 0 && totalSize === 0n,
    `${JSON.stringify(ids)} has ${surveys.length} surveys of ${totalSize}`,
  )
}

/** That these ids open nothing, and break nothing. */
async function checkOwnsNothing(probe: Probe, ids: OwnerIds, { surveyIds }: OwnerFixture): Promise<void> {
  checkEmpty(await probe.answer(listSurveys, { owner: ids, limit: MAX_PAGE }), ids)
  for (const surveyId of surveyIds) {
    const { code } = await probe.call(getSurvey, { owner: ids, surveyId })
    check(code !== undefined, `${JSON.stringify(ids)} gets survey ${surveyId}`)
    check(code !== Code.Internal && code !== Code.Unknown, `GetSurvey fails with ${codeName(code)}`)
  }
}
