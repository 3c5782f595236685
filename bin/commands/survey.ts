// survey-auth survey: surveys in and out, in the JSON shape of the detail endpoint.
import { createReadStream, statSync } from 'node:fs'
import { toBinary } from '@bufbuild/protobuf'
import type { Command } from 'commander'
import { surveyToJson } from '../../gateway/api/survey-to-json.js'
import {
  type OwnedSurvey,
  type Survey,
  SurveySchema,
  SurveyState,
  type SurveySummary,
  SurveyView,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { inBatches } from '../../services/rpc/batches.js'
import { compileRules, violationInWords } from '../../services/rpc/validation.js'
import { inParts } from '../../services/storage/in-parts.js'
import { contradictionIn, inWords, type Misplaced, misplacedIn } from '../../services/survey/contradictions.js'
import { findRefused, MAX_DOCUMENT_BYTES, toDraft } from '../../services/survey/import-surveys.js'
import { asSurveyOperator, pagesOf, type SurveyOperator } from '../compose/operator.js'
import { isOfSystem, unreadable } from '../error-code.js'
import { DuplicateMember, type JsonPath, parseExactly } from '../exact-json.js'
import { CommandError, EXIT, isUnanswered, WHERE_TO_LOOK } from '../exit.js'
import { message, printJson, printJsonPages, printPages, printRows } from '../output.js'
import { type HeldSignals, holdSignals } from '../signals.js'
import { examples, type Json, jsonOption, surveyId, surveyIds } from './options.js'
import { readStdin, readText } from './stdin.js'
import { namedUser, pagesOfUsers, userIdOfFilter } from './usernames.js'

interface ImportOptions extends Json {
  readonly owner: string
}
interface DeleteOptions extends Json {
  readonly owner?: string
}
interface FilterOptions extends Json {
  readonly owner?: string
}

const MAX_FILE_BYTES = 256 * 1024 * 1024
/** Surveys stored in one transaction: the contract's bound, ImportSurveysRequest.surveys. */
const MAX_BATCH = 1000
/** Members that are not read are named up to this many times: a file from another system may have one in every question. */
const MAX_WARNINGS = 10
/** `creator_user_id` differs from app to app (decisions 26), and an export is for none. */
const NO_CREATOR = 0

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
  const survey = program
    .command('survey')
    .description('surveys, in the JSON shape of the detail endpoint')
    .addHelpText('after', examples('survey import surveys.json --owner li.wei', 'survey list --owner li.wei'))

  survey
    .command('import <file>')
    .description('store one survey or an array of them; `-` reads standard input; a known id replaces that survey')
    .requiredOption('--owner <username>', 'the user whose surveys they are; name or user_id')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      IMPORT_NOTES + examples('survey import surveys.json --owner li.wei', 'survey import - --owner li.wei < one.json'),
    )
    .action(importSurveys)

  survey
    .command('delete')
    .argument('[survey_id...]', 'ids of surveys', surveyIds)
    .description('delete surveys for good: those named, or all of a user')
    .option('--owner <username>', 'all of this user; name or user_id')
    .addOption(jsonOption())
    .addHelpText('after', `${DELETE_NOTES}${examples('survey delete 7 12', 'survey delete --owner li.wei')}`)
    .action(deleteSurveys)

  survey
    .command('list')
    .description('surveys, ascending by id')
    .option('--owner <username>', "only this user's; name or user_id")
    .addOption(jsonOption())
    .addHelpText('after', examples('survey list --owner li.wei'))
    .action(listSurveys)

  survey
    .command('export')
    .argument('[survey_id]', 'id of one survey', surveyId)
    .description('surveys in full as JSON, an array or the one asked for; import takes it back unchanged')
    .option('--owner <username>', "only this user's; name or user_id")
    .option('--json', 'has no effect: it is always JSON')
    .addHelpText('after', EXPORT_NOTES + examples('survey export --owner li.wei > surveys.json', 'survey export 7'))
    .action(exportSurveys)
}

async function importSurveys(file: string, { owner, json }: ImportOptions): Promise<void> {
  const [source, text] =
    file === '-' ? ['standard input', await readStdin(MAX_FILE_BYTES)] : [file, await contentOf(file)]
  const surveys = await surveysOf(source, text)
  const signals = holdSignals()
  try {
    const stored = await asSurveyOperator((operator) => storeAll(operator, owner, surveys, signals), { creates: true })
    const rows = stored.map(({ id, hash, title, state }) => ({ survey_id: Number(id), hash, title, state }))
    printRows(rows, columns, { json, whenEmpty: 'nothing is stored' })
    if (rows.length === surveys.length) message(`${countOfSurveys(rows.length)} stored for ${owner}`)
    else sayIfSome(surveys, rows.length)
  } finally {
    signals.release()
  }
}

/** Returns the summaries of the stored surveys, in the order given: of a part once a signal has come. */
async function storeAll(
  operator: SurveyOperator,
  owner: string,
  surveys: readonly Survey[],
  { isTold }: HeldSignals,
): Promise<readonly SurveySummary[]> {
  const ownerUserId = await userIdOf(operator, owner)
  const summaries = new Map<Survey, SurveySummary>()
  let sent = 0
  try {
    for (const batch of batchesOf(surveys)) {
      if (isTold()) break
      sent += batch.length
      const answer = await operator.survey.importSurveys({ ownerUserId, surveys: batch })
      for (const [at, summary] of answer.surveys.entries()) summaries.set(batch[at] as Survey, summary)
    }
  } catch (error) {
    sayIfSome(surveys, summaries.size, isUnanswered(error) ? sent : summaries.size)
    throw error
  }
  return surveys.flatMap((survey) => summaries.get(survey) ?? [])
}

/** Says what became of an import that stored not all. What was sent and got no answer may be stored too. */
function sayIfSome(surveys: readonly Survey[], stored: number, sent = stored): void {
  if (sent === 0) return
  const isAgainSafe = sent <= surveys.filter(({ id }) => id !== 0n).length
  const again = isAgainSafe ? 'is safe: it replaces them' : 'stores those without an id a second time'
  const sure = `the first ${stored} of ${surveys.length} are stored, those with an id before others`
  message(stored > 0 ? sure : `whether any of the first ${sent} is stored is not known`)
  message(`importing again ${again}; ${WHERE_TO_LOOK.survey}`)
}

async function deleteSurveys(
  surveyIds: readonly number[],
  { owner, json }: DeleteOptions,
  command: Command,
): Promise<void> {
  if ((surveyIds.length === 0) === (owner === undefined)) {
    command.error('error: give either the ids of surveys or --owner')
  }
  const { ids, already } = await asSurveyOperator(async (operator) => {
    const ids = owner === undefined ? [...new Set(surveyIds)].map(BigInt) : await idsOf(operator, owner)
    return { ids, already: await deleteAll(operator, ids) }
  })
  if (json) printJson(ids.map((id) => ({ survey_id: Number(id) })))
  const beside = already > 0 ? `, ${already} had been deleted already` : ''
  message(`${countOfSurveys(ids.length - already)} deleted${beside}`)
}

export function countOfSurveys(count: number): string {
  return `${count} ${count === 1 ? 'survey' : 'surveys'}`
}

/** Returns how many were deleted. */
export async function deleteSurveysOf(operator: SurveyOperator, owner: string): Promise<number> {
  const ids = await idsOf(operator, owner)
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
    const withOwner = { ...columns, owner: (row: ReturnType<typeof toRow>) => row.owner }
    await printPages(pagesOfSurveys(operator, owner, SurveyView.BASIC), toRow, withOwner, { json, whenEmpty })
  })
}

async function exportSurveys(surveyId: number | undefined, { owner }: FilterOptions): Promise<void> {
  await asSurveyOperator(async (operator) => {
    if (surveyId === undefined) return printJsonPages(pagesOfSurveys(operator, owner, SurveyView.FULL), document)
    const survey = await ownedSurvey(operator, owner, surveyId)
    if (!survey) throw new CommandError(`there is no survey ${surveyId}`, EXIT.failure, WHERE_TO_LOOK.survey)
    printJson(document(survey))
  })
}

function document({ survey }: Owned) {
  return surveyToJson(survey, NO_CREATOR)
}

const states: Record<SurveyState, string> = {
  [SurveyState.UNSPECIFIED]: '',
  [SurveyState.DRAFT]: 'draft',
  [SurveyState.COLLECTING]: 'collecting',
  [SurveyState.PAUSED]: 'paused',
}

const columns = {
  survey_id: (row: { survey_id: number }) => row.survey_id,
  hash: (row: { hash: string }) => row.hash,
  state: (row: { state: SurveyState }) => states[row.state],
  title: (row: { title: string }) => row.title,
}

async function contentOf(file: string): Promise<string> {
  try {
    if (statSync(file).size > MAX_FILE_BYTES) {
      throw new CommandError(`${file} is larger than ${MAX_FILE_BYTES} bytes`, EXIT.failure, 'import it in parts')
    }
    return await readText(createReadStream(file), { source: file, maxBytes: MAX_FILE_BYTES }) // a pipe has no size
  } catch (error) {
    throw isOfSystem(error) ? new CommandError(unreadable(file, error)) : error
  }
}

const BYTE_ORDER_MARK = /^\ufeff/

/** Everything the service would refuse is refused here, before any survey is stored. @throws CommandError naming where it is in the file. */
async function surveysOf(source: string, text: string): Promise<Survey[]> {
  const { surveyFromJson, pathInJson } = await import('../../gateway/api/survey-from-json.js') // loads zod: only here
  if (text.trim() === '') throw new CommandError(`${source} is empty`) // trim removes a byte order mark too
  const json = parsed(source, text.replace(BYTE_ORDER_MARK, ''), pathInJson)
  const list = Array.isArray(json) ? json : [json]
  if (list.length === 0) throw new CommandError(`${source} holds no survey`)
  const where = (at: number) => (list.length === 1 ? source : `${source}, survey ${at + 1}`)
  const validate = compileRules(SurveySchema)
  const ignored: string[] = []
  const surveys = list.map((entry, at) => {
    try {
      const survey = surveyFromJson(entry)
      for (const member of membersBeside(surveyToJson(survey, NO_CREATOR), entry))
        ignored.push(`${where(at)}: ${member} is not a member of a survey`)
      for (const one of removeMisplaced(survey)) ignored.push(`${where(at)}: ${inWords(one)}`)
      const violation = validate(survey)
      const refusal = violation ? violationInWords(violation) : contradictionIn(survey)
      if (refusal !== undefined) throw new Error(refusal)
      return survey
    } catch (error) {
      throw new CommandError(`${where(at)}: ${error instanceof Error ? error.message : 'is no survey'}`)
    }
  })
  const refused = findRefused(surveys.map((survey) => toDraft(survey, Date.now())))
  if (refused) throw new CommandError(`${where(refused.at)}: ${refused.because}`)
  for (const one of ignored.slice(0, MAX_WARNINGS)) message(`${one.replaceAll('\n', ' ')} and was ignored`)
  if (ignored.length > MAX_WARNINGS) message(`and ${ignored.length - MAX_WARNINGS} more that were ignored`)
  return surveys
}

/** A file from another system may give every question the members of all types; the service would refuse them. */
function removeMisplaced(survey: Survey): Misplaced[] {
  const misplaced = misplacedIn(survey)
  for (const { question, member } of misplaced) {
    if (member === 'subTitles') question.subTitles = []
    else delete question[member]
  }
  return misplaced
}

function parsed(source: string, text: string, pathInJson: (path: JsonPath) => string): unknown {
  try {
    return parseExactly(text)
  } catch (error) {
    if (!(error instanceof DuplicateMember)) throw new CommandError(`${source} is not JSON${positionOf(error, text)}`)
    const [at] = error.path
    const [where, path] =
      typeof at === 'number' ? [`${source}, survey ${at + 1}`, error.path.slice(1)] : [source, error.path]
    throw new CommandError(`${where}: ${pathInJson(path)}: ${error.message}`)
  }
}

/** Line and column where Node stopped reading; empty for mistakes whose position it does not tell. */
function positionOf(error: unknown, text: string): string {
  const [, position] = /at position (\d+)/.exec(error instanceof Error ? error.message : '') ?? []
  if (position === undefined) return ''
  const lines = text.slice(0, Number(position)).split('\n')
  return `: line ${lines.length}, column ${(lines.at(-1) ?? '').length + 1}`
}

/** Where `given` has members that `known` lacks; a misspelt one would be lost without a word. */
function membersBeside(known: unknown, given: unknown, path = ''): string[] {
  if (typeof known !== 'object' || known === null || typeof given !== 'object' || given === null) return []
  const all = new Map(Object.entries(known))
  return Object.entries(given).flatMap(([name, value]) => {
    const at = Array.isArray(given) ? `${path}[${name}]` : path === '' ? name : `${path}.${name}`
    if (all.has(name)) return membersBeside(all.get(name), value, at)
    const isNothing = Array.isArray(value) && value.length === 0 // subTitles of a question that has none
    return isNothing ? [] : [at]
  })
}

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

/** Read as a page of one that follows the id before it. */
async function ownedSurvey(
  operator: SurveyOperator,
  owner: string | undefined,
  surveyId: number,
): Promise<Owned | undefined> {
  const ownerUserId = await userIdOf(operator, owner)
  const pageToken = String(surveyId - 1)
  const page = await operator.survey.exportSurveys({ ownerUserId, pageToken, pageSize: 1 })
  return page.surveys.filter(hasSurvey).find(({ survey }) => Number(survey.id) === surveyId)
}

/** Empty without `owner`, which means all owners. */
async function userIdOf({ admin }: SurveyOperator, owner = ''): Promise<string> {
  return userIdOfFilter(admin, await namedUser(admin, owner))
}

async function usernames({ admin }: SurveyOperator): Promise<Map<string, string>> {
  const names = new Map<string, string>()
  for await (const page of pagesOfUsers(admin)) for (const { userId, username } of page) names.set(userId, username)
  return names
}
