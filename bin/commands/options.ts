// Options that several commands share.
import { InvalidArgumentError, Option } from 'commander'
import { isRequestId } from '../../services/rpc/requests.js'

/** What `jsonOption` gives. */
export interface Json {
  readonly json?: true
}

export function jsonOption(): Option {
  return new Option('--json', 'print JSON instead of a table')
}

/** The examples at the end of a command's help. */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ survey-auth ${line}`).join('\n')}\n`
}

/** For options that may be given several times. */
export function repeatable(value: string, previous: string[] = []): string[] {
  return [...previous, value]
}

export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
    if (value >= min && value <= max) return value
    throw new InvalidArgumentError(`must be a whole number from ${min} to ${max}`)
  }
}

export const surveyId = wholeNumber(1, Number.MAX_SAFE_INTEGER)

export function surveyIds(text: string, previous: readonly number[] = []): readonly number[] {
  return [...previous, surveyId(text)]
}

/** An id that no request can have, such as one with its quotes, is a mistake, and not a request that did nothing. */
export function requestId(text: string): string {
  if (isRequestId(text)) return text
  throw new InvalidArgumentError('must be a request_id, such as 0190b7e2-5c3a-4f6e-9d1b-2a3c4d5e6f70')
}

const DATE_LENGTH = 'YYYY-MM-DD'.length

/** ISO 8601 with a time zone; a date alone means its first moment in UTC. */
export function time(text: string): Date {
  const isIso = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}))?$/.test(text)
  const date = new Date(text)
  const day = new Date(text.slice(0, DATE_LENGTH)) // Date takes the 31st of a month with 30 days for the 1st of the next
  if (isIso && !Number.isNaN(date.getTime()) && day.toISOString().startsWith(text.slice(0, DATE_LENGTH))) return date
  throw new InvalidArgumentError('must be a time like 2027-01-31 or 2027-01-31T08:00:00Z')
}
