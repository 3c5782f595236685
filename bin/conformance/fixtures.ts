// The file that tells the kit what the provider under test holds.
import { z } from 'zod'
import { parseExactly } from '../exact-json.js'
import { CommandError, EXIT } from '../exit.js'

/** A user as a request names them. */
export interface OwnerIds {
  readonly externalId: string
  readonly userId: string
}

export interface OwnerFixture {
  readonly ids: OwnerIds
  /** All surveys of theirs, ascending. */
  readonly surveyIds: readonly bigint[]
}

export interface Fixtures {
  /** Who asks. */
  readonly owner: OwnerFixture
  /** Whose surveys they must not see. */
  readonly other: OwnerFixture
  readonly missingOwner: OwnerIds
  readonly missingSurveyId: bigint
  /** A survey of `owner` with all its answers; undefined when the file has none. */
  readonly answers: { readonly surveyId: bigint; readonly count: number } | undefined
}

const id = z.int().min(1)
const ids = { external_id: z.string().min(1).max(255).optional(), user_id: z.string().min(1).max(128).optional() }
type Ids = { readonly [name in keyof typeof ids]?: string | undefined }
const isNamed = ({ external_id, user_id }: Ids) => external_id !== undefined || user_id !== undefined
const UNNAMED = 'needs external_id or user_id'

const owner = z.strictObject(ids).refine(isNamed, UNNAMED).transform(toIds)

/** An owner with at least `min` surveys. */
function owned(min: number) {
  return z
    .strictObject({ ...ids, surveys: z.array(id).min(min).max(1_000) })
    .refine(isNamed, UNNAMED)
    .transform(({ surveys, ...named }): OwnerFixture => {
      return { ids: toIds(named), surveyIds: surveys.sort((a, b) => a - b).map(BigInt) }
    })
}

function toIds({ external_id: externalId = '', user_id: userId = '' }: Ids): OwnerIds {
  return { externalId, userId }
}

const file = z
  .strictObject({
    owners: z.tuple([owned(2), owned(1)]),
    missing_owner: owner,
    missing_survey: id,
    answers: z.strictObject({ survey_id: id, count: z.int().min(8).max(10_000) }).optional(),
  })
  .transform(
    ({ owners: [owner, other], missing_owner, missing_survey, answers }): Fixtures => ({
      owner,
      other,
      missingOwner: missing_owner,
      missingSurveyId: BigInt(missing_survey),
      answers: answers && { surveyId: BigInt(answers.survey_id), count: answers.count },
    }),
  )

/** @param source its name, for messages. @throws CommandError that names every fault */
export function parseFixtures(source: string, text: string): Fixtures {
  const parsed = file.safeParse(jsonIn(source, text), { reportInput: false })
  const faults = parsed.success ? contradictionsIn(parsed.data) : parsed.error.issues.map(inWords)
  if (parsed.success && faults.length === 0) return parsed.data
  throw unusable(source, faults.join('; '))
}

export function unusable(source: string, fault: string): CommandError {
  return new CommandError(
    `${source} cannot be used: ${fault}`,
    EXIT.usage,
    'what it must hold: docs/provider-conformance.md',
  )
}

function jsonIn(source: string, text: string): unknown {
  try {
    return parseExactly(text.replace(/^\ufeff/, ''))
  } catch (error) {
    throw unusable(source, error instanceof Error ? error.message : 'it is not JSON')
  }
}

function inWords({ path, message }: z.core.$ZodIssue): string {
  return `${path.join('.') || 'the file'}: ${message}`
}

/** What is not so in itself: members that are right by themselves. */
function contradictionsIn({ owner, other, missingOwner, missingSurveyId, answers }: Fixtures): string[] {
  const surveyIds = [...owner.surveyIds, ...other.surveyIds]
  const names = [owner.ids, other.ids, missingOwner].flatMap(({ externalId, userId }) => [
    `e${externalId}`,
    `u${userId}`,
  ])
  const given = names.filter((name) => name.length > 1)
  const found = [
    new Set(surveyIds).size < surveyIds.length && 'owners: a survey is named twice',
    new Set(given).size < given.length && 'two owners have the same id',
    surveyIds.includes(missingSurveyId) && 'missing_survey: an owner has it',
    answers && !owner.surveyIds.includes(answers.surveyId) && 'answers.survey_id: the first owner does not have it',
  ]
  return found.filter((one) => typeof one === 'string')
}
