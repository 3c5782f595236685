// Answers as CSV (RFC 4180): a row each, a column for each question of the survey, and one for what was answered to others.
import { answerToJson } from '../../gateway/api/answer-to-json.js'
import type { Answer, AnsweredOption, AnsweredQuestion } from '../../gen/surveyauth/v1/answer_pb.js'
import type { Question } from '../../gen/surveyauth/v1/survey_pb.js'

const HEAD = ['answer_id', 'respondent_id', 'started_at', 'ended_at', 'score'] as const

export function csvHeader(questions: readonly Pick<Question, 'id' | 'title'>[]): string {
  return line([...HEAD, ...questions.map(({ id, title }) => title || id), 'other'])
}

/** `ids`: of the questions that have a column. */
export function csvRow(answer: Answer, ids: readonly string[]): string {
  const json = answerToJson(answer, answer.respondentId) as Record<(typeof HEAD)[number], string | number | null>
  const given = answer.pages.flatMap(({ questions }) => questions)
  const byId = new Map(given.map((question) => [question.id, question]))
  const others = given.filter(({ id }) => !ids.includes(id)).map((question) => `${question.id}: ${inWords(question)}`)
  const answers = ids.map((id) => byId.get(id)).map((question) => (question ? inWords(question) : ''))
  return line([...HEAD.map((name) => json[name]), ...answers, others.join('; ')])
}

function inWords({ text, options, groups, blanks }: AnsweredQuestion): string {
  const parts = [
    text,
    ...options.map(chosen),
    ...groups.map(({ id, text, options }) => `${text || id}: ${options.map(chosen).join(', ') || text}`),
    ...blanks.map(({ value }) => value),
  ]
  return parts.filter((part) => part !== '').join('; ')
}

function chosen({ id, text }: AnsweredOption): string {
  return text || id
}

function line(cells: readonly (string | number | null)[]): string {
  return `${cells.map(cell).join(',')}\r\n`
}

/** How spreadsheets recognize a formula, which they would run; a number is none. */
const FORMULA = /^\s*[=+\-@＝＋－＠]|^[\t\r\n]/
/** The same behind what ends a cell, within quotes too, where a spreadsheet's list separator is a semicolon or a tab. */
const LATER_FORMULA = /(?<=[;\t\r\n][\s"]*)[=+\-@＝＋－＠]/g

function cell(value: string | number | null): string {
  if (typeof value !== 'string') return String(value ?? '')
  const text = (FORMULA.test(value) ? `'${value}` : value).replace(LATER_FORMULA, "'$&")
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
