// Surveys as a file holds them: records in the JSON of the detail endpoint, answers of such an endpoint around them, an array of
// these, or one on each line.
import { type Survey, SurveySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import { compileRules, violationInWords } from '../../services/rpc/validation.js'
import { contradictionIn, misplacedIn } from '../../services/survey/contradictions.js'
import { findRefused, toDraft } from '../../services/survey/import-surveys.js'
import { DuplicateMember, parseExactly } from '../exact-json.js'
import { CommandError } from '../exit.js'
import { isObject, surveyAsWeWriteIt, type Tell } from './survey-dialect.js'

/** Members that no table has are named up to this many: a file from another system may have many of its own. */
const MAX_NAMED = 10
/** `creator_user_id` differs from app to app (decisions 26), and a file is for none. */
export const NO_CREATOR = 0

const BYTE_ORDER_MARK = /^\ufeff/

/** What a file holds, and what had to be changed or dropped of it, a line for each kind. */
export interface SurveysRead {
  readonly surveys: readonly Survey[]
  readonly changes: readonly string[]
}

/** Everything the service would refuse is refused here, before any survey is stored. @throws CommandError naming where it is in the file. */
export async function surveysIn(source: string, text: string): Promise<SurveysRead> {
  const { surveyFromJson } = await import('../../gateway/api/survey-from-json.js') // loads zod: only here
  if (text.trim() === '') throw new CommandError(`${source} is empty`) // trim removes a byte order mark too
  const list = [parsed(source, text.replace(BYTE_ORDER_MARK, ''))].flat().flatMap((json) => recordsIn(source, json))
  if (list.length === 0) throw new CommandError(`${source} holds no survey`)
  const where = (at: number) => (list.length === 1 ? source : `${source}, survey ${at + 1}`)
  const validate = compileRules(SurveySchema)
  const counts = new Map<string, number>()
  const changed: Tell = (path, change) => {
    const line = `${path}: ${change}`
    counts.set(line, (counts.get(line) ?? 0) + 1)
  }
  const unknown = new Set<string>()
  const surveys = list.map((entry, at) => {
    try {
      const survey = surveyFromJson(surveyAsWeWriteIt(entry, changed, (path) => unknown.add(path)))
      dropMisplaced(survey, changed)
      const violation = validate(survey)
      const refusal = violation ? violationInWords(violation).replace(/\bextra\./, '') : contradictionIn(survey)
      if (refusal !== undefined) throw new Error(refusal)
      return survey
    } catch (error) {
      throw new CommandError(`${where(at)}: ${error instanceof Error ? error.message : 'is no survey'}`)
    }
  })
  const refused = findRefused(surveys.map((survey) => toDraft(survey, Date.now())))
  if (refused) throw new CommandError(`${where(refused.at)}: ${refused.because}`)
  return { surveys, changes: [...linesOf(counts), ...lineOf([...unknown])].map((line) => `${source}: ${line}`) }
}

function linesOf(counts: ReadonlyMap<string, number>): string[] {
  return [...counts].map(([line, count]) => (count === 1 ? line : `${line}, ${count} times`))
}

/** None when there is nothing to say. */
function lineOf(unknown: readonly string[]): string[] {
  if (unknown.length === 0) return []
  const more = unknown.length > MAX_NAMED ? ` and ${unknown.length - MAX_NAMED} more` : ''
  return [`not known by name, kept as they came: ${unknown.slice(0, MAX_NAMED).join(', ')}${more}`]
}

/** The records: an answer of the detail or list endpoint has them in `data`. */
function recordsIn(source: string, json: unknown): readonly unknown[] {
  if (!isObject(json) || 'title' in json) return [json]
  const { code = 'OK', data = json } = json
  if (code !== 'OK' && code !== 0) throw new CommandError(`${source} holds an answer that failed: ${String(code)}`)
  if (!isObject(data)) return [data]
  return Array.isArray(data.list) ? data.list : [data]
}

/** A file from another system may give every question the members of all types; the service would refuse them. */
function dropMisplaced(survey: Survey, changed: Tell): void {
  for (const { question, member } of misplacedIn(survey)) {
    if (member === 'subTitles') question.subTitles = []
    else delete question[member]
    changed(`pages[].questions[].${member}`, `dropped: a question of type ${question.type} has none`)
  }
}

function parsed(source: string, text: string): unknown {
  try {
    return parseExactly(text)
  } catch (error) {
    if (error instanceof DuplicateMember || !isJsonLines(text)) throw notJson(source, text, error)
  }
  let start = 0
  return text.split('\n').flatMap((line) => {
    const at = start
    start += line.length + 1
    try {
      return line.trim() === '' ? [] : [parseExactly(line)]
    } catch (error) {
      throw notJson(source, text, error, at)
    }
  })
}

function isJsonLines(text: string): boolean {
  const [first = '', ...others] = text.split('\n').filter((line) => line.trim() !== '')
  try {
    JSON.parse(first)
    return others.length > 0
  } catch {
    return false
  }
}

/** `start`: where in the text the line begins that was read, if not all of it was. */
function notJson(source: string, text: string, error: unknown, start?: number): CommandError {
  if (error instanceof DuplicateMember)
    return new CommandError(`${source}: ${error.message}${place(text, (start ?? 0) + error.position)}`)
  const [, position] = /at position (\d+)/.exec(error instanceof Error ? error.message : '') ?? []
  if (position !== undefined)
    return new CommandError(`${source} is not JSON${place(text, (start ?? 0) + Number(position))}`)
  // Node does not always tell the position
  const line = start === undefined ? '' : `: line ${text.slice(0, start).split('\n').length}`
  return new CommandError(`${source} is not JSON${line}`)
}

function place(text: string, position: number): string {
  const lines = text.slice(0, position).split('\n')
  return `: line ${lines.length}, column ${(lines.at(-1) ?? '').length + 1}`
}
