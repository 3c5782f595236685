// survey-auth survey answers: the answers to a survey in and out, in the JSON shape of the endpoint.
import { type Command, Option } from 'commander'
import { inParts } from '../../services/storage/in-parts.js'
import type { ExportOptions } from '../answers/export-answers.js'
import type { ImportOptions } from '../answers/import-answers.js'
import { asSurveyOperator, type SurveyOperator } from '../compose/operator.js'
import { CommandError, EXIT } from '../exit.js'
import { note, printRow } from '../output.js'
import { command, group } from './command.js'
import { surveyId, surveyIds, time, wholeNumber } from './options.js'
import { asksFirst, confirm, type Sure } from './terminal.js'

const IMPORT_NOTES = `
The file is JSON Lines: an answer a line, in the JSON of the endpoint, where respondent_id is the platform's own id of who answered.
Answers with an answer_id keep it; their ids must ascend, and be above all that the survey has. One that is stored already stays as
it is, so an import that was interrupted can be repeated, or go on with --from. Answers without an answer_id get the next one, and
are stored again by a repetition. Members that answers do not have, such as addresses and accounts of respondents, are named and
not stored. Exit code 3: some answers were refused, all others are stored.
`

const EXPORT_NOTES = `
In JSON Lines an import takes it back unchanged. CSV has a column for each question, begins with a byte order mark, and quotes what a
spreadsheet would run as a formula with an apostrophe. --after goes on from the id with which an earlier export ended.
`

const DELETE_NOTES = `
Apps do not see them from the next request on. Their ids are not given out again, and the total is one less for each.
`

interface DeleteOptions extends Sure {
  readonly survey: number
  readonly all?: true
}

export function addAnswerCommands(survey: Command): void {
  const answers = group(survey, 'answers', {
    about: 'the answers to a survey, in the JSON shape of the endpoint',
    examples: ['survey answers import answers.ndjson --survey 7', 'survey answers export --survey 7 > answers.ndjson'],
  })

  command(answers, 'import <file>', {
    about: 'store answers; `-` reads standard input',
    examples: [
      'survey answers import answers.ndjson --survey 7 --dry-run',
      'survey answers import answers.ndjson --survey 7 --from 4001 --report refused.ndjson',
    ],
    notes: IMPORT_NOTES,
  })
    .requiredOption('--survey <survey_id>', 'the survey that was answered', surveyId)
    .option('--dry-run', 'store nothing, say what would be')
    .option('--from <line>', 'begin with this line of the file', wholeNumber(1, 2 ** 31), 1)
    .option('--report <file>', 'write each refused line and why, as NDJSON')
    .action(async (file: string, options: ImportOptions) => {
      const { importAnswers } = await import('../answers/import-answers.js') // loads zod: only here
      await importAnswers(file, options)
    })

  group(answers, 'export', {
    about: 'answers as JSON Lines or CSV',
    examples: [
      'survey answers export --survey 7 > answers.ndjson',
      'survey answers export --survey 7 --format csv --since 2027-01-31 > answers.csv',
    ],
    notes: EXPORT_NOTES,
  })
    .requiredOption('--survey <survey_id>', 'the survey that was answered', surveyId)
    .addOption(new Option('--format <format>', 'what is written').choices(['ndjson', 'csv']).default('ndjson'))
    .option('--after <answer_id>', 'only answers with a higher id', wholeNumber(0, Number.MAX_SAFE_INTEGER), 0)
    .option('--since <time>', 'only answers that ended then or later; ISO 8601', time)
    .option('--until <time>', 'only answers that ended before; ISO 8601', time)
    .action(async (options: ExportOptions) => {
      const { exportAnswers } = await import('../answers/export-answers.js')
      await exportAnswers(options)
    })

  asksFirst(
    command(answers, 'delete', {
      about: 'delete answers for good',
      examples: ['survey answers delete 4 9 --survey 7', 'survey answers delete --all --survey 7'],
      notes: DELETE_NOTES,
    }),
  )
    .argument('[answer_id...]', 'ids of answers', surveyIds)
    .requiredOption('--survey <survey_id>', 'the survey that was answered', surveyId)
    .option('--all', 'all answers that the survey has')
    .action(deleteAnswers)
}

/** Of one call: the contract's bound, DeleteAnswersRequest.answer_ids. */
const MAX_BATCH = 1000

async function deleteAnswers(ids: readonly number[] = [], options: DeleteOptions): Promise<void> {
  const { survey, all, json } = options
  if (all === undefined ? ids.length === 0 : ids.length > 0)
    throw new CommandError('give the ids of answers, or --all', EXIT.usage)
  await confirm(`Delete ${all ? 'all answers' : `${ids.length} of the answers`} to survey ${survey} for good?`, options)
  const { deleted, already } = await asSurveyOperator((operator) =>
    all ? deleteAll(operator, survey) : deleteThese(operator, survey, [...new Set(ids)]),
  )
  printRow({ survey_id: survey, deleted, already_deleted: already }, { json })
  const beside = already > 0 ? `, ${already} had been deleted already` : ''
  note(`${deleted} ${deleted === 1 ? 'answer' : 'answers'} deleted${beside}`)
}

async function deleteAll({ survey }: SurveyOperator, surveyId: number) {
  const { deleted } = await survey.deleteAnswers({ surveyId: BigInt(surveyId), all: true })
  return { deleted: Number(deleted), already: 0 }
}

async function deleteThese({ survey }: SurveyOperator, surveyId: number, ids: readonly number[]) {
  let [deleted, already] = [0, 0]
  for (const part of inParts(ids, MAX_BATCH)) {
    const done = await survey.deleteAnswers({ surveyId: BigInt(surveyId), answerIds: part.map(BigInt) })
    deleted += Number(done.deleted)
    already += done.alreadyDeleted
  }
  return { deleted, already }
}
