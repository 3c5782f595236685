// Values of options: each is parsed, or refused with what it must be.
import { InvalidArgumentError } from 'commander'

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

const DATE_LENGTH = 'YYYY-MM-DD'.length

/** ISO 8601 with a time zone; a date alone means its first moment in UTC. */
export function time(text: string): Date {
  const isIso = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}))?$/.test(text)
  const date = new Date(text)
  const day = new Date(text.slice(0, DATE_LENGTH)) // Date takes the 31st of a month with 30 days for the 1st of the next
  if (isIso && !Number.isNaN(date.getTime()) && day.toISOString().startsWith(text.slice(0, DATE_LENGTH))) return date
  throw new InvalidArgumentError('must be a time like 2027-01-31 or 2027-01-31T08:00:00Z')
}
