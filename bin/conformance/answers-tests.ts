// Profile answers: what a provider does that claims PROVIDER_CAPABILITY_ANSWERS. They ask about the survey whose answers the
// fixtures count.
import { equals } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { Code } from '@connectrpc/connect'
import { type ListAnswersRequest, SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type Answer, type AnsweredQuestion, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import type { Question } from '../../gen/surveyauth/v1/survey_pb.js'
import { compileRules } from '../../services/rpc/validation.js'
import { check, checkRules, checkSame } from './check.js'
import type { Fixtures } from './fixtures.js'
import type { KitTest } from './kit-test.js'
import { checkOwner } from './owners.js'
import { checkQuick, type Probe } from './probe.js'

const { getSurvey, listAnswers, getAnswer } = SurveyProvider.method

const MAX_PAGE = 1_000
/** Small pages are asked for this often, from the first answer on. */
const SMALL_PAGES = 50
const LARGEST = BigInt(Number.MAX_SAFE_INTEGER)

export const answersTests: readonly KitTest[] = [
  {
    id: 'SP-31',
    title: 'the answers are ascending by id, and above after_answer_id',
    why: 'an app reads on from the last id it has seen; an answer that comes again is counted twice',
    async run(probe, fixtures) {
      for await (const { after, answers } of pagesOf(probe, fixtures, 7, { most: SMALL_PAGES })) {
        const ids = answers.map(({ answerId }) => answerId)
        check(
          ids.every((id) => id > after),
          `an id is not above after_answer_id ${after}: ${ids}`,
        )
        check(
          ids.every((id, at) => id > (ids[at - 1] ?? 0n)),
          `the ids do not ascend: ${ids}`,
        )
      }
    },
  },
  {
    id: 'SP-32',
    title: 'pages of 1, 7 and 1000 hold the same answers in the same order',
    why: 'an app that asks for other pages must not miss an answer, or get one twice',
    async run(probe, fixtures) {
      const all = await allAnswers(probe, fixtures)
      for (const limit of [1, 7]) {
        const pages = await collected(pagesOf(probe, fixtures, limit, { most: SMALL_PAGES }))
        const found = pages.flatMap(({ answers }) => answers)
        const expected = pages.length < SMALL_PAGES ? all : all.slice(0, found.length)
        checkSameAnswers(found, expected, `the pages of ${limit} hold`)
      }
    },
  },
  {
    id: 'SP-33',
    title: 'every answer is in the list, and total_size counts them wherever after_answer_id stands',
    why: 'an app tells by it how far it has come',
    async run(probe, fixtures) {
      const { count } = answersOf(fixtures)
      const pages = await collected(pagesOf(probe, fixtures, MAX_PAGE))
      const found = pages.flatMap(({ answers }) => answers).length
      check(found === count, `the list holds ${found} answers, not ${count}`)
      for (const { totalSize } of pages) check(totalSize === BigInt(count), `total_size is ${totalSize}, not ${count}`)
    },
  },
  {
    id: 'SP-34',
    title: 'after the last answer the list is empty',
    why: 'an empty page is how an app knows that it has seen all; an error would make it start again',
    async run(probe, fixtures) {
      const last = (await allAnswers(probe, fixtures)).at(-1)?.answerId ?? 0n
      for (const afterAnswerId of [last, LARGEST]) {
        const { answers } = await probe.answer(listAnswers, { ...asked(fixtures), afterAnswerId, limit: MAX_PAGE })
        check(answers.length === 0, `${answers.length} answers are after ${afterAnswerId}`)
      }
    },
  },
  {
    id: 'SP-35',
    title: 'since is inclusive and until exclusive, both by end_time, and total_size counts what is between',
    why: 'an app that reads day by day must get every answer once',
    async run(probe, fixtures) {
      const all = await allAnswers(probe, fixtures)
      const at = all[Math.floor(all.length / 2)]?.endTime
      check(at !== undefined, 'an answer has no end_time')
      const isBefore = ({ endTime }: Answer) => endTime !== undefined && timestampMs(endTime) < timestampMs(at)
      for (const [filter, expected] of [
        [{ since: at }, all.filter((answer) => !isBefore(answer))],
        [{ until: at }, all.filter(isBefore)],
        [{ since: at, until: at }, []],
      ] as const) {
        const pages = await collected(pagesOf(probe, fixtures, MAX_PAGE, { filter }))
        const what = `${Object.keys(filter).join(' and ')} at ${at.seconds}`
        checkSameAnswers(
          pages.flatMap(({ answers }) => answers),
          expected,
          `with ${what} the list holds`,
        )
        const total = BigInt(expected.length)
        for (const { totalSize } of pages)
          check(totalSize === total, `with ${what} total_size is ${totalSize}, not ${total}`)
      }
    },
  },
  {
    id: 'SP-36',
    title: 'GetAnswer answers what the list holds',
    why: 'an app may read either; an answer is submitted once and does not change between two calls',
    async run(probe, fixtures) {
      for (const listed of some(await allAnswers(probe, fixtures))) {
        const { answer } = await probe.answer(getAnswer, { ...asked(fixtures), answerId: listed.answerId })
        check(
          answer !== undefined && equals(AnswerSchema, answer, listed),
          `answer ${listed.answerId} differs from the list’s`,
        )
      }
    },
  },
  {
    id: 'SP-37',
    title: 'answers of a survey of another owner are NOT_FOUND, with the message of one that never existed',
    why: 'whoever can tell them apart learns which surveys exist and that they were answered',
    async run(probe, fixtures) {
      const { surveyId } = answersOf(fixtures)
      const [first] = await allAnswers(probe, fixtures)
      const owner = fixtures.other.ids
      const messages: string[] = []
      for (const id of [fixtures.missingSurveyId, surveyId]) {
        const list = await probe.refusal(listAnswers, { owner, surveyId: id, limit: MAX_PAGE }, Code.NotFound)
        const one = { owner, surveyId: id, answerId: first?.answerId ?? 1n }
        const answer = await probe.refusal(getAnswer, one, Code.NotFound)
        messages.push(`${list}, ${answer}`.replaceAll(String(id), 'ID'))
      }
      checkSame(
        messages,
        messages.map(() => messages[0]),
        'the messages are',
      )
    },
  },
  {
    id: 'SP-38',
    title: 'an answer that there is not is NOT_FOUND',
    why: 'an app may hold the id of an answer that was deleted since',
    async run(probe, fixtures) {
      await probe.refusal(getAnswer, { ...asked(fixtures), answerId: LARGEST }, Code.NotFound)
    },
  },
  {
    id: 'SP-39',
    title:
      'a limit of 0, -1 or 1001, a negative after_answer_id, an answer_id or survey_id of 0 and a missing owner are INVALID_ARGUMENT',
    why: 'a cursor or limit that is ignored sends an app the first page for ever',
    async run(probe, fixtures) {
      const { owner, surveyId } = asked(fixtures)
      for (const wrong of [
        { owner, surveyId, limit: 0 },
        { owner, surveyId, limit: -1 },
        { owner, surveyId, limit: MAX_PAGE + 1 },
        { owner, surveyId, afterAnswerId: -1n, limit: 1 },
        { owner, surveyId: 0n, limit: 1 },
        { surveyId, limit: 1 },
      ]) {
        await probe.refusal(listAnswers, wrong, Code.InvalidArgument)
      }
      for (const wrong of [
        { owner, surveyId },
        { owner, answerId: 1n },
        { surveyId, answerId: 1n },
      ]) {
        await probe.refusal(getAnswer, wrong, Code.InvalidArgument)
      }
    },
  },
  {
    id: 'SP-40',
    title: 'every answer is of its survey, and keeps within the bounds of the record',
    why: 'survey-auth refuses an answer that does not, and an app cannot read on past it; the bounds are in answer.proto',
    async run(probe, fixtures) {
      const { surveyId } = answersOf(fixtures)
      await checkEach(probe, fixtures, (answer) => {
        const named = `answer ${answer.answerId}`
        checkRules(answerRules(answer), named)
        check(answer.surveyId === surveyId, `${named} is of survey ${answer.surveyId}`)
        check(answer.endTime !== undefined && answer.endTime.seconds >= 0n, `${named} has no end_time from 1970 on`)
        const began = answer.startTime?.seconds ?? 0n
        check(
          began >= 0n && began <= answer.endTime.seconds,
          `${named} has a start_time before 1970, or after its end_time`,
        )
        check(Number.isFinite(answer.score ?? 0), `${named} has a score that is not finite`)
      })
    },
  },
  {
    id: 'SP-41',
    title: 'the text of a star or nps is a whole number',
    why: 'apps calculate with it',
    async run(probe, fixtures) {
      await checkEach(probe, fixtures, (answer) => {
        const wrong = questionsOf(answer).find(({ type, text }) => STARS.includes(type) && !/^\d{1,4}$/.test(text))
        check(!wrong, `${wrong?.id} of answer ${answer.answerId} has the text ${JSON.stringify(wrong?.text)}`)
      })
    },
  },
  {
    id: 'SP-42',
    title: 'what was answered is a question of the survey, and what was chosen one of its options',
    why: 'an app finds by these ids what a person was asked',
    async run(probe, fixtures) {
      const { owner, surveyId } = asked(fixtures)
      const { survey } = await probe.answer(getSurvey, { owner, surveyId })
      const questions = new Map(survey?.pages.flatMap((page) => page.questions).map((one) => [one.id, one]))
      await checkEach(probe, fixtures, (answer) => {
        for (const answered of questionsOf(answer)) {
          const stranger = strangerIn(answered, questions.get(answered.id))
          check(stranger === undefined, `${stranger} in answer ${answer.answerId} is not of the survey`)
        }
      })
    },
  },
  {
    id: 'SP-43',
    title: 'every answer names the owner who was asked for',
    why: 'survey-auth compares the two, and shows nothing of an answer in which they differ',
    async run(probe, fixtures) {
      const list = await probe.answer(listAnswers, { ...asked(fixtures), limit: 1 })
      checkOwner(list.owner, fixtures.owner.ids, 'the list')
      const answerId = list.answers[0]?.answerId ?? 1n
      const { owner } = await probe.answer(getAnswer, { ...asked(fixtures), answerId })
      checkOwner(owner, fixtures.owner.ids, `answer ${answerId}`)
    },
  },
  {
    id: 'SP-44',
    title: 'every page of 1000 and every single answer comes within 1.5 s, by 20 callers at once too',
    why: 'survey-auth waits no longer, because the apps in front of it give up at 2 s',
    async run(probe, fixtures) {
      const all = await allAnswers(probe, fixtures)
      for (const afterAnswerId of [0n, ...some(all).map(({ answerId }) => answerId)]) {
        checkQuick(await probe.call(listAnswers, { ...asked(fixtures), afterAnswerId, limit: MAX_PAGE }))
      }
      for (const { answerId } of some(all)) checkQuick(await probe.call(getAnswer, { ...asked(fixtures), answerId }))
    },
  },
]

const answerRules = compileRules(AnswerSchema)
const STARS: readonly string[] = ['star', 'nps']
/** Their options are in levels. */
const CHAINED = 'chained_selects'

function answersOf({ answers }: Fixtures): NonNullable<Fixtures['answers']> {
  if (!answers) throw new Error('the tests of answers run only with a survey that has some')
  return answers
}

function asked(fixtures: Fixtures) {
  return { owner: fixtures.owner.ids, surveyId: answersOf(fixtures).surveyId }
}

interface AnswerPage {
  readonly after: bigint
  readonly answers: readonly Answer[]
  readonly totalSize: bigint
}

/**
 * The pages up to the empty one; up to `most` of them, and none that does not lead on. Each is asked for when it is wanted, so that
 * what is wrong with one is reported with its call.
 */
async function* pagesOf(
  probe: Probe,
  fixtures: Fixtures,
  limit: number,
  {
    most = Number.POSITIVE_INFINITY,
    filter = {},
  }: { most?: number; filter?: Pick<ListAnswersRequest, 'since' | 'until'> } = {},
): AsyncGenerator<AnswerPage> {
  let after = 0n
  for (let count = 0; count < most; count += 1) {
    const request = { ...asked(fixtures), ...filter, afterAnswerId: after, limit }
    const { answers, totalSize } = await probe.answer(listAnswers, request)
    check(answers.length <= limit, `a page of ${limit} holds ${answers.length} answers`)
    const last = answers.at(-1)?.answerId
    if (last !== undefined && last <= after) return
    yield { after, answers, totalSize }
    if (last === undefined) return
    after = last
  }
}

async function collected(pages: AsyncIterable<AnswerPage>): Promise<AnswerPage[]> {
  const all: AnswerPage[] = []
  for await (const page of pages) all.push(page)
  return all
}

async function allAnswers(probe: Probe, fixtures: Fixtures): Promise<Answer[]> {
  return (await collected(pagesOf(probe, fixtures, MAX_PAGE))).flatMap(({ answers }) => [...answers])
}

/** Checks every answer while the page that it came in is the last call. */
async function checkEach(probe: Probe, fixtures: Fixtures, checkOne: (answer: Answer) => void): Promise<void> {
  for await (const { answers } of pagesOf(probe, fixtures, MAX_PAGE)) answers.forEach(checkOne)
}

/** The first, the last, and the one in the middle. */
function some(answers: readonly Answer[]): Answer[] {
  return [0, Math.floor(answers.length / 2), answers.length - 1].flatMap((at) => answers[at] ?? [])
}

function checkSameAnswers(found: readonly Answer[], expected: readonly Answer[], what: string): void {
  checkSame(
    found.map(({ answerId }) => answerId),
    expected.map(({ answerId }) => answerId),
    `${what} answer`,
  )
  const at = found.findIndex((answer, index) => !equals(AnswerSchema, answer, expected[index] ?? answer))
  check(at === -1, `${what} answer ${found[at]?.answerId} with another content`)
}

function questionsOf({ pages }: Answer): AnsweredQuestion[] {
  return pages.flatMap(({ questions }) => questions)
}

/** An id that the question does not have; undefined if it has all. */
function strangerIn({ id, options, groups }: AnsweredQuestion, question: Question | undefined): string | undefined {
  if (!question) return `question ${id}`
  if (question.type === CHAINED) return undefined
  const known = new Set(question.options.map((option) => option.id))
  const rows = new Set(question.subTitles.map((row) => row.id))
  const row = groups.find((group) => !rows.has(group.id))
  if (row) return `row ${row.id} of question ${id}`
  const option = [...options, ...groups.flatMap((group) => group.options)].find((one) => !known.has(one.id))
  return option && `option ${option.id} of question ${id}`
}
