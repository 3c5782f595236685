// What imports of a long file have in common: batches, the records that were refused, the totals, and an end that can be gone on from.
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { isOfSystem, unreadable, unwritable } from './error-code.js'
import { CommandError, EXIT } from './exit.js'
import { message, NOTHING_STORED, note, printRow } from './output.js'
import { type RecordRead, UnreadableRecords } from './records.js'

/** Refused records that are shown without a report. */
const MAX_SHOWN = 10

export interface Refusal {
  readonly line: number
  readonly reason: string
}

/** The first few for the terminal, all for the report. */
export class Refusals {
  readonly #shown: Refusal[] = []
  readonly #report
  #count = 0

  constructor(file: string | undefined) {
    if (file === undefined) return
    this.#report = createWriteStream(file, { mode: 0o600 })
    this.#report.on('error', (error) => {
      throw new CommandError(unwritable(file, error))
    })
  }

  add(refusal: Refusal): void {
    this.#count += 1
    if (this.#report) this.#report.write(`${JSON.stringify(refusal)}\n`)
    else if (this.#shown.length < MAX_SHOWN) this.#shown.push(refusal)
  }

  async written(): Promise<void> {
    if (this.#report?.writableNeedDrain) await once(this.#report, 'drain')
  }

  async end(): Promise<void> {
    if (!this.#report) return
    this.#report.end()
    await once(this.#report, 'close')
  }

  print(): void {
    for (const { line, reason } of this.#shown) message(`line ${line}: ${reason}`)
    const more = this.#count - this.#shown.length
    if (more > 0 && !this.#report) message(`… and ${more} more; --report FILE writes them all`)
  }
}

interface Bounds<Item> {
  readonly maxItems: number
  readonly maxBytes?: number
  readonly sizeOf?: (item: Item) => number
}

/** The records from the line `from` on, in batches; a single one that is larger still makes one. */
export async function* inBatches<Item extends Pick<RecordRead, 'line'>>(
  all: AsyncIterable<Item>,
  from: number,
  { maxItems, maxBytes = Number.POSITIVE_INFINITY, sizeOf = () => 0 }: Bounds<Item>,
): AsyncGenerator<readonly Item[]> {
  let batch: Item[] = []
  let bytes = 0
  for await (const one of all) {
    if (one.line < from) continue
    const size = sizeOf(one)
    if (batch.length > 0 && bytes + size > maxBytes) {
      yield batch
      ;[batch, bytes] = [[], 0]
    }
    batch.push(one)
    bytes += size
    if (batch.length === maxItems) {
      yield batch // before the next is read, which may fail
      ;[batch, bytes] = [[], 0]
    }
  }
  if (batch.length > 0) yield batch
}

export interface Tally {
  read: number
  refused: number
}

/** How far an import is, for its bar. */
export function soFar({ read, refused }: Tally): string {
  return `${read.toLocaleString('en')} read, ${refused.toLocaleString('en')} refused`
}

interface HowImported {
  readonly json?: true | undefined
  readonly dryRun?: true | undefined
}

/** What became of all records; `notes` beside. With refused ones the command exits with 3. */
export function printTotals(
  tally: Tally,
  { json, dryRun }: HowImported,
  refusals: Refusals,
  notes: readonly string[] = [],
): void {
  printRow({ ...tally, dry_run: dryRun === true }, { json })
  refusals.print()
  for (const text of notes) message(text)
  if (dryRun) note(NOTHING_STORED)
  if (tally.refused > 0) process.exitCode = EXIT.partial
}

/** undefined at the end. @throws CommandError when the file cannot be read */
export async function nextOf<Item>(items: AsyncGenerator<Item>, file: string): Promise<Item | undefined> {
  try {
    const { value, done } = await items.next()
    return done ? undefined : value
  } catch (error) {
    if (isOfSystem(error)) throw new CommandError(unreadable(file, error))
    throw error instanceof UnreadableRecords ? new CommandError(`cannot read ${file}: ${error.message}`) : error
  }
}

/** Aborted by the first signal, so that the call under way is finished; the second one ends the process. */
export function noticeInterruption(): AbortSignal {
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => controller.abort())
  return controller.signal
}
