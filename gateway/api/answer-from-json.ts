// Reads an answer from JSON in the shape of the answers endpoints (decisions 51), which answer-to-json.ts writes. Ids and short texts
// may be numbers, times also Unix seconds.
import { create } from '@bufbuild/protobuf'
import { type Timestamp, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { z } from 'zod'
import { type Answer, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import { MAX_UNIX_SECONDS } from './survey-to-json.js'

/** Of an answer. What else is given, such as addresses and accounts of respondents, is not read. */
export const ANSWER_MEMBERS: readonly string[] = [
  'answer_id',
  'survey_id',
  'openid',
  'respondent_id',
  'started_at',
  'ended_at',
  'score',
  'answer',
]

/** Text that is not Unicode would become U+FFFD on its way. */
const string = z.string().refine((text) => text.isWellFormed(), 'holds one half of a surrogate pair')
/** null is none. */
const text = z
  .union([string, z.number()])
  .nullish()
  .transform((value) => String(value ?? ''))
const number = z
  .union([z.int().min(0), z.string().regex(/^\d{1,16}$/)])
  .nullish()
  .transform((value) => BigInt(value ?? 0))
const list = <Item extends z.ZodType>(item: Item) =>
  z
    .array(item)
    .nullish()
    .transform((items) => items ?? [])

const SHANGHAI = /^(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2})$/
const seconds = z.int().min(0).max(MAX_UNIX_SECONDS)
const time = z
  .union(
    [
      seconds,
      string
        .transform((text) => (text === '' ? 0 : Date.parse(text.replace(SHANGHAI, '$1T$2+08:00')) / 1000))
        .pipe(seconds),
    ],
    'must be YYYY-MM-DD HH:MM:SS in Asia/Shanghai, or seconds since 1970',
  )
  .nullish()

const optionJson = z.object({ id: text, checked: z.union([z.number(), z.string(), z.boolean()]).default(1), text })
/** One that is listed but was not chosen is left out. */
const options = list(optionJson).transform((all) => all.filter(({ checked }) => !NOT_CHECKED.has(checked)))
const NOT_CHECKED: ReadonlySet<unknown> = new Set([0, '0', '', false])

const questionJson = z.object({
  id: text,
  type: text,
  sub_type: text,
  text,
  options,
  groups: list(z.object({ id: text, text, options })),
  blanks: list(z.object({ id: text, value: text })),
})

const answerJson = z.object(
  {
    answer_id: number,
    survey_id: number,
    respondent_id: text,
    started_at: time,
    ended_at: time,
    score: z.number().nullish(),
    /** Not to be left out: an answer whose member has another name would be stored empty, and could not be mended. */
    answer: z.array(z.object({ id: text, questions: list(questionJson) }), 'must be a list of pages'),
  },
  'must be an object',
)

/** @throws Error that names the path and what is wrong there, one line per finding */
export function answerFromJson(json: unknown): Answer {
  const parsed = answerJson.safeParse(json)
  if (!parsed.success) {
    throw new Error(
      parsed.error.issues
        .map(({ path, message }) => [...(path.length > 0 ? [path.join('.')] : []), message].join(': '))
        .join('\n'),
    )
  }
  const { answer_id, survey_id, respondent_id, started_at, ended_at, score, answer } = parsed.data
  return create(AnswerSchema, {
    answerId: answer_id,
    surveyId: survey_id,
    respondentId: respondent_id === '0' ? '' : respondent_id,
    startTime: timestampOf(started_at),
    endTime: timestampOf(ended_at),
    ...(typeof score === 'number' && { score }),
    pages: answer.map(({ id, questions }) => ({
      id,
      questions: questions.map(({ sub_type: subType, ...question }) => ({ ...question, subType })),
    })),
  })
}

/** undefined for 0, which means unset. */
function timestampOf(unixSeconds: number | null | undefined): Timestamp | undefined {
  return unixSeconds ? timestampFromMs(unixSeconds * 1000) : undefined
}
