// A connection that breaks at every point of every write: nothing half done, nothing done twice, and a caller whose write
// may or may not have happened is told so.
import pg from 'pg'
import { describe, expect, onTestFinished, test } from 'vitest'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { type Cut, type CuttingProxy, startCuttingProxy } from '../postgres/cutting-proxy.js'
import { patient } from '../postgres/patient.js'
import { migratedDatabase } from '../postgres/shared-cluster.js'
import {
  AFTER_WRITE,
  answersOf,
  ENDS_THE_TOKEN,
  eventsOf,
  fillSurveyStore,
  fillTokenStore,
  idsOf,
  surveyWrites,
  textOf,
  tokenWrites,
  type Write,
} from './store-writes.js'
import { isGood, NOW } from './token-store-verbs.js'

/** More than any write has. */
const MAX_STATEMENTS = 40

interface Opened<Store, Given> {
  readonly store: Store
  readonly given: Given
  readonly proxy: CuttingProxy
  /** Every row of every table, to compare. */
  dump(): Promise<unknown>
}

async function openThroughProxy<Store extends { close(): Promise<void> }, Given>(
  open: (options: { url: string }) => Promise<Store>,
  fill: (store: Store) => Promise<Given>,
): Promise<Opened<Store, Given>> {
  const url = await migratedDatabase()
  const proxy = await startCuttingProxy(url)
  const store = await open({ url: proxy.url, ...patient })
  const beside = new pg.Client(url)
  await beside.connect()
  onTestFinished(async () => {
    await beside.end()
    await store.close()
    await proxy.close()
  })
  return { store, given: await fill(store), proxy, dump: () => dump(beside) }
}

const openTokens = () => openThroughProxy(openPostgresTokenStore, fillTokenStore)
const openSurveys = () => openThroughProxy(openPostgresSurveyStore, fillSurveyStore)

async function dump(client: pg.Client): Promise<unknown> {
  const { rows: tables } = await client.query(`SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'`)
  const rows = tables.map(({ name }) => `SELECT '${name}' AS name, to_jsonb(t) AS row FROM ${name} t`)
  return (await client.query(`${rows.join(' UNION ALL ')} ORDER BY name, row`)).rows
}

/** Cuts the write at each point before its commit; the database must be as it was, and in the end the write must work. */
async function expectAllOrNothing<Store, Given>(
  { store, given, proxy, dump: dumpNow }: Opened<Store, Given>,
  write: Write<Store, Given>,
  read: () => Promise<void>,
): Promise<void> {
  const before = await dumpNow()
  const expectNothing = async (cut: Cut) => {
    proxy.cutAt(cut)
    const outcome = await write.run(store, given).catch((error: unknown) => error)
    if (proxy.cuts === 0) return false // it has fewer statements: it is done
    expect(outcome).toBeInstanceOf(StoreUnavailable)
    if (cut.at === 'BEGIN') expect(outcome).toMatchObject({ outcomeUnknown: false })
    if (cut.at === 'before COMMIT') expect(outcome).toMatchObject({ outcomeUnknown: true })
    proxy.cutAt(undefined)
    expect(await dumpNow()).toEqual(before)
    await read()
    return true
  }
  expect(await expectNothing({ at: 'BEGIN' })).toBe(true)
  expect(await expectNothing({ at: 'before COMMIT' })).toBe(true)
  let nth = 1
  while (await expectNothing({ at: 'statement', nth })) {
    nth += 1
    expect(nth).toBeLessThan(MAX_STATEMENTS)
  }
  expect(nth, 'the write has statements').toBeGreaterThan(1)
  expect(await dumpNow()).not.toEqual(before) // the last try was not cut, so it happened
}

/** Cuts the write after its commit: it happened, it is not run again, and the caller is told that its outcome is unknown. */
async function expectUnknown<Store, Given>(opened: Opened<Store, Given>, write: Write<Store, Given>): Promise<void> {
  const { store, given, proxy } = opened
  const before = await opened.dump()
  proxy.cutAt({ at: 'after COMMIT' })
  await expect(write.run(store, given)).rejects.toMatchObject({ outcomeUnknown: true })
  expect(proxy.cuts).toBe(1)
  proxy.cutAt(undefined)
  expect(await opened.dump()).not.toEqual(before)
}

describe('a token store whose connection breaks', () => {
  test.each(tokenWrites)('does $name wholly or not at all, and can be read afterwards', async (write) => {
    const opened = await openTokens()
    const { store, given } = opened
    await expectAllOrNothing(opened, write, async () => expect(await isGood(store, given.accessTokenHash)).toBe(true))
  })

  test.each(tokenWrites)('reports an unknown outcome after the commit of $name', async (write) => {
    const opened = await openTokens()
    await expectUnknown(opened, write)
    const { store, given } = opened
    expect(await isGood(store, given.accessTokenHash, NOW + 2000)).toBe(!ENDS_THE_TOKEN.test(write.name))
  })
})

describe('a survey store whose connection breaks', () => {
  test.each(surveyWrites)('does $name wholly or not at all, and can be read afterwards', async (write) => {
    const opened = await openSurveys()
    await expectAllOrNothing(opened, write, async () => expect(await textOf(opened.store)).toBe('a'))
  })

  test.each(surveyWrites)('reports an unknown outcome after the commit of $name', async (write) => {
    const opened = await openSurveys()
    await expectUnknown(opened, write)
    const { text, ids, answers, events } = AFTER_WRITE[write.name] ?? {}
    expect(await textOf(opened.store)).toBe(text)
    expect(await idsOf(opened.store)).toEqual(ids)
    expect(await answersOf(opened.store)).toEqual(answers)
    expect(await eventsOf(opened.store)).toEqual(events)
  })
})
