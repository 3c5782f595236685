// What commands print: data on stdout, as a table or as JSON; messages on stderr.
import { type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt'

/** One column of a table: its title and what it shows of a row. */
export type Columns<Row> = Readonly<Record<string, (row: Row) => string | number | boolean | null | undefined>>

/** ISO 8601 in UTC; null when unset. */
export function isoTime(time: Timestamp | undefined): string | null {
  return time ? timestampDate(time).toISOString() : null
}

/** For people: to the second, `-` when unset. */
export function shortTime(iso: string | null): string {
  return iso === null ? '-' : `${iso.slice(0, 19).replace('T', ' ')}Z`
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`)
}

/** A list as JSON or as a table; an empty table is only a message on stderr, so that stdout stays data. */
export function printRows<Row>(
  rows: readonly Row[],
  columns: Columns<Row>,
  { json, whenEmpty }: { readonly json: true | undefined; readonly whenEmpty: string },
): void {
  if (json) printJson(rows)
  else if (rows.length === 0) message(whenEmpty)
  else printTable(rows, columns)
}

/** A table with a header line. */
function printTable<Row>(rows: readonly Row[], columns: Columns<Row>): void {
  const titles = Object.keys(columns)
  const body = rows.map((row) => Object.values(columns).map((cell) => shown(cell(row))))
  const widths = titles.map((title, column) =>
    Math.max(width(title), ...body.map((cells) => width(cells[column] ?? ''))),
  )
  for (const cells of [titles.map((title) => title.toUpperCase()), ...body]) {
    const line = cells.map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - width(cell))).join('  ')
    process.stdout.write(`${line.trimEnd()}\n`)
  }
}

/** Names and values, one a line. */
export function printFields(fields: Readonly<Record<string, string | number | boolean | null | undefined>>): void {
  const widest = Math.max(...Object.keys(fields).map(width))
  for (const [name, value] of Object.entries(fields)) {
    process.stdout.write(`${name.padEnd(widest)}  ${shown(value)}\n`)
  }
}

/** A line for the person at the terminal, on stderr. */
export function message(text: string): void {
  process.stderr.write(`${text}\n`)
}

/** Text of strangers, without what could move the cursor or change the terminal. */
function shown(value: string | number | boolean | null | undefined): string {
  if (value === null || value === undefined || value === '') return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return String(value).replace(/\p{Cc}|\p{Cf}/gu, '\u{fffd}')
}

/** Columns of a terminal that a text takes: CJK and emoji take two. */
function width(text: string): number {
  let columns = 0
  for (const character of text) columns += WIDE.test(character) ? 2 : 1
  return columns
}

const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u
