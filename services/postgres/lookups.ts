// Rows that are looked up by their keys. Those that are asked for at about the same time are asked for together: what a
// statement costs at both ends is many times what one more row of it does.
import { keyOf } from '../rpc/bounded-map.js'
import { StoreUnavailable } from '../store/store-unavailable.js'
import { type Database, hasNul, type Statement, type Value } from './transaction.js'

/** Statements under way at a time; who asks meanwhile goes with the next. More would each carry fewer. */
const MAX_UNDER_WAY = 2
/** Lookups of different keys that wait; more are refused at once: they would wait longer than they have time. */
const MAX_WAITING = 1_000

export interface LookupOptions {
  /** PostgreSQL's types of $1, $2 and so on. */
  readonly types: readonly string[]
  /** Keys in one statement, which answers with the rows of all. */
  readonly maxTogether: number
}

interface Asker<Row> {
  resolve(rows: readonly Row[]): void
  reject(error: unknown): void
}

interface Asked<Row> {
  readonly values: readonly Value[]
  readonly askers: Asker<Row>[]
}

/** A statement that reads by its parameters, run for many values of them at once. */
export class Lookups<Row extends object> {
  readonly #database: Database
  readonly #statement: Statement
  readonly #maxTogether: number
  #waiting = new Map<string, Asked<Row>>()
  #underWay = 0
  #isScheduled = false

  constructor(database: Database, statement: Statement, { types, maxTogether }: LookupOptions) {
    this.#database = database
    this.#statement = together(statement, types)
    this.#maxTogether = maxTogether
  }

  /**
   * The rows, in the statement's order, as of a moment after this was called. Who asks for the same at the same time is
   * given the same. @throws StoreUnavailable
   */
  find(...values: Value[]): Promise<readonly Row[]> {
    if (hasNul(values)) return Promise.resolve([])
    const key = values.map((value) => (value instanceof Uint8Array ? keyOf(value) : String(value))).join('\0')
    let asked = this.#waiting.get(key)
    if (!asked) {
      if (this.#waiting.size >= MAX_WAITING) {
        return Promise.reject(new StoreUnavailable(new Error('too many callers wait for a database connection')))
      }
      asked = { values, askers: [] }
      this.#waiting.set(key, asked)
      this.#schedule()
    }
    const { askers } = asked
    return new Promise((resolve, reject) => {
      askers.push({ resolve, reject })
    })
  }

  /** At the end of the turn of the event loop, in which others ask too. */
  #schedule(): void {
    if (this.#isScheduled || this.#underWay >= MAX_UNDER_WAY || this.#waiting.size === 0) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      void this.#ask(this.#take())
      this.#schedule()
    })
  }

  #take(): Asked<Row>[] {
    const taken: Asked<Row>[] = []
    for (const [key, asked] of this.#waiting) {
      if (taken.length >= this.#maxTogether) break
      this.#waiting.delete(key)
      taken.push(asked)
    }
    return taken
  }

  async #ask(together: readonly Asked<Row>[]): Promise<void> {
    this.#underWay += 1
    try {
      const columns = (together[0]?.values ?? []).map((_, index) => together.map(({ values }) => values[index] ?? null))
      const rows = await this.#database.read<Row & { readonly place: number }>(this.#statement, columns)
      const found = together.map((): Row[] => [])
      for (const { place, ...row } of rows) found[place - 1]?.push(row as unknown as Row)
      together.forEach(({ askers }, index) => {
        for (const { resolve } of askers) resolve(found[index] ?? [])
      })
    } catch (error) {
      for (const { askers } of together) for (const { reject } of askers) reject(error)
    } finally {
      this.#underWay -= 1
      this.#schedule()
    }
  }
}

/**
 * The statement for every row of its parameters, which become arrays. OFFSET 0 keeps the planner from making one join of
 * it all, which it may then begin at the wrong end: each key is looked up as if it were the only one.
 */
function together({ name, text }: Statement, types: readonly string[]): Statement {
  const arrays = types.map((type, index) => `$${index + 1}::${type}[]`)
  const names = types.map((_, index) => `key${index + 1}`)
  const ofOne = text.replaceAll(/\$(\d+)/g, 'asked.key$1')
  return {
    name: `${name}_together`,
    text: `
      SELECT asked.place, one.*
      FROM unnest(${arrays.join(', ')}) WITH ORDINALITY AS asked (${names.join(', ')}, place)
        CROSS JOIN LATERAL (SELECT * FROM (${ofOne}) found OFFSET 0) one
      ORDER BY asked.place`,
  }
}
