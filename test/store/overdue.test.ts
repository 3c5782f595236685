// A write whose turn comes after its caller has been told that it failed: it must not happen.
import { describe, expect, test } from 'vitest'
import type { Cause } from '../../services/storage/cause.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { closing } from '../postgres/closing.js'
import { patient } from '../postgres/patient.js'
import { migratedDatabase } from '../postgres/shared-cluster.js'
import { eventsOf, FILLED_EVENTS, fillSurveyStore, fillTokenStore, surveyWrites, tokenWrites } from './store-writes.js'
import { auditTrail } from './token-store-verbs.js'

/** Writes that no call causes. */
const UPKEEP = new Set(['touchSession', 'recordUses', 'removeEnded', 'removeEvents'])

const tokenStores: Readonly<Record<string, () => Promise<TokenStore>>> = {
  SQLite: async () => openSqliteTokenStore({ file: ':memory:' }),
  PostgreSQL: async () => openPostgresTokenStore({ url: await migratedDatabase(), ...patient }),
}
const surveyStores: Readonly<Record<string, () => Promise<SurveyStore>>> = {
  SQLite: async () => openSqliteSurveyStore({ file: ':memory:' }),
  PostgreSQL: async () => openPostgresSurveyStore({ url: await migratedDatabase(), ...patient }),
}

const isCause = (value: unknown): value is Cause => typeof value === 'object' && value !== null && 'dueAt' in value

/** The store as a call sees it whose deadline has passed. */
function late<Store extends object>(store: Store): Store {
  return new Proxy(store, {
    get(target, name, receiver) {
      const method: unknown = Reflect.get(target, name, receiver)
      if (typeof method !== 'function') return method
      return (...args: unknown[]) =>
        method.apply(
          target,
          args.map((arg) => (isCause(arg) ? { ...arg, dueAt: performance.now() - 1 } : arg)),
        )
    },
  })
}

async function expectRefused(writing: Promise<unknown>): Promise<void> {
  const failure = await writing.catch((error: unknown) => error)
  expect(failure).toBeInstanceOf(StoreUnavailable)
  expect(failure).toMatchObject({ outcomeUnknown: false })
}

describe.each(Object.keys(tokenStores))('on %s', (engine) => {
  test('no write of the token store begins after its caller has been told that it failed', async () => {
    const store = closing(await (tokenStores[engine] as () => Promise<TokenStore>)())
    const given = await fillTokenStore(store)
    const before = await auditTrail(store)
    const caused = tokenWrites.filter(({ name }) => !UPKEEP.has(name))
    expect(caused.length).toBeGreaterThan(15)
    for (const { run } of caused) await expectRefused(run(late(store), given))
    expect(await auditTrail(store)).toEqual(before)
    for (const { name, run } of tokenWrites.filter(({ name }) => UPKEEP.has(name))) {
      await expect(run(late(store), given), name).resolves.not.toBeInstanceOf(Error)
    }
  })

  test('no write of the survey store begins after its caller has been told that it failed', async () => {
    const store = closing(await (surveyStores[engine] as () => Promise<SurveyStore>)())
    await fillSurveyStore(store)
    for (const { run } of surveyWrites.filter(({ name }) => !UPKEEP.has(name)))
      await expectRefused(run(late(store), undefined))
    expect(await eventsOf(store)).toEqual(FILLED_EVENTS)
  })
})
