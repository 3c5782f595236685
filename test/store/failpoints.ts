// A connection that fails where a test says: before BEGIN, at a statement of the transaction, before COMMIT, or after
// COMMIT and before any caller is answered.
import { Database } from '../../services/storage/sqlite/driver.js'
import type { Connection } from '../../services/storage/sqlite/open.js'

export type Failpoint =
  | { readonly at: 'before BEGIN' | 'before COMMIT' | 'after COMMIT' }
  /** The nth statement of a write, from 1 on. */
  | { readonly at: 'a statement'; readonly nth: number }

/** SQLite's codes for a disk that is full, broken, or read-only. */
export type FailureCode = 'SQLITE_FULL' | 'SQLITE_IOERR_WRITE' | 'SQLITE_IOERR_FSYNC' | 'SQLITE_READONLY'

export interface FailingConnection {
  readonly db: Connection
  /** Makes every write fail there from now on; undefined: none. */
  failAt(failpoint: Failpoint | undefined, code?: FailureCode): void
  /** How often it has failed since it was told to. */
  readonly failures: number
}

const RUNS = new Set<PropertyKey>(['run', 'get', 'all', 'iterate'])
const AROUND_A_WRITE = /^(ROLLBACK|PRAGMA)/

export function failing(real: Connection): FailingConnection {
  let failpoint: Failpoint | undefined
  let code: FailureCode = 'SQLITE_FULL'
  let statements = 0
  let failures = 0

  function fail(): never {
    failures += 1
    throw new Database.SqliteError('it fails here', code)
  }

  function guard<T>(sql: string, work: () => T): T {
    if (sql === 'BEGIN IMMEDIATE') {
      statements = 0
      if (failpoint?.at === 'before BEGIN') fail()
    } else if (sql === 'COMMIT') {
      if (failpoint?.at === 'before COMMIT') fail()
      const result = work()
      return failpoint?.at === 'after COMMIT' ? fail() : result
    } else if (real.inTransaction && !AROUND_A_WRITE.test(sql)) {
      statements += 1
      if (failpoint?.at === 'a statement' && failpoint.nth === statements) fail()
    }
    return work()
  }

  /** `pluck`, `raw` and the like return the statement itself: it stays wrapped. */
  function wrapped<S extends object>(statement: S, sql: string): S {
    return new Proxy(statement, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        if (RUNS.has(key)) return (...args: unknown[]) => guard(sql, () => value.apply(target, args) as unknown)
        return (...args: unknown[]) => {
          const result: unknown = value.apply(target, args)
          return result === target ? wrapped(target, sql) : result
        }
      },
    })
  }

  const db = new Proxy(real, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      return (...args: unknown[]) => {
        const result: unknown = value.apply(target, args)
        return key === 'prepare' ? wrapped(result as object, String(args[0])) : result
      }
    },
  })
  return {
    db,
    failAt(where, how = 'SQLITE_FULL') {
      failpoint = where
      code = how
      failures = 0
    },
    get failures() {
      return failures
    },
  }
}

/** Every row of every table, to compare. */
export function dump(db: Connection): Record<string, unknown[]> {
  const tables = db.prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").pluck()
  return Object.fromEntries(tables.all().map((name) => [name, db.prepare(`SELECT * FROM "${name}"`).all()]))
}
