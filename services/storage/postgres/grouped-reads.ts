// Reads that come at about the same time share a statement.
import { Together, type Waiting } from './together.js'
import type { Database, Statement, Value } from './transaction.js'

const MAX_GROUP = 128

interface Asked<Row> extends Waiting {
  readonly value: Value
  resolve(row: Row | undefined): void
}

export class GroupedReads<Row extends object> {
  readonly #database: Database
  readonly #statement: Statement
  readonly #together = new Together<Asked<Row>>(MAX_GROUP, (group) => this.#ask(group))

  /** `statement`: finds at most a row for each value of the array $1; its column `place` says for which, from 1. */
  constructor(database: Database, statement: Statement) {
    this.#database = database
    this.#statement = statement
  }

  /** As of a moment after this was called. @throws StoreUnavailable */
  find(value: Value): Promise<Row | undefined> {
    return new Promise((resolve, reject) => {
      this.#together.add({ key: undefined, ...this.#database.until(), value, resolve, reject })
    })
  }

  async #ask(group: readonly Asked<Row>[]): Promise<void> {
    try {
      const values = group.map(({ value }) => value)
      const rows = await this.#database.read<Row & { readonly place: number }>(this.#statement, [values])
      const found = new Map(rows.map(({ place, ...row }) => [place, row as unknown as Row]))
      group.forEach(({ resolve }, index) => {
        resolve(found.get(index + 1))
      })
    } catch (error) {
      for (const { reject } of group) reject(error)
    }
  }
}
