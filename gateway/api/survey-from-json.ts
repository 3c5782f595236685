// Reads a survey from JSON in the shape of the detail endpoint (decisions 26), which survey-to-json.ts writes.
// Derived members are not read; all others that have no field of their own are kept as they came.
import { create, type JsonObject, type MessageInitShape } from '@bufbuild/protobuf'
import { type Timestamp, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { z } from 'zod'
import {
  type PageSchema,
  type QuestionSchema,
  type Survey,
  SurveyScene,
  SurveySceneSchema,
  SurveySchema,
  SurveyState,
} from '../../gen/surveyauth/v1/survey_pb.js'
import { MAX_UNIX_SECONDS } from './survey-to-json.js'

/** Every type of question there is, in the order of decisions 26. */
export const QUESTION_TYPES = [
  'radio',
  'checkbox',
  'select',
  'text',
  'textarea',
  'blanks',
  'star',
  'nps',
  'sort',
  'matrix_radio',
  'matrix_checkbox',
  'matrix_star',
  'matrix_blank',
  'chained_selects',
  'upload',
  'description',
  'datetime',
  'signature',
  'address',
  'phone',
  'sheet',
] as const

/** Text that is not Unicode would become U+FFFD on its way; the other entry points refuse it when they decode. */
const string = z.string().refine((text) => text.isWellFormed(), 'holds one half of a surrogate pair')
const id = string.max(128)
/** An object is kept as it came, beside the field. */
const goto: z.ZodType<string | Readonly<Record<string, unknown>>> = z.union(
  [string.max(128), z.record(z.string(), z.unknown())],
  'must be text or an object',
)
const text = string.max(20_000)
const unixSeconds = z.int().min(0).max(MAX_UNIX_SECONDS).default(0)
const int32 = z.int32()

/** Of a survey: they follow from others, or from who asks. */
const DERIVED: readonly string[] = ['page_count', 'topic_count', 'started_at', 'end_at', 'creator_user_id']

/** An object of these members. What has no field of its own is `extra`, which is undefined when that is nothing. */
function recordOf<S extends z.ZodRawShape>(shape: S) {
  return z.looseObject(shape).transform((given) => {
    const isOwn = ([name, value]: [string, unknown]) =>
      Object.hasOwn(shape, name) && !(name === 'goto' && typeof value === 'object')
    const members = Object.entries(given)
    const others = members.filter((member) => !isOwn(member) && !DERIVED.includes(member[0]))
    const extra = others.length === 0 ? undefined : (Object.fromEntries(others) as JsonObject)
    return { ...(Object.fromEntries(members.filter(isOwn)) as Own<S>), extra }
  })
}
type Own<S extends z.ZodRawShape> = Omit<z.output<z.ZodObject<S>>, 'goto'> & { readonly goto?: string }

const optionJson = recordOf({
  id: id.optional(),
  text: text.default(''),
  exclusive: z.boolean().default(false),
  goto: goto.optional(),
})

const subTitleJson = recordOf({ id: id.optional(), text: text.default('') })

const questionJson = recordOf({
  id: id.optional(),
  index: int32.optional(),
  type: z.enum(QUESTION_TYPES),
  sub_type: string.max(64).default(''),
  title: text.default(''),
  description: text.default(''),
  required: z.boolean().default(false),
  goto: goto.optional(),
  options: z.array(optionJson).max(2000).default([]),
  starNum: int32.optional(),
  starBeginNum: int32.optional(),
  subTitles: z.array(subTitleJson).max(1000).default([]),
})

const pageJson = recordOf({
  id: id.optional(),
  index: string.max(16).optional(),
  questions: z.array(questionJson).max(1000).default([]),
})

/** By the text that stands for each. */
const scenes = new Map<string, SurveyScene>(
  SurveySceneSchema.values
    .filter(({ number }) => number !== SurveyScene.UNSPECIFIED)
    .map(({ number }) => [String(number), number]),
)

const surveyJson = recordOf({
  id: z.int().min(0).default(0),
  hash: z
    .string()
    .max(64)
    .regex(/^[A-Za-z0-9._~-]*$/, 'only letters of ASCII, digits and . _ ~ - are allowed')
    .default(''),
  scene: z
    .union([z.string(), z.number()])
    .transform((scene) => scenes.get(String(scene)))
    .refine((scene) => scene !== undefined, `must be one of "${[...scenes.keys()].join('" "')}"`)
    .default(SurveyScene.SURVEY),
  title: string.max(1000),
  prefix: text.default(''),
  suffix: text.default(''),
  state: z
    .union([z.literal(0), z.literal(2), z.literal(3)], 'must be 0 (draft), 2 (collecting) or 3 (paused)')
    .default(0),
  startTime: unixSeconds,
  endTime: unixSeconds,
  createTime: unixSeconds,
  updateTime: unixSeconds,
  pages: z.array(pageJson).max(500).default([]),
})

const states = { 0: SurveyState.DRAFT, 2: SurveyState.COLLECTING, 3: SurveyState.PAUSED } as const

/** undefined for 0, which means unset. */
function timestampOf(unixSeconds: number): Timestamp | undefined {
  return unixSeconds === 0 ? undefined : timestampFromMs(unixSeconds * 1000)
}

/**
 * Reads a survey from parsed JSON. Only `title` and each question's `type` are required: missing
 * ids and indexes follow from the position, an id that is taken being the next free one; a missing `scene` is "1", everything else
 * is empty.
 * Infinity stands for a number that cannot be held exactly.
 * @throws Error that names the path and what is wrong there, one line per finding.
 */
export function surveyFromJson(json: unknown): Survey {
  const parsed = surveyJson.safeParse(json, { error: ({ input }) => describeInput(input) })
  if (!parsed.success) throw new Error(parsed.error.issues.map(describeIssue).join('\n'))
  const { startTime, endTime, createTime, updateTime, pages, ...plain } = parsed.data
  return create(SurveySchema, {
    ...plain,
    id: BigInt(plain.id),
    state: states[plain.state],
    startTime: timestampOf(startTime),
    endTime: timestampOf(endTime),
    createTime: timestampOf(createTime),
    updateTime: timestampOf(updateTime),
    pages: pagesFromJson(pages),
  })
}

function pagesFromJson(pages: readonly z.output<typeof pageJson>[]): MessageInitShape<typeof PageSchema>[] {
  const pageId = idsBeside(pages)
  const questionId = idsBeside(pages.flatMap(({ questions }) => questions))
  return pages.map((page, at) => {
    const number = String(at + 1)
    const questions = page.questions.map((question, questionAt) =>
      questionFromJson(question, questionAt, question.id ?? questionId(`q-${number}`, questionAt)),
    )
    return { ...page, id: page.id ?? pageId('p', at), index: page.index ?? number, questions }
  })
}

function questionFromJson(
  question: z.output<typeof questionJson>,
  at: number,
  id: string,
): MessageInitShape<typeof QuestionSchema> {
  const { sub_type, subTitles, options, starNum, starBeginNum, ...plain } = question
  const idOf = idsBeside([...options, ...subTitles])
  return {
    ...plain,
    id,
    index: plain.index ?? at + 1,
    subType: sub_type,
    options: options.map((option, optionAt) => ({ ...option, id: option.id ?? idOf('o', optionAt) })),
    subTitles: subTitles.map((row, rowAt) => ({ ...row, id: row.id ?? idOf('s', rowAt) })),
    ...(starNum === undefined ? {} : { starNum }),
    ...(starBeginNum === undefined ? {} : { starBeginNum }),
  }
}

/** Makes ids for those that have none, from a prefix and a position; where that one is taken, the next free one. */
function idsBeside(given: readonly { readonly id?: string | undefined }[]): (prefix: string, at: number) => string {
  const taken = new Set(given.map(({ id }) => id))
  const last = new Map<string, number>() // of each prefix, whose positions only grow
  return (prefix, at) => {
    let number = Math.max(at, last.get(prefix) ?? 0) + 1
    while (taken.has(`${prefix}-${number}`)) number += 1
    last.set(prefix, number)
    return `${prefix}-${number}`
  }
}

/** undefined where what was expected says more. */
function describeInput(input: unknown): string | undefined {
  if (input === undefined) return 'is missing'
  return typeof input === 'number' && !Number.isFinite(input) ? 'has more digits than can be kept' : undefined
}

/** `pages[0].questions[2]`; the survey itself is `survey`. */
function pathInJson(path: readonly PropertyKey[]): string {
  const steps = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`))
  return steps.join('').replace(/^\./, '') || 'survey'
}

/** `pages[0].questions[2].type: invalid option …` */
function describeIssue({ path, message }: { readonly path: readonly PropertyKey[]; readonly message: string }): string {
  return `${pathInJson(path)}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
}
