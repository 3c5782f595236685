// A database that fails at every point of every write: nothing half done, reads go on, and it recovers by itself.
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GroupCommit } from '../../services/storage/sqlite/group-commit.js'
import { migrate } from '../../services/storage/sqlite/migrate.js'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { surveySchema } from '../../services/survey/store/sqlite/schema.js'
import { createSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { createSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { dump, type FailingConnection, type Failpoint, type FailureCode, failing } from './failpoints.js'
import {
  AFTER_WRITE,
  answersOf,
  draft,
  ENDS_THE_TOKEN,
  eventsOf,
  fillSurveyStore,
  fillTokenStore,
  type GivenGrant,
  idsOf,
  surveyWrites,
  textOf,
  tokenWrites,
  type Write,
} from './store-writes.js'
import { temporaryDirectory } from './temporary-directory.js'
import { byOperator, isGood, issue, NOW } from './token-store-verbs.js'

const CODES: readonly FailureCode[] = ['SQLITE_FULL', 'SQLITE_IOERR_WRITE', 'SQLITE_IOERR_FSYNC', 'SQLITE_READONLY']
/** More than any write has. */
const MAX_STATEMENTS = 40

let real: Connection
let connection: FailingConnection

beforeEach(() => {
  real = openDatabase(`${temporaryDirectory()}/some.db`)
  connection = failing(real)
})
afterEach(() => real.close())

function openTokenStore(): TokenStore {
  migrate(real, tokenSchema)
  return createSqliteTokenStore(connection.db, new GroupCommit(connection.db))
}

function openSurveyStore(): SurveyStore {
  migrate(real, surveySchema)
  return createSqliteSurveyStore(connection.db, new GroupCommit(connection.db))
}

async function openTokenStoreWithRows(): Promise<{ store: TokenStore; given: GivenGrant }> {
  const store = openTokenStore()
  const given = await fillTokenStore(store)
  expect(await isGood(store, given.accessTokenHash)).toBe(true) // cached from now on
  return { store, given }
}

async function openSurveyStoreWithRows(): Promise<SurveyStore> {
  const store = openSurveyStore()
  await fillSurveyStore(store)
  expect(await textOf(store)).toBe('a') // cached from now on, as the list is
  expect(await idsOf(store)).toEqual([7])
  return store
}

const points: readonly Failpoint[] = [{ at: 'before BEGIN' }, { at: 'before COMMIT' }]

/** Fails the write at each point; the database must be as it was, and in the end the write must work. */
async function expectAllOrNothing<Store, Given>(
  { store, given }: { readonly store: Store; readonly given: Given },
  write: Write<Store, Given>,
  read: () => Promise<void>,
): Promise<void> {
  const before = dump(real)
  const expectNothing = async (point: Failpoint, code: FailureCode) => {
    connection.failAt(point, code)
    const outcome = await write.run(store, given).catch((error: unknown) => error)
    if (connection.failures === 0) return false // it has fewer statements: it is done
    expect(outcome).toBeInstanceOf(StoreUnavailable)
    const isIoErrorOfCommit = point.at === 'before COMMIT' && code.startsWith('SQLITE_IOERR')
    expect(outcome).toMatchObject({ outcomeUnknown: isIoErrorOfCommit })
    expect(dump(real)).toEqual(before)
    expect(real.inTransaction).toBe(false)
    await read()
    return true
  }
  for (const code of CODES) for (const point of points) expect(await expectNothing(point, code)).toBe(true)
  let nth = 1
  while (await expectNothing({ at: 'a statement', nth }, CODES[nth % CODES.length] ?? 'SQLITE_FULL')) {
    nth += 1
    expect(nth).toBeLessThan(MAX_STATEMENTS)
  }
  expect(nth, 'the write has statements').toBeGreaterThan(1)
  expect(dump(real)).not.toEqual(before) // the last try met no failure, so it happened
}

/** Fails the write after its commit: it happened, and the caller is told that its outcome is unknown. */
async function expectUnknown<Store, Given>(
  { store, given }: { readonly store: Store; readonly given: Given },
  write: Write<Store, Given>,
): Promise<void> {
  const before = dump(real)
  connection.failAt({ at: 'after COMMIT' }, 'SQLITE_IOERR_FSYNC')
  await expect(write.run(store, given)).rejects.toMatchObject({ outcomeUnknown: true })
  expect(connection.failures).toBe(1)
  connection.failAt(undefined)
  expect(dump(real)).not.toEqual(before)
}

describe('a token store whose database fails', () => {
  test.each(tokenWrites)('does $name wholly or not at all, and can be read afterwards', async (write) => {
    const opened = await openTokenStoreWithRows()
    const { store, given } = opened
    await expectAllOrNothing(opened, write, async () => expect(await isGood(store, given.accessTokenHash)).toBe(true))
  })

  test.each(tokenWrites)(
    'reports an unknown outcome after the commit of $name, and then reads the new state',
    async (write) => {
      const { store, given } = await openTokenStoreWithRows()
      await expectUnknown({ store, given }, write)
      expect(await isGood(store, given.accessTokenHash, NOW + 2000)).toBe(!ENDS_THE_TOKEN.test(write.name))
    },
  )

  test('in one write fails only that one: others of its group are committed', async () => {
    const { store } = await openTokenStoreWithRows()
    connection.failAt({ at: 'a statement', nth: 1 })
    const failing = issue(store, 'one').finally(() => connection.failAt(undefined))
    const [first, second] = await Promise.allSettled([failing, issue(store, 'two')])
    expect([first.status, second.status]).toEqual(['rejected', 'fulfilled'])
    expect(await issue(store, 'one')).toBe('issued')
    expect(await issue(store, 'two')).toBe('exists_live')
  })

  test('because it is full refuses writes and answers reads, until there is space again', async () => {
    const { store, given } = await openTokenStoreWithRows()
    const maxPages = Number(real.pragma('max_page_count', { simple: true }))
    real.pragma(`max_page_count = ${Number(real.pragma('page_count', { simple: true }))}`)
    const issued: string[] = []
    let failure: unknown
    for (let i = 0; i < 2000 && failure === undefined; i += 1) {
      await issue(store, `code ${i}`, { maxLive: 10_000 }).then(
        () => issued.push(`code ${i}`),
        (error: unknown) => {
          failure = error
        },
      )
    }
    expect(failure).toBeInstanceOf(StoreUnavailable)
    expect(failure).toMatchObject({ outcomeUnknown: false })
    expect(await isGood(store, given.accessTokenHash)).toBe(true)
    expect(await store.revokeGrant('no such grant', NOW, byOperator)).toBe('not_found') // a write that needs no space works
    real.pragma(`max_page_count = ${maxPages}`)
    expect(await issue(store, `code ${issued.length}`, { maxLive: 10_000 })).toBe('issued')
    for (const name of issued) expect(await issue(store, name, { maxLive: 10_000 })).toBe('exists_live')
    expect(real.pragma('integrity_check', { simple: true })).toBe('ok')
  })
})

describe('a survey store whose database fails', () => {
  test.each(surveyWrites)('does $name wholly or not at all, and can be read afterwards', async (write) => {
    const store = await openSurveyStoreWithRows()
    const opened = { store, given: undefined }
    await expectAllOrNothing(opened, write, async () => expect(await textOf(store)).toBe('a'))
  })

  test.each(surveyWrites)(
    'reports an unknown outcome after the commit of $name, and then reads the new state',
    async (write) => {
      const store = await openSurveyStoreWithRows()
      await expectUnknown({ store, given: undefined }, write)
      const { text, ids, answers, events } = AFTER_WRITE[write.name] ?? {}
      expect(await textOf(store)).toBe(text)
      expect(await idsOf(store)).toEqual(ids)
      expect(await answersOf(store)).toEqual(answers)
      expect(await eventsOf(store)).toEqual(events)
    },
  )

  test('because it is full keeps what was there, and stores again once there is space', async () => {
    const store = await openSurveyStoreWithRows()
    const maxPages = Number(real.pragma('max_page_count', { simple: true }))
    real.pragma(`max_page_count = ${Number(real.pragma('page_count', { simple: true }))}`)
    const large = { ...draft(7, 'large'), document: Buffer.alloc(1_000_000) }
    await expect(store.putSurveys('ann', [draft(0, 'small'), large], NOW, byOperator)).rejects.toBeInstanceOf(
      StoreUnavailable,
    )
    expect(await textOf(store)).toBe('a')
    expect((await store.listSurveys('ann', { offset: 0, limit: 9 })).total).toBe(1)
    real.pragma(`max_page_count = ${maxPages}`)
    expect(await store.putSurveys('ann', [large], NOW, byOperator)).toMatchObject({ kind: 'stored' })
  })
})
