// The records of a file, one after the other, however long it is.
import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { pipeline, type Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { CsvError, parse } from 'csv-parse'
import { parseExactly } from '../exact-json.js'

export interface RecordRead {
  /** Of the file, from 1; of a JSON document the position of the record. */
  readonly line: number
  /** The value, or why there is none. */
  readonly read: { readonly value: unknown } | { readonly fault: string }
}

/** Bytes of a line or a row; a longer one ends the import, since nobody knows where the next begins. */
const MAX_LINE_BYTES = 64 * 1024

/** @param file `-` for standard input */
export function open(file: string): Readable {
  return file === '-' ? process.stdin : createReadStream(file)
}

/** NDJSON: a JSON value a line. Empty lines are skipped. */
export async function* jsonLines(input: Readable): AsyncGenerator<RecordRead> {
  let line = 0
  for await (const content of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
    line += 1
    if (content.trim() === '') continue
    yield {
      line,
      read: content.length > MAX_LINE_BYTES ? { fault: 'the line is longer than 64 KiB' } : parsed(content),
    }
  }
}

/** CSV (RFC 4180) with a header line, which names the members. An empty cell is an absent member. */
export async function* csvRows(input: Readable): AsyncGenerator<RecordRead> {
  const parser = parse({
    columns: true,
    bom: true,
    info: true,
    skip_empty_lines: true,
    max_record_size: MAX_LINE_BYTES,
  })
  pipeline(input, parser, () => undefined) // the parser throws what the input throws
  for await (const { record, info } of readable(parser) as AsyncIterable<{
    record: Record<string, string>
    info: { lines: number }
  }>) {
    yield { line: info.lines, read: { value: fromCells(record) } }
  }
}

/** A JSON document that has its records in an array, or in the member `users`. It is read whole. */
export async function* jsonDocument(input: Readable): AsyncGenerator<RecordRead> {
  const value = parsedDocument(await text(input))
  const users = Array.isArray(value) ? value : (value as { readonly users?: unknown } | null)?.users
  if (!Array.isArray(users)) throw new UnreadableRecords('it has no list of users')
  for (const [index, user] of users.entries()) yield { line: index + 1, read: { value: user } }
}

/** The file as a whole is not what it should be. The message quotes nothing of it. */
export class UnreadableRecords extends Error {
  override readonly name = 'UnreadableRecords'
}

function parsedDocument(content: string): unknown {
  const { value, fault } = { value: undefined, fault: undefined, ...parsed(content) }
  if (fault !== undefined) throw new UnreadableRecords(fault)
  return value
}

function parsed(content: string): RecordRead['read'] {
  try {
    return { value: parseExactly(content) }
  } catch (error) {
    return { fault: error instanceof SyntaxError ? 'is no JSON' : (error as Error).message } // a SyntaxError quotes the text
  }
}

async function* readable(rows: AsyncIterable<unknown>): AsyncGenerator<unknown> {
  try {
    yield* rows
  } catch (error) {
    if (!(error instanceof CsvError)) throw error
    throw new UnreadableRecords(
      `${error.code.replace('CSV_', '').replaceAll('_', ' ').toLowerCase()} (CSV, line ${error.lines})`,
    )
  }
}

function fromCells(record: Readonly<Record<string, string>>): Record<string, unknown> {
  const given = Object.entries(record).filter(([, cell]) => cell !== '')
  return Object.fromEntries(given.map(([name, cell]) => [name, name === 'disabled' ? isTrue(cell) : cell]))
}

function isTrue(cell: string): unknown {
  return { true: true, false: false, 1: true, 0: false }[cell.toLowerCase()] ?? cell
}
