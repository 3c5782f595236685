// The records of a file, one after the other, however long it is.
import { createReadStream, ReadStream, statSync } from 'node:fs'
import { pipeline, type Readable } from 'node:stream'
import { CsvError, parse } from 'csv-parse'
import { parseExactly } from './exact-json.js'

export interface RecordRead {
  /** Of the file, from 1; of a JSON document the position of the record. */
  readonly line: number
  /** How much of the file has been read with it, 0 to 1; undefined where nobody knows how long that is. */
  readonly share: number | undefined
  /** The value, or why there is none. */
  readonly read: { readonly value: unknown } | { readonly fault: string }
}

/** Bytes of a line or a row; a longer one ends the import, since nobody knows where the next begins. */
const MAX_LINE_BYTES = 64 * 1024
/** Of a document that is read whole; no text may be much longer. */
const MAX_DOCUMENT = 256 * 1024 ** 2

/** @param file `-` for standard input */
export function open(file: string): Readable {
  return file === '-' ? process.stdin : createReadStream(file)
}

function shareOf(input: Readable): () => number | undefined {
  if (!(input instanceof ReadStream)) return () => undefined
  let size: number | undefined
  return () => {
    size ??= statSync(input.path).size
    return size > 0 ? input.bytesRead / size : undefined // a pipe has none
  }
}

/** NDJSON: a JSON value a line. Empty lines are skipped. */
export async function* jsonLines(input: Readable, maxBytes = MAX_LINE_BYTES): AsyncGenerator<RecordRead> {
  let line = 0
  const share = shareOf(input)
  for await (const content of linesOf(input, maxBytes)) {
    line += 1
    if (content.trim() === '') continue
    yield {
      line,
      share: share(),
      read: content.length > maxBytes ? { fault: `the line is longer than ${maxBytes / 1024} KiB` } : parsed(content),
    }
  }
}

/** Of a line that is too long only the beginning. */
async function* linesOf(input: Readable, maxBytes: number): AsyncGenerator<string> {
  let line = ''
  for await (const text of textOf(input)) {
    for (const [index, part] of text.split('\n').entries()) {
      if (index > 0) {
        yield line
        line = ''
      }
      if (line.length <= maxBytes) line += part
    }
  }
  yield line
}

/** Any other encoding would be stored as other ids and names. */
async function* textOf(input: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  const decoded = (bytes?: Uint8Array) => {
    try {
      return decoder.decode(bytes, { stream: bytes !== undefined })
    } catch {
      throw new UnreadableRecords('it is not UTF-8')
    }
  }
  for await (const bytes of input) yield decoded(bytes)
  yield decoded()
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
  const share = shareOf(input)
  pipeline(input, textOf, parser, () => undefined) // the parser throws what the input throws
  for await (const { record, info } of readable(parser) as AsyncIterable<{
    record: Record<string, string>
    info: { lines: number }
  }>) {
    yield { line: info.lines, share: share(), read: { value: fromCells(record) } }
  }
}

/** A JSON document that has its records in an array, or in the member `users`. It is read whole. */
export async function* jsonDocument(input: Readable): AsyncGenerator<RecordRead> {
  const value = parsedDocument(await wholeOf(input))
  const users = Array.isArray(value) ? value : (value as { readonly users?: unknown } | null)?.users
  if (!Array.isArray(users)) throw new UnreadableRecords('it has no list of users')
  for (const [index, value] of users.entries()) {
    yield { line: index + 1, share: (index + 1) / users.length, read: { value } }
  }
}

async function wholeOf(input: Readable): Promise<string> {
  let whole = ''
  for await (const text of textOf(input)) {
    whole += text
    if (whole.length > MAX_DOCUMENT) throw new UnreadableRecords('it is longer than 256 MiB')
  }
  return whole
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
