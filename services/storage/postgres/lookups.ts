// Looks rows up by their keys, many lookups in one statement.
import { byteKey } from '../bounded-map.js'
import { isOver, type Until } from '../cause.js'
import { mayBeOfOne } from './errors.js'
import { Together, type Waiting } from './together.js'
import { columnsOf, type Database, type Statement, type Value } from './transaction.js'

/** Lookups in one statement, which returns the rows of all. */
const MAX_TOGETHER = 128
/** Half of what a lookup may wait to begin: whoever shares one that was asked before has the other half. */
const SHARED_FOR_MS = 1_000

interface Asked<Row> extends Waiting {
  readonly values: readonly Value[]
  resolve(rows: readonly Row[]): void
}

interface Shared<Row> {
  readonly dueAt: number
  readonly found: Promise<readonly Row[]>
}

/** A statement that reads by its parameters, run for many values of them at once. */
export class Lookups<Row extends object> {
  readonly #database: Database
  readonly #statement: Statement
  readonly #columns: readonly ((asked: Asked<Row>) => Value)[]
  readonly #together: Together<Asked<Row>>
  /** Lookups added since a group was last taken. A new map each time, see services/rpc/multiplex-transport.ts. */
  #asked = new Map<string, Shared<Row>>()

  /** `types`: the PostgreSQL types of $1, $2 and so on. */
  constructor(database: Database, statement: Statement, types: readonly string[], maxTogether = MAX_TOGETHER) {
    this.#database = database
    this.#statement = ofMany(statement, types)
    this.#columns = types.map(
      (_, index) =>
        ({ values }) =>
          values[index] ?? null,
    )
    this.#together = new Together(maxTogether, (group) => this.#ask(group))
  }

  /**
   * The rows, in the statement's order, as of a moment after this was called. Concurrent lookups of the same values share one
   * result. @throws StoreUnavailable
   */
  async find(...values: Value[]): Promise<readonly Row[]> {
    const key = values.map((value) => (value instanceof Uint8Array ? byteKey(value) : String(value))).join('\0')
    const until = this.#database.until()
    const shared = this.#asked.get(key)
    if (shared && until.dueAt - shared.dueAt < SHARED_FOR_MS) return shared.found
    return this.#add(key, until, values)
  }

  /** The first row of `find`. */
  async findOne(...values: Value[]): Promise<Row | undefined> {
    return (await this.find(...values))[0]
  }

  #add(key: string, until: Until, values: readonly Value[]): Promise<readonly Row[]> {
    const found = new Promise<readonly Row[]>((resolve, reject) => {
      this.#together.add({ key: undefined, ...until, values, resolve, reject })
    })
    this.#asked.set(key, { dueAt: until.dueAt, found })
    found.catch(() => {
      if (this.#asked.get(key)?.found === found) this.#asked.delete(key) // it was refused before it began
    })
    return found
  }

  async #ask(group: readonly Asked<Row>[]): Promise<void> {
    this.#asked = new Map()
    try {
      const found = group.map((): Row[] => [])
      const rows = await this.#database.read<Row & { readonly place: number }>(
        this.#statement,
        columnsOf(group, this.#columns),
      )
      for (const { place, ...row } of rows) found[place - 1]?.push(row as unknown as Row)
      group.forEach(({ resolve }, index) => {
        resolve(found[index] ?? [])
      })
    } catch (error) {
      const asksAlone = group.length > 1 && mayBeOfOne(error)
      for (const asked of group) {
        if (asksAlone && !isOver(asked)) void this.#ask([asked])
        else asked.reject(error)
      }
    }
  }
}

/**
 * The statement for every row of its parameters, which become arrays. OFFSET 0 keeps the planner from making a single join of
 * it all, which it might then start at the wrong end: each key is looked up as if it were the only one.
 */
function ofMany({ name, text }: Statement, types: readonly string[]): Statement {
  const arrays = types.map((type, index) => `$${index + 1}::${type}[]`)
  const names = types.map((_, index) => `key${index + 1}`)
  const ofOne = text.replaceAll(/\$(\d+)/g, 'asked.key$1')
  return {
    name: `${name}_of_many`,
    text: `
      SELECT asked.place, found.*
      FROM unnest(${arrays.join(', ')}) WITH ORDINALITY AS asked (${names.join(', ')}, place)
        CROSS JOIN LATERAL (SELECT * FROM (${ofOne}) one OFFSET 0) found`,
  }
}
