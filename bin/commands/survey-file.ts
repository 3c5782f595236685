// Surveys as a file holds them: one, or an array of them, in the JSON shape of the detail endpoint.
import { surveyToJson } from '../../gateway/api/survey-to-json.js'
import { type Survey, SurveySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import { compileRules, violationInWords } from '../../services/rpc/validation.js'
import { contradictionIn, inWords, type Misplaced, misplacedIn } from '../../services/survey/contradictions.js'
import { findRefused, toDraft } from '../../services/survey/import-surveys.js'
import { DuplicateMember, parseExactly } from '../exact-json.js'
import { CommandError } from '../exit.js'
import { message } from '../output.js'

/** Members that are not read are named up to this many times: a file from another system may have one in every question. */
const MAX_WARNINGS = 10
/** `creator_user_id` differs from app to app (decisions 26), and a file is for none. */
export const NO_CREATOR = 0

const BYTE_ORDER_MARK = /^\ufeff/

/** Everything the service would refuse is refused here, before any survey is stored. @throws CommandError naming where it is in the file. */
export async function surveysIn(source: string, text: string): Promise<Survey[]> {
  const { surveyFromJson } = await import('../../gateway/api/survey-from-json.js') // loads zod: only here
  if (text.trim() === '') throw new CommandError(`${source} is empty`) // trim removes a byte order mark too
  const json = parsed(source, text.replace(BYTE_ORDER_MARK, ''))
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

function parsed(source: string, text: string): unknown {
  try {
    return parseExactly(text)
  } catch (error) {
    if (error instanceof DuplicateMember)
      throw new CommandError(`${source}: ${error.message}${place(text, error.position)}`)
    const [, position] = /at position (\d+)/.exec(error instanceof Error ? error.message : '') ?? []
    const where = position === undefined ? '' : place(text, Number(position)) // Node does not always tell
    throw new CommandError(`${source} is not JSON${where}`)
  }
}

function place(text: string, position: number): string {
  const lines = text.slice(0, position).split('\n')
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
