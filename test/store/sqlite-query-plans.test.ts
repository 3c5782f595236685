// Every statement of the stores, as SQLite would run it: by an index, and without sorting.
import { describe, expect, test } from 'vitest'
import { Kept } from '../../services/storage/sqlite/kept.js'
import { migrate, type Schema } from '../../services/storage/sqlite/migrate.js'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { answerReads, answerUpkeep, answerWrites } from '../../services/survey/store/sqlite/answers.js'
import { eventReads, eventRecorder, eventUpkeep, readRecorder } from '../../services/survey/store/sqlite/events.js'
import { surveyStoreReads } from '../../services/survey/store/sqlite/reads.js'
import { surveySchema } from '../../services/survey/store/sqlite/schema.js'
import { surveyStoreWrites } from '../../services/survey/store/sqlite/writes.js'
import { KeptTokens } from '../../services/token/store/sqlite/kept-tokens.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { tokenStoreReads, tokenStoreWrites } from '../../services/token/store/sqlite/sqlite-token-store.js'

/** A connection that remembers what was prepared on it. */
function recording(schema: Schema): { db: Connection; plain: Connection; prepared: Set<string> } {
  const plain = openDatabase(':memory:')
  migrate(plain, schema)
  const prepared = new Set<string>()
  const db = new Proxy(plain, {
    get(target, key) {
      if (key === 'prepare') {
        return (sql: string) => {
          prepared.add(sql)
          return target.prepare(sql)
        }
      }
      const value: unknown = Reflect.get(target, key)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  return { db, plain, prepared }
}

function planOf(db: Connection, sql: string): string[] {
  const names = [...sql.matchAll(/:([a-zA-Z_]+)/g)].map((match) => [match[1], 0])
  const values = names.length > 0 ? [Object.fromEntries(names)] : [...sql.matchAll(/\?/g)].map(() => 0)
  const plan = db.prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`).all(...values)
  return plan.map(({ detail }) => detail)
}

function tokenStatements(): ReturnType<typeof recording> {
  const recorded = recording(tokenSchema)
  const kept = new KeptTokens(recorded.plain)
  tokenStoreWrites(recorded.db, kept)
  const reads = tokenStoreReads(recorded.db, kept)
  for (const userId of [{}, { userId: 'u' }]) {
    for (const appid of [{}, { appid: 'a' }]) {
      for (const liveAtMs of [{}, { liveAtMs: 1 }]) {
        for (const after of [undefined, '1.x']) {
          reads.listGrants({ ...userId, ...appid, ...liveAtMs }, { limit: 1, after })
        }
      }
    }
  }
  return recorded
}

function surveyStatements(): ReturnType<typeof recording> {
  const recorded = recording(surveySchema)
  const kept = new Kept<object>(recorded.plain, 0)
  surveyStoreReads(recorded.db, kept)
  const record = eventRecorder(recorded.db)
  surveyStoreWrites(recorded.db, kept, record)
  answerReads(recorded.db)
  answerWrites(recorded.db, record)
  answerUpkeep(recorded.db)
  readRecorder(recorded.db)
  eventReads(recorded.db)
  eventUpkeep(recorded.db)
  return recorded
}

/** A list without a filter reads a whole index in its order, up to a limit. */
const allowedScans = [
  'SCAN g USING INDEX grants_by_issue', // every grant, newest first
  'USE TEMP B-TREE FOR LAST TERM OF ORDER BY', // sorts what was issued in the same ms
  'SCAN audit_events', // the first of them, up to a limit
  'SCAN (subquery-1)', // the rows found that way
  'USE TEMP B-TREE FOR group_concat(DISTINCT)', // of one block
  'SCAN surveys', // the highest id: the last row of the table
]

/** Runs once after a clock that was ahead: no index is worth its writes for that. */
function isAfterWrongClock(step: string, sql: string): boolean {
  return step.startsWith('SCAN') && sql.includes('> :aheadMs')
}

/** An index in this order would cost each exchange the write of another page. */
function isSortOfOneUser(step: string, sql: string): boolean {
  return step.endsWith('FOR ORDER BY') && / grants\b/.test(sql) && /\buser_id = \+?:userId/.test(sql)
}

describe('query plans', () => {
  for (const [name, { plain, prepared }] of [
    ['token', tokenStatements()],
    ['survey', surveyStatements()],
  ] as const) {
    test(`the ${name} store reads by index and sorts nothing but one user's grants`, () => {
      expect(prepared.size).toBeGreaterThan(5)
      for (const sql of prepared) {
        const unwanted = planOf(plain, sql).filter(
          (step) =>
            /^SCAN|TEMP B-TREE/.test(step) &&
            !allowedScans.includes(step) &&
            !isSortOfOneUser(step, sql) &&
            !isAfterWrongClock(step, sql),
        )
        expect(unwanted, sql).toEqual([])
      }
    })
  }

  test('an access token is found by three primary keys', () => {
    const { plain, prepared } = tokenStatements()
    const find = [...prepared].find((sql) => sql.includes('u.nickname, u.avatar, g.access_tokens')) ?? ''
    expect(planOf(plain, find).sort()).toEqual([
      'SEARCH a USING PRIMARY KEY (appid=?)',
      'SEARCH g USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)',
      'SEARCH u USING PRIMARY KEY (user_id=?)',
    ])
  })

  test('what a user may still do is found among what has not ended, however much has', () => {
    const { plain, prepared } = tokenStatements()
    const ofUsers = [...prepared].filter(
      (sql) => /\bgrants\b/.test(sql) && /\buser_id = (?:\?|\+?:)/.test(sql) && /\brevoked_at_ms IS NULL/.test(sql),
    )
    expect(ofUsers.length).toBeGreaterThan(7)
    for (const sql of ofUsers) {
      const indexes = planOf(plain, sql).flatMap(
        (step) => /\bgrants_(?:by_user|by_app|by_issue|open)\b/.exec(step) ?? [],
      )
      expect(new Set(indexes), sql).toEqual(new Set(['grants_open']))
    }
  })

  test('what a user may still do with one app is found without a look at what they have open with others', () => {
    const { plain, prepared } = tokenStatements()
    const ofUserAndApp = [...prepared].filter(
      (sql) => /\bappid = \+?[:?]/.test(sql) && /\buser_id = \+?[:?]/.test(sql) && /\brevoked_at_ms IS NULL/.test(sql),
    )
    expect(ofUserAndApp.length).toBeGreaterThan(5)
    for (const sql of ofUserAndApp) {
      const steps = planOf(plain, sql).filter((step) => step.includes('grants_open'))
      expect(steps.length, sql).toBeGreaterThan(0)
      for (const step of steps) expect(step, sql).toContain('user_id=? AND appid=?')
    }
  })

  test('no statement selects all columns', () => {
    for (const sql of [...tokenStatements().prepared, ...surveyStatements().prepared]) {
      expect(sql).not.toMatch(/SELECT\s+\*|\.\*/i)
    }
  })
})
