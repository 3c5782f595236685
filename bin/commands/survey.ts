// survey-auth survey: surveys in and out, in the JSON shape of the detail endpoint.
import { toBinary } from '@bufbuild/protobuf'
import type { Command } from 'commander'
import { surveyToJson } from '../../gateway/api/survey-to-json.js'
import { type Survey, SurveySchema, SurveyState, type SurveySummary } from '../../gen/surveyauth/v1/survey_pb.js'
import { type OwnedSurvey, SurveyView } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { inBatches } from '../../services/rpc/batches.js'
import { inParts } from '../../services/storage/in-parts.js'
import { MAX_DOCUMENT_BYTES } from '../../services/survey/import-surveys.js'
import { asSurveyOperator, pagesOf, pagesOfUsers, type SurveyOperator } from '../compose/operator.js'
import { isUnanswered, WHERE_TO_LOOK } from '../exit.js'
import { message, printJson, printJsonPages, printPages, printRows } from '../output.js'
import { command, group, type Json } from './command.js'
import { readFileOrInput } from './input.js'
import { surveyIds } from './options.js'
import { NO_CREATOR, surveysIn } from './survey-file.js'
import { userIdOf } from './usernames.js'

interface ImportOptions extends Json {
  readonly owner: string
}
interface FilterOptions extends Json {
  readonly owner?: string
}

const MAX_FILE_BYTES = 256 * 1024 * 1024
/** Surveys stored in one transaction: the contract's bound, ImportSurveysRequest.surveys. */
const MAX_BATCH = 1000

const IMPORT_NOTES = `
A survey needs a title, and each of its questions a type; docs/api/openapi.yaml has all members. Without an id it is new;
other ids that are missing follow from the position, beside those that are given. Ignored, because computed: page_count,
topic_count, started_at, end_at and creator_user_id. A member that surveys, or questions of that type, do not have is
named, and not read.
`

const EXPORT_NOTES = `
An import takes ${MAX_FILE_BYTES / 1024 / 1024} MiB at a time, of one user; --owner gives each user's by themselves.
`

const DELETE_NOTES = `
Apps are told that there is no such survey from the next request on. Its id is not given to another one; an import with that
id makes it anew. To be able to go back, export first.
`

export function addSurveyCommands(program: Command): void {
  const survey = group(program, 'survey', {
    about: 'surveys, in the JSON shape of the detail endpoint',
    examples: ['survey import surveys.json --owner li.wei', 'survey list --owner li.wei'],
  })

  command(survey, 'import <file>', {
    about: 'store one survey or an array of them; `-` reads standard input; a known id replaces that survey',
    examples: ['survey import surveys.json --owner li.wei', 'survey import - --owner li.wei < one.json'],
    notes: IMPORT_NOTES,
  })
    .requiredOption('--owner <username>', 'the user whose surveys they are; name or user_id')
    .action(importSurveys)

  command(survey, 'list', { about: 'surveys, ascending by id', examples: ['survey list --owner li.wei'] })
    .option('--owner <username>', "only this user's; name or user_id")
    .action(listSurveys)

  command(survey, 'export', {
    about: 'surveys in full as a JSON array; import takes it back unchanged',
    examples: ['survey export --owner li.wei > surveys.json'],
    notes: EXPORT_NOTES,
  })
    .option('--owner <username>', "only this user's; name or user_id")
    .action(exportSurveys)

  command(survey, 'delete', {
    about: 'delete surveys for good',
    examples: ['survey delete 7 12'],
    notes: DELETE_NOTES,
  })
    .argument('<survey_id...>', 'ids of surveys', surveyIds)
    .action(deleteSurveys)
}

async function importSurveys(file: string, { owner, json }: ImportOptions): Promise<void> {
  const surveys = await surveysIn(file === '-' ? 'standard input' : file, await readFileOrInput(file, MAX_FILE_BYTES))
  const stored = await asSurveyOperator((operator) => storeAll(operator, owner, surveys), { creates: true })
  const rows = stored.map(({ id, hash, title, state }) => ({ survey_id: Number(id), hash, title, state }))
  printRows(rows, ['survey_id', 'hash', STATE, 'title'], { json })
  message(`${countOfSurveys(rows.length)} stored for ${owner}`)
}

/** Returns the summaries of the stored surveys, in the order given. */
async function storeAll(
  operator: SurveyOperator,
  owner: string,
  surveys: readonly Survey[],
): Promise<readonly SurveySummary[]> {
  const ownerUserId = await userIdOf(operator, owner)
  const summaries = new Map<Survey, SurveySummary>()
  try {
    for (const batch of batchesOf(surveys)) {
      const answer = await operator.survey.importSurveys({ ownerUserId, surveys: batch })
      for (const [at, summary] of answer.surveys.entries()) summaries.set(batch[at] as Survey, summary)
    }
  } catch (error) {
    if (summaries.size > 0 || isUnanswered(error)) {
      message(`${summaries.size} of ${surveys.length} are known to be stored, those with an id first`)
      message(`importing again replaces them, and stores those without an id anew; ${WHERE_TO_LOOK.survey}`)
    }
    throw error
  }
  return surveys.flatMap((survey) => summaries.get(survey) ?? [])
}

async function deleteSurveys(surveyIds: readonly number[], { json }: Json): Promise<void> {
  const ids = [...new Set(surveyIds)].map(BigInt)
  const already = await asSurveyOperator((operator) => deleteAll(operator, ids))
  if (json) printJson(ids.map((id) => ({ survey_id: Number(id) })))
  const beside = already > 0 ? `, ${already} had been deleted already` : ''
  message(`${countOfSurveys(ids.length - already)} deleted${beside}`)
}

export function countOfSurveys(count: number): string {
  return `${count} ${count === 1 ? 'survey' : 'surveys'}`
}

/** Returns how many were deleted. */
export async function deleteSurveysOf(operator: SurveyOperator, ownerUserId: string): Promise<number> {
  const ids = await idsOf(operator, ownerUserId)
  await deleteAll(operator, ids)
  return ids.length
}

/** Returns how many of them had been deleted already. */
async function deleteAll({ survey }: SurveyOperator, ids: readonly bigint[]): Promise<number> {
  let deleted = 0
  let already = 0
  try {
    for (const surveyIds of inParts(ids, MAX_BATCH)) {
      const { alreadyDeleted } = await survey.deleteSurveys({ surveyIds })
      already += alreadyDeleted
      deleted += surveyIds.length
    }
  } catch (error) {
    if (deleted > 0)
      message(`the first ${deleted} of ${ids.length} are deleted; see what is left with: survey-auth survey list`)
    throw error
  }
  return already
}

async function idsOf(operator: SurveyOperator, owner: string): Promise<bigint[]> {
  const ids: bigint[] = []
  for await (const page of pagesOfSurveys(operator, owner, SurveyView.BASIC))
    ids.push(...page.map(({ survey }) => survey.id))
  return ids
}

async function listSurveys({ owner, json }: FilterOptions): Promise<void> {
  const whenEmpty = 'no surveys; store some with: survey-auth survey import'
  await asSurveyOperator(async (operator) => {
    const names = await usernames(operator)
    const toRow = ({ survey: { id, hash, title, state }, ownerUserId }: Owned) => {
      return { survey_id: Number(id), hash, title, state, owner: names.get(ownerUserId) ?? ownerUserId }
    }
    const pages = pagesOfSurveys(operator, owner, SurveyView.BASIC)
    await printPages(pages, toRow, ['survey_id', 'hash', STATE, 'title', 'owner'], { json, whenEmpty })
  })
}

async function exportSurveys({ owner }: FilterOptions): Promise<void> {
  await asSurveyOperator((operator) =>
    printJsonPages(pagesOfSurveys(operator, owner, SurveyView.FULL), ({ survey }) => surveyToJson(survey, NO_CREATOR)),
  )
}

const states: Record<SurveyState, string> = {
  [SurveyState.UNSPECIFIED]: '',
  [SurveyState.DRAFT]: 'draft',
  [SurveyState.COLLECTING]: 'collecting',
  [SurveyState.PAUSED]: 'paused',
}

/** A column. */
const STATE = ['state', ({ state }: { readonly state: SurveyState }) => states[state]] as const

/**
 * As many at a time as one call takes. Surveys with an id come first, otherwise the order is kept: a new survey could be
 * given the id of one in a later call.
 */
function batchesOf(surveys: readonly Survey[]): Iterable<Survey[]> {
  return inBatches(
    surveys.toSorted((a, b) => Number(a.id === 0n) - Number(b.id === 0n)),
    { maxItems: MAX_BATCH, maxBytes: MAX_DOCUMENT_BYTES, sizeOf: (survey) => toBinary(SurveySchema, survey).length },
  )
}

type Owned = OwnedSurvey & { readonly survey: Survey }

async function* pagesOfSurveys(
  operator: SurveyOperator,
  owner: string | undefined,
  view: SurveyView,
): AsyncGenerator<readonly Owned[]> {
  const ownerUserId = await userIdOf(operator, owner)
  yield* pagesOf(async (pageToken) => {
    const page = await operator.survey.exportSurveys({ ownerUserId, pageToken, view })
    return { rows: page.surveys.filter(hasSurvey), nextPageToken: page.nextPageToken }
  })
}

/** True of every one that the service returns. */
function hasSurvey(owned: OwnedSurvey): owned is Owned {
  return owned.survey !== undefined
}

async function usernames({ admin }: SurveyOperator): Promise<Map<string, string>> {
  const names = new Map<string, string>()
  for await (const page of pagesOfUsers(admin)) for (const { userId, username } of page) names.set(userId, username)
  return names
}
