// survey-auth survey: surveys in and out, in the JSON shape of the detail endpoint.
import { toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { type Command, Option } from 'commander'
import { surveyToJson } from '../../gateway/api/survey-to-json.js'
import { type Survey, SurveySchema, SurveyState, type SurveySummary } from '../../gen/surveyauth/v1/survey_pb.js'
import { type OwnedSurvey, SurveyView } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { inBatches } from '../../services/rpc/batches.js'
import { inParts } from '../../services/storage/in-parts.js'
import { MAX_DOCUMENT_BYTES } from '../../services/survey/import-surveys.js'
import { asSurveyOperator, pagesOf, pagesOfUsers, type SurveyOperator } from '../compose/operator.js'
import { CommandError, EXIT, isUnanswered, WHERE_TO_LOOK } from '../exit.js'
import {
  dateOf,
  message,
  NOTHING_STORED,
  note,
  type Progress,
  printJson,
  printJsonPages,
  printPages,
  printRow,
  printRows,
  progress,
} from '../output.js'
import { addAnswerCommands } from './answers.js'
import { command, group, type Json } from './command.js'
import { readFileOrInput } from './input.js'
import { surveyId, surveyIds, wholeNumber } from './options.js'
import { NO_CREATOR, surveysIn } from './survey-file.js'
import { asksFirst, confirm, type Sure } from './terminal.js'
import { userIdOf } from './usernames.js'

interface ImportOptions extends Json {
  readonly owner: string
  readonly dryRun?: true
  readonly quiet?: true
}
interface FilterOptions extends Json {
  readonly owner?: string
}
interface ListOptions extends FilterOptions {
  readonly state?: string
  readonly title?: string
  readonly limit?: number
}

const MAX_FILE_BYTES = 256 * 1024 * 1024
/** Surveys stored in one transaction: the contract's bound, ImportSurveysRequest.surveys. */
const MAX_BATCH = 1000

const IMPORT_NOTES = `
The file is one survey, an array, one on each line, or answers of the API with surveys in their data.

A survey needs a title, and each of its questions a type; docs/api/openapi.yaml has all members. Without an id it is new;
other ids that are missing follow from the position, beside those that are given. Ignored, because computed: page_count,
topic_count and creator_user_id; started_at and end_at count where startTime and endTime are missing. Other members are kept
as they are. What had to be read in another way, or dropped, is named, a line for each kind.
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
    examples: [
      'survey import surveys.json --owner li.wei --dry-run',
      'survey import - --owner li.wei --quiet < one.json',
    ],
    notes: IMPORT_NOTES,
  })
    .requiredOption('--owner <username>', 'the user whose surveys they are; name, user_id or external_id:ID')
    .option('--dry-run', 'store nothing, say what would be')
    .option('--quiet', 'say nothing but what went wrong')
    .action(importSurveys)

  command(survey, 'list', {
    about: 'surveys, ascending by id',
    examples: ['survey list --owner li.wei', 'survey list --state collecting --title lunch --limit 20'],
  })
    .option('--owner <username>', "only this user's; name, user_id or external_id:ID")
    .addOption(new Option('--state <state>', 'only in this state').choices(['draft', 'collecting', 'paused']))
    .option('--title <text>', 'only whose title has this in it, in capitals or not')
    .option('--limit <number>', 'at most this many; all unless given', wholeNumber(1, 1_000_000))
    .action(listSurveys)

  command(survey, 'show', { about: 'a survey; with --json as apps get it', examples: ['survey show 7 --json'] })
    .argument('<survey_id>', 'its id', surveyId)
    .action(showSurvey)

  command(survey, 'export', {
    about: 'surveys in full as a JSON array; import takes it back unchanged',
    examples: ['survey export --owner li.wei > surveys.json'],
    notes: EXPORT_NOTES,
  })
    .option('--owner <username>', "only this user's; name, user_id or external_id:ID")
    .action(exportSurveys)

  asksFirst(
    command(survey, 'delete', {
      about: 'delete surveys for good',
      examples: ['survey delete 7 12'],
      notes: DELETE_NOTES,
    }),
  )
    .argument('<survey_id...>', 'ids of surveys', surveyIds)
    .action(deleteSurveys)

  addAnswerCommands(survey)
}

async function importSurveys(file: string, { owner, json, dryRun, quiet }: ImportOptions): Promise<void> {
  const source = file === '-' ? 'standard input' : file
  const { surveys, changes } = await surveysIn(source, await readFileOrInput(file, MAX_FILE_BYTES))
  const say = quiet ? () => {} : message
  for (const change of changes) say(change)
  const stored = dryRun
    ? surveys
    : await asSurveyOperator((operator) => storeAll(operator, owner, surveys, quiet ? () => {} : progress()), {
        creates: true,
      })
  const rows = stored.map(({ id, hash, title, state }) => ({ survey_id: Number(id) || null, hash, title, state }))
  if (json || !quiet) printRows(rows, ['survey_id', 'hash', STATE, 'title'], { json })
  if (!quiet) note(dryRun ? NOTHING_STORED : `${countOfSurveys(rows.length)} stored for ${owner}`)
}

/** Returns the summaries of the stored surveys, in the order given. */
async function storeAll(
  operator: SurveyOperator,
  owner: string,
  surveys: readonly Survey[],
  say: Progress,
): Promise<readonly SurveySummary[]> {
  const ownerUserId = await userIdOf(operator, owner)
  const summaries = new Map<Survey, SurveySummary>()
  try {
    for (const batch of batchesOf(surveys)) {
      const answer = await operator.survey.importSurveys({ ownerUserId, surveys: batch })
      for (const [at, summary] of answer.surveys.entries()) summaries.set(batch[at] as Survey, summary)
      say(`${summaries.size} of ${surveys.length} surveys`, summaries.size / surveys.length)
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

async function deleteSurveys(surveyIds: readonly number[], options: Sure): Promise<void> {
  const ids = [...new Set(surveyIds)].map(BigInt)
  await confirm(`Delete ${countOfSurveys(ids.length)} for good?`, options)
  const already = await asSurveyOperator((operator) => deleteAll(operator, ids))
  const rows = ids.map((id) => ({ survey_id: Number(id) }))
  printRows(rows, ['survey_id'], options)
  const beside = already > 0 ? `, ${already} had been deleted already` : ''
  note(`${countOfSurveys(ids.length - already)} deleted${beside}`)
}

export function countOfSurveys(count: number): string {
  return `${count} ${count === 1 ? 'survey' : 'surveys'}`
}

/** Returns how many were deleted: none where they are a platform's, which deletes them itself. */
export async function deleteSurveysOf(operator: SurveyOperator, ownerUserId: string): Promise<number> {
  const ids = await idsOf(operator, ownerUserId).catch((error: unknown) => {
    if (error instanceof ConnectError && error.code === Code.FailedPrecondition) return []
    throw error
  })
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

async function showSurvey(surveyId: number, { json }: Json): Promise<void> {
  await asSurveyOperator(async (operator) => {
    const { surveys } = await operator.survey.exportSurveys({ surveyId: BigInt(surveyId) })
    const [found] = surveys.filter(hasSurvey)
    if (!found)
      throw new CommandError(`no such survey: ${surveyId}`, EXIT.failure, 'see them with: survey-auth survey list')
    const { survey, ownerUserId } = found
    if (json) return printJson(surveyToJson(survey, NO_CREATOR))
    const { id, hash, title, state, pages, startTime, endTime, createTime, updateTime } = survey
    printRow(
      {
        survey_id: Number(id),
        hash,
        title,
        state: states[state],
        owner: (await usernames(operator)).get(ownerUserId) ?? ownerUserId,
        pages: pages.length,
        questions: pages.reduce((sum, { questions }) => sum + questions.length, 0),
        starts: dateOf(startTime),
        ends: dateOf(endTime),
        created: dateOf(createTime),
        updated: dateOf(updateTime),
      },
      {},
    )
  })
}

async function listSurveys({ owner, json, ...filter }: ListOptions): Promise<void> {
  const isFiltered = Object.keys(filter).length > 0
  const whenEmpty = isFiltered ? 'no such surveys' : 'no surveys; store some with: survey-auth survey import'
  await asSurveyOperator(async (operator) => {
    const names = await usernames(operator)
    const toRow = ({ survey: { id, hash, title, state }, ownerUserId }: Owned) => {
      return { survey_id: Number(id), hash, title, state, owner: names.get(ownerUserId) ?? ownerUserId }
    }
    const pages = filtered(pagesOfSurveys(operator, owner, SurveyView.BASIC), filter)
    await printPages(pages, toRow, ['survey_id', 'hash', STATE, 'title', 'owner'], { json, whenEmpty })
  })
}

async function* filtered(
  pages: AsyncIterable<readonly Owned[]>,
  { state, title = '', limit = Number.POSITIVE_INFINITY }: Omit<ListOptions, 'owner' | 'json'>,
): AsyncGenerator<readonly Owned[]> {
  const part = title.toLowerCase()
  let left = limit
  for await (const page of pages) {
    const found = page
      .filter(({ survey }) => (state ?? states[survey.state]) === states[survey.state])
      .filter(({ survey }) => survey.title.toLowerCase().includes(part))
      .slice(0, left)
    yield found
    left -= found.length
    if (left === 0) return
  }
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
