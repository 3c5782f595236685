// What commands print: data on stdout, as a table or as JSON; messages on stderr.
import { once } from 'node:events'
import { type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt'

/** JSON has times as ISO 8601 in UTC, tables to the second; a list is one cell. */
type Cell = string | number | boolean | Date | readonly string[] | null | undefined

/** What is printed of one thing: in JSON its members, in a table cells. */
type Row = Readonly<Record<string, Cell>>

/** Columns of a table: members of a row, or titles with what they show of a row. */
export type Columns<R> = readonly ((keyof R & string) | readonly [title: string, cell: (row: R) => Cell])[]

/** How a list is printed. */
export interface ListStyle {
  readonly json?: true | undefined
  /** Instead of an empty table; a note, so that stdout holds only data. */
  readonly whenEmpty?: string
}

/** null when unset. */
export function dateOf(time: Timestamp | undefined): Date | null {
  return time ? timestampDate(time) : null
}

export function printJson(value: unknown): void {
  process.stdout.write(`${escaped(JSON.stringify(value, null, 2))}\n`)
}

/** One thing: as JSON, or names and values, one per line. */
export function printRow(row: Row, { json }: { readonly json?: true | undefined }): void {
  if (json) {
    printJson(row)
    return
  }
  const widest = Math.max(...Object.keys(row).map(width))
  for (const [name, value] of Object.entries(row)) process.stdout.write(`${name.padEnd(widest)}  ${shown(value)}\n`)
}

/** A list as JSON or as a table. */
export function printRows<R extends Row>(rows: readonly R[], columns: Columns<R>, style: ListStyle): void {
  const list = listOf(columns, style)
  list.add(rows)
  list.end()
}

/** A list that may be long: the rows of each page are printed before the next one is fetched. */
export async function printPages<Item, R extends Row>(
  pages: AsyncIterable<readonly Item[]>,
  toRow: (item: Item) => R,
  columns: Columns<R>,
  style: ListStyle,
): Promise<void> {
  await print(pages, toRow, listOf(columns, style))
}

/** The same, as JSON only. */
export function printJsonPages<Item>(
  pages: AsyncIterable<readonly Item[]>,
  toRow: (item: Item) => unknown,
): Promise<void> {
  return print(pages, toRow, new JsonList())
}

async function print<Item, R>(
  pages: AsyncIterable<readonly Item[]>,
  toRow: (item: Item) => R,
  list: List<R>,
): Promise<void> {
  for await (const items of pages) {
    list.add(items.map(toRow))
    if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain')
  }
  list.end()
}

interface List<R> {
  add(rows: readonly R[]): void
  end(): void
}

function listOf<R extends Row>(columns: Columns<R>, { json, whenEmpty = '' }: ListStyle): List<R> {
  return json ? new JsonList() : new Table(columns, whenEmpty)
}

/** As printJson prints an array. */
class JsonList implements List<unknown> {
  #isEmpty = true

  add(rows: readonly unknown[]): void {
    if (rows.length === 0) return
    const texts = rows.map((row) => `  ${escaped(JSON.stringify(row, null, 2)).replaceAll('\n', '\n  ')}`)
    process.stdout.write(`${this.#isEmpty ? '[' : ','}\n${texts.join(',\n')}`)
    this.#isEmpty = false
  }

  end(): void {
    process.stdout.write(this.#isEmpty ? '[]\n' : '\n]\n')
  }
}

/** With a header line. Columns are as wide as the rows so far require. */
class Table<R extends Row> implements List<R> {
  readonly #titles: readonly string[]
  readonly #cells: readonly ((row: R) => Cell)[]
  readonly #whenEmpty: string
  readonly #widths: number[]
  #isEmpty = true

  constructor(columns: Columns<R>, whenEmpty: string) {
    this.#titles = columns.map((column) => (typeof column === 'string' ? column : column[0]))
    this.#cells = columns.map((column) => (typeof column === 'string' ? (row) => row[column] : column[1]))
    this.#whenEmpty = whenEmpty
    this.#widths = this.#titles.map(width)
  }

  add(rows: readonly R[]): void {
    if (rows.length === 0) return
    const lines = rows.map((row) => this.#cells.map((cell) => shown(cell(row))))
    for (const cells of lines) {
      for (const [at, cell] of cells.entries()) this.#widths[at] = Math.max(this.#widths[at] ?? 0, width(cell))
    }
    if (this.#isEmpty) lines.unshift(this.#titles.map((title) => title.toUpperCase()))
    this.#isEmpty = false
    process.stdout.write(lines.map((cells) => `${this.#line(cells)}\n`).join(''))
  }

  end(): void {
    if (this.#isEmpty) note(this.#whenEmpty)
  }

  #line(cells: readonly string[]): string {
    const padded = cells.map((cell, at) => cell + ' '.repeat((this.#widths[at] ?? 0) - width(cell)))
    return padded.join('  ').trimEnd()
  }
}

/** Lines for the person at the terminal, on stderr. They may quote text written by others. */
export function message(text: string): void {
  process.stderr.write(`${process.stderr.isTTY ? EMPTY_LINE : ''}${harmlessLines(text)}\n`)
}

/** What a person likes to know, and a script's log does not need: only on a terminal. */
export function note(text: string): void {
  if (process.stderr.isTTY) message(text)
}

export const NOTHING_STORED = 'nothing is stored: this was a dry run'

const EMPTY_LINE = '\r\u001b[K' // of a terminal; there may be a bar

const PROGRESS_MS = 5_000
const BAR_COLUMNS = 30

/** `share` of the whole, 0 to 1, for works that can tell. */
export type Progress = (text: string, share?: number) => void

/** Says on a terminal how far a long work is: as a bar, which is gone when the work is done, or every few seconds. */
export function progress(): Progress {
  let saidAt = performance.now()
  return (text, share) => {
    if (!process.stderr.isTTY) return
    if (share !== undefined) {
      const done = Math.floor(share * BAR_COLUMNS)
      const bar = share === 1 ? '' : `[${'#'.repeat(done).padEnd(BAR_COLUMNS, '.')}] ${harmless(text)}`
      process.stderr.write(`${EMPTY_LINE}${bar}`)
    } else if (performance.now() - saidAt >= PROGRESS_MS) {
      saidAt = performance.now()
      message(text)
    }
  }
}

function shown(cell: Cell): string {
  if (cell === null || cell === undefined) return '-'
  if (typeof cell === 'boolean') return cell ? 'yes' : 'no'
  if (cell instanceof Date) return `${cell.toISOString().slice(0, 19).replace('T', ' ')}Z`
  return harmless(typeof cell === 'object' ? cell.join(' ') : String(cell)) || '-'
}

/** Text written by others, without what could move the cursor or change the terminal. */
function harmless(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, '\u{fffd}')
}

export function harmlessLines(text: string): string {
  return text.split('\n').map(harmless).join('\n')
}

/** The same JSON, without what harmless replaces: JSON.stringify escapes only what is below U+0020. */
export function escaped(json: string): string {
  return json.replace(/[\u007f-\u009f\p{Cf}\u2028\u2029]/gu, (character) =>
    character.replace(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  )
}

/** Columns of a terminal that a text takes: CJK and emoji take two, combining marks none, and a flag is two letters. */
function width(text: string): number {
  let columns = 0
  for (const character of text) if (!NO_WIDTH.test(character)) columns += WIDE.test(character) ? 2 : 1
  return columns
}

const NO_WIDTH = /\p{Mn}|\p{Me}/u
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|(?!\p{Regional_Indicator})\p{Emoji_Presentation}/u
