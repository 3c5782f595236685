// Options that several commands share.
import { InvalidArgumentError, Option } from 'commander'

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
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (value >= min && value <= max) return value
    throw new InvalidArgumentError(`must be a whole number from ${min} to ${max}`)
  }
}

const DATE_LENGTH = 'YYYY-MM-DD'.length

/** ISO 8601 with a time zone; a date alone means its first moment in UTC. */
export function time(text: string): Date {
  const isIso = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}))?$/.test(text)
  const date = new Date(text)
  const day = new Date(text.slice(0, DATE_LENGTH)) // the 31st of a month with 30 days is the 1st of the next one to Date
  if (isIso && !Number.isNaN(date.getTime()) && day.toISOString().startsWith(text.slice(0, DATE_LENGTH))) return date
  throw new InvalidArgumentError('must be a time like 2027-01-31 or 2027-01-31T08:00:00Z')
}
