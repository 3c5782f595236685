// What imports of a long file have in common: the records that were refused, an end that can be gone on from, and batches.
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { UnreadableRecords } from './accounts/records.js'
import { isOfSystem, unreadable, unwritable } from './error-code.js'
import { CommandError } from './exit.js'
import { message } from './output.js'

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
