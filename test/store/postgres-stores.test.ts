import { describe, expect, test } from 'vitest'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { openBare } from '../postgres/bare-database.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { patient } from '../postgres/patient.js'
import { authorize, refresh, seed as seedOne } from '../postgres/seed.js'
import { createDatabase, migratedDatabase } from '../postgres/shared-cluster.js'
import { presented } from './presented.js'
import { describeSurveyStore } from './survey-store-conformance.js'
import { describeTokenStore } from './token-store-conformance.js'
import {
  byOperator,
  byUser,
  grant,
  hashOf,
  isGood,
  issue,
  MINUTE,
  mint,
  NOW,
  REFRESH_TTL,
  redeem,
  seed,
  signIn,
  userRow,
} from './token-store-verbs.js'

describeTokenStore('PostgreSQL', async () => openPostgresTokenStore({ url: await migratedDatabase(), ...patient }))
describeSurveyStore('PostgreSQL', async () => openPostgresSurveyStore({ url: await migratedDatabase(), ...patient }))

/** Fails with the given SQLSTATE. */
const CREATE_FAIL = `CREATE FUNCTION fail(state text) RETURNS void LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = state; END $$`

let failing: Promise<string> | undefined

/** A database with that function, for all rows of a table. */
function failingDatabase(): Promise<string> {
  failing ??= createDatabase().then(async (url) => {
    await query(url, CREATE_FAIL)
    return url
  })
  return failing
}

describe('PostgreSQL stores', () => {
  test('tables that grow after the last ANALYZE are not read from end to end', async () => {
    const url = await createDatabase()
    const store = await openPostgresTokenStore({ url, ...patient, poolSize: 1 }) // one connection, so that plans are cached
    const seeded = await seedOne(store)
    const { refreshTokenHash } = await authorize(store, seeded)
    await query(url, 'ANALYZE') // from here on the planner believes that tables are empty or hold a row
    const rowsRead = async () => {
      const tables = await query(url, 'SELECT relname, seq_tup_read::int AS rows FROM pg_stat_user_tables')
      const names = ['codes', 'grants', 'access_tokens', 'openids', 'audit_events']
      return tables
        .filter(({ relname }) => names.includes(String(relname)))
        .reduce((sum, { rows }) => sum + Number(rows), 0)
    }
    const before = await rowsRead()
    for (let count = 0; count < 40; count++) {
      const { accessTokenHash } = await authorize(store, seeded)
      expect(await isGood(store, accessTokenHash)).toBe(true)
      expect((await refresh(store, seeded, refreshTokenHash)).result).toBe('minted')
    }
    await store.close() // a connection reports its statistics when it ends
    await expect.poll(rowsRead).toBe(before)
  })

  test('revocations look at no codes but those that can still be used, however many have expired', async () => {
    const url = await migratedDatabase()
    const store = closing(await openPostgresTokenStore({ url, ...patient }))
    await seed(store)
    const rowsWritten = async () =>
      (await query(url, 'SELECT expires_at_ms::text FROM codes ORDER BY issued_at_ms, code_hash')).flatMap(
        Object.values,
      )
    for (let i = 0; i < 3; i++) await issue(store, `expired ${i}`)
    const before = await rowsWritten()
    const later = NOW + 2 * 60 * MINUTE
    const revocations: ((grantId: string) => Promise<unknown>)[] = [
      (grantId) => store.revokeGrant(grantId, later, byUser),
      (grantId) => store.disconnectApp(grantId, 'user_ann', later, byUser),
      () => store.setUserPassword('user_ann', userRow('ann').passwordHash, later, byOperator),
      () => store.setUserDisabled('user_ann', true, later, byOperator),
    ]
    for (const [at, revoke] of revocations.entries()) {
      await signIn(store, userRow('ann'))
      const { grantId } = await grant(store, {}, {}, later)
      await issue(store, `unused ${at}`, {}, later)
      await revoke(grantId)
      expect((await redeem(store, `unused ${at}`, {}, later)).result.kind).toBe('refused')
    }
    expect((await rowsWritten()).slice(0, 3)).toEqual(before)
  })

  test('a removal takes at most its limit of request counts, and one that was taken back to 0 is not kept', async () => {
    const url = await migratedDatabase()
    const store = closing(await openPostgresTokenStore({ url, ...patient }))
    const count = (key: number, requests: number) => ({ key: `${key}`, windowEndMs: NOW, requests })
    const kept = async () => (await query(url, 'SELECT count(*)::int AS count FROM request_counts'))[0]?.count
    await store.countRequests([1, 2, 3, 4, 5, 6].map((key) => count(key, 2)))
    expect(await store.countRequests([count(1, -1), count(2, -2), count(7, 1)])).toEqual([1, 0, 1])
    expect(await kept()).toBe(6)
    const remove = () => store.removeRequestCounts({ endedBeforeMs: NOW + 1, limit: 4 })
    expect([await remove(), await kept(), await remove(), await kept()]).toEqual([4, 2, 2, 0])
  })

  test('a removal takes at most its limit of access tokens', async () => {
    const store = closing(await openPostgresTokenStore({ url: await migratedDatabase(), ...patient }))
    await seed(store)
    for (let i = 0; i < 4; i++) await mint(store, (await grant(store)).refreshTokenHash)
    const ended = NOW + 2 * REFRESH_TTL
    const remove = () => store.removeEnded({ endedBeforeMs: ended, auditBeforeMs: 0, limit: 3 })
    expect([await remove(), await remove(), await remove()].map(({ accessTokens }) => accessTokens)).toEqual([3, 3, 2])
  })

  test('a store tells how many connections it has', async () => {
    const store = closing(await openPostgresTokenStore({ url: await migratedDatabase(), ...patient }))
    await store.findApp('app1')
    const { inUse = -1, idle = -1, waiting = -1 } = store.connections?.() ?? {}
    expect([inUse + idle > 0, waiting]).toEqual([true, 0])
  })

  test('a closed store is unavailable', async () => {
    const store = await openPostgresTokenStore({ url: await migratedDatabase(), ...patient })
    await store.close()
    await expect(store.findApp('app1')).rejects.toThrow('the database is unavailable')
    await expect(store.ping()).rejects.toThrow('the database is unavailable')
  })

  test('a page token that is not a position of the list is refused as the caller’s mistake', async () => {
    const store = closing(await openPostgresTokenStore({ url: await migratedDatabase(), ...patient }))
    await expect(store.listGrants({}, { limit: 1, after: 'garbage' })).rejects.toThrow('the page token is not valid')
    for (const after of ['garbage', `${'a'.repeat(36)}\n`, '1', '~']) {
      await expect(store.listAuditEvents({}, { limit: 1, after })).rejects.toThrow('the page token is not valid')
    }
  })

  test('a missing table is a defect, not an unavailable database', async () => {
    const url = await createDatabase()
    const store = closing(await openPostgresTokenStore({ url, ...patient }))
    await query(url, 'ALTER TABLE access_tokens RENAME TO gone')
    await expect(store.findAccessToken(presented(hashOf('any')))).rejects.toThrow('does not exist')
  })

  test.each([
    ['08006', 'unavailable', 2],
    ['25P03', 'unavailable', 2],
    ['25P04', 'unavailable', 2],
    ['57P01', 'unavailable', 2],
    ['57P02', 'unavailable', 2],
    ['57P03', 'unavailable', 2],
    ['57P05', 'unavailable', 2],
    ['40001', 'unavailable', 8],
    ['40P01', 'unavailable', 8],
    ['25006', 'unavailable', 1],
    ['28P01', 'unavailable', 1],
    ['3D000', 'unavailable', 1],
    ['53100', 'unavailable', 1],
    ['55P03', 'unavailable', 1],
    ['57014', 'unavailable', 1],
    ['58030', 'unavailable', 1],
    ['23505', 'passed on unchanged', 8],
    ['42P01', 'passed on unchanged', 1],
    ['XX000', 'passed on unchanged', 1],
  ] as const)('a failure with SQLSTATE %s is %s; attempts: %i', async (state, outcome, times) => {
    const url = await failingDatabase()
    const counter = `times_${state.toLowerCase()}`
    await query(url, `CREATE SEQUENCE ${counter}`)
    const database = await openBare(url)
    const fail = { name: 'fail', text: 'SELECT nextval($2), fail($1)' }
    const process = { name: 'process', text: 'SELECT pg_backend_pid() AS id' }
    const [before] = await database.read(process, [])
    const failure = await database.read(fail, [state, counter]).catch((error: unknown) => error)
    expect(failure instanceof StoreUnavailable ? 'unavailable' : 'passed on unchanged').toBe(outcome)
    expect(failure).toMatchObject(
      outcome === 'passed on unchanged' ? { code: state } : { cause: { code: state }, outcomeUnknown: false },
    )
    expect(await query(url, `SELECT last_value::int AS times FROM ${counter}`)).toEqual([{ times }])
    const [after] = await database.read(process, [])
    expect(after?.id === before?.id, 'the connection is used again').toBe(times !== 2)
  })
})
