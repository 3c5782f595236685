// The answers to a survey on standard output, page by page: JSON Lines, which an import takes back, or CSV for a spreadsheet.
import { once } from 'node:events'
import { type Timestamp, timestampFromDate } from '@bufbuild/protobuf/wkt'
import { answerToJson } from '../../gateway/api/answer-to-json.js'
import type { Answer } from '../../gen/surveyauth/v1/answer_pb.js'
import type { Survey } from '../../gen/surveyauth/v1/survey_pb.js'
import { asSurveyOperator, type SurveyOperator } from '../compose/operator.js'
import { escaped, note } from '../output.js'
import { csvHeader, csvRow } from './csv.js'

export interface ExportOptions {
  readonly survey: number
  readonly format: 'ndjson' | 'csv'
  readonly after: number
  readonly since?: Date
  readonly until?: Date
}

const PAGE_SIZE = 1000
const BYTE_ORDER_MARK = '\ufeff' // without it, spreadsheets take UTF-8 for something else

export async function exportAnswers({ survey: id, format, after, since, until }: ExportOptions): Promise<void> {
  const surveyId = BigInt(id)
  const interval = { ...timed('since', since), ...timed('until', until) }
  let [count, last] = [0, BigInt(after)]
  await asSurveyOperator(async ({ survey }) => {
    const write = format === 'csv' ? await csvWriter(survey, surveyId) : jsonLine
    for (let isMore = true; isMore; ) {
      const { answers } = await survey.exportAnswers({
        surveyId,
        afterAnswerId: last,
        pageSize: PAGE_SIZE,
        ...interval,
      })
      process.stdout.write(answers.map(write).join(''))
      if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain')
      isMore = answers.length > 0
      count += answers.length
      last = answers.at(-1)?.answerId ?? last
    }
  })
  note(`${count} ${count === 1 ? 'answer' : 'answers'}${count > 0 ? `, the last with id ${last}` : ''}`)
}

function timed(name: 'since' | 'until', date: Date | undefined): Partial<Record<typeof name, Timestamp>> {
  return date ? { [name]: timestampFromDate(date) } : {}
}

function jsonLine(answer: Answer): string {
  return `${escaped(JSON.stringify(answerToJson(answer, answer.respondentId)))}\n`
}

/** With the header written. */
async function csvWriter(client: SurveyOperator['survey'], surveyId: bigint): Promise<(answer: Answer) => string> {
  const { surveys } = await client.exportSurveys({ surveyId })
  const questions = (surveys[0]?.survey as Survey | undefined)?.pages.flatMap((page) => page.questions) ?? []
  process.stdout.write(`${BYTE_ORDER_MARK}${csvHeader(questions)}`)
  const ids = questions.map(({ id }) => id)
  return (answer) => csvRow(answer, ids)
}
