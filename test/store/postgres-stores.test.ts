import { describe, expect, test } from 'vitest'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { patient } from '../postgres/patient.js'
import { authorize, refresh, seed as seedOne } from '../postgres/seed.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { presented } from './presented.js'
import { describeSurveyStore } from './survey-store-conformance.js'
import { describeTokenStore } from './token-store-conformance.js'
import { grant, hashOf, isGood, mint, NOW, REFRESH_TTL, seed } from './token-store-verbs.js'

describeTokenStore('PostgreSQL', async () => openPostgresTokenStore({ url: await createDatabase(), ...patient }))
describeSurveyStore('PostgreSQL', async () => openPostgresSurveyStore({ url: await createDatabase(), ...patient }))

describe('PostgreSQL stores', () => {
  test('what was acknowledged is there after the store is opened again', async () => {
    const url = await createDatabase()
    const first = await openPostgresTokenStore({ url, ...patient })
    await seed(first)
    const { accessTokenHash } = await grant(first)
    await first.close()
    expect(await isGood(closing(await openPostgresTokenStore({ url, ...patient })), accessTokenHash)).toBe(true)
  })

  test('tables that grow unknown to the planner are not read from end to end', async () => {
    const url = await createDatabase()
    const store = await openPostgresTokenStore({ url, ...patient, poolSize: 1 }) // one connection, so that plans are kept
    const seeded = await seedOne(store)
    const { refreshTokenHash } = await authorize(store, seeded)
    await query(url, 'ANALYZE') // tables are empty or hold a row, as far as it knows from here on
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
    await store.close() // what a connection has counted is told when it ends
    await expect.poll(rowsRead).toBe(before)
  })

  test('a removal takes at most its limit of access tokens, which are rows of their own', async () => {
    const store = closing(await openPostgresTokenStore({ url: await createDatabase(), ...patient }))
    await seed(store)
    for (let i = 0; i < 4; i++) await mint(store, (await grant(store)).refreshTokenHash)
    const ended = NOW + 2 * REFRESH_TTL
    const remove = () => store.removeEnded({ endedBeforeMs: ended, auditBeforeMs: 0, limit: 3 })
    expect([await remove(), await remove(), await remove()].map(({ accessTokens }) => accessTokens)).toEqual([3, 3, 2])
  })

  test('a closed store is unavailable', async () => {
    const store = await openPostgresTokenStore({ url: await createDatabase(), ...patient })
    await store.close()
    await expect(store.findApp('app1')).rejects.toThrow('the database is unavailable')
    await expect(store.ping()).rejects.toThrow('the database is unavailable')
  })

  test('a page token that is no position of the list is refused as the caller’s mistake', async () => {
    const store = closing(await openPostgresTokenStore({ url: await createDatabase(), ...patient }))
    await expect(store.listGrants({}, { limit: 1, after: 'garbage' })).rejects.toThrow('the page token is not valid')
  })

  test('a missing table is a defect and not an unavailable database', async () => {
    const url = await createDatabase()
    const store = closing(await openPostgresTokenStore({ url, ...patient }))
    await query(url, 'ALTER TABLE access_tokens RENAME TO gone')
    await expect(store.findAccessToken(presented(hashOf('any')))).rejects.toThrow('does not exist')
  })
})
