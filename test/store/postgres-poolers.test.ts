// PgBouncer between us and PostgreSQL.
import { describe, expect, test, vi } from 'vitest'
import { DatabaseRefused } from '../../services/storage/database-refused.js'
import { examine, openDatabase } from '../../services/storage/postgres/open.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { tokenSchema } from '../../services/token/store/postgres/schema.js'
import { createProcess } from '../harness/process.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { keepsPrepared, pgbouncerVersion, throughPgbouncer } from '../postgres/pgbouncer.js'
import { authorize, isGood, refresh, seed } from '../postgres/seed.js'
import { createDatabase } from '../postgres/shared-cluster.js'

vi.setConfig({ testTimeout: 60_000 })

const NOTHING = { name: 'nothing', migrations: [] }
const SETTINGS = {
  statement_timeout: '3s',
  lock_timeout: '2s',
  idle_in_transaction_session_timeout: '5s',
  synchronous_commit: 'on',
  enable_seqscan: 'off',
}
const OTHERS = {
  statement_timeout: '0',
  lock_timeout: '0',
  idle_in_transaction_session_timeout: '0',
  synchronous_commit: 'off',
  enable_seqscan: 'on',
}
const read = `SELECT ${Object.keys(SETTINGS).map((name) => `current_setting('${name}') AS ${name}`)}`

/** Whatever its settings, it needs none that is about ours. */
const modes = [
  { pool_mode: 'session', default_pool_size: '20' },
  ...(keepsPrepared ? [{ pool_mode: 'transaction', default_pool_size: '3', max_prepared_statements: '200' }] : []),
]

describe.skipIf(pgbouncerVersion === undefined).each(modes)('through a PgBouncer with %o', (mode) => {
  test('everything works, with our settings in our transactions and reads, and nobody else has them', async () => {
    const url = await createDatabase()
    await query(url, `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET synchronous_commit = off`)
    const through = await throughPgbouncer(url, mode)
    const store = closing(await openPostgresTokenStore({ url: through }))
    const seeded = await seed(store)
    const tokens = await Promise.all(Array.from({ length: 40 }, () => authorize(store, seeded)))
    for (const { accessTokenHash, refreshTokenHash } of tokens) {
      expect((await refresh(store, seeded, refreshTokenHash)).result).toBe('minted')
      expect(await isGood(store, accessTokenHash)).toBe(true)
    }
    const database = closing(await openDatabase({ url: through }, NOTHING))
    const statement = { name: 'settings', text: read }
    const ours = await Promise.all([
      database.read(statement, []),
      database.transaction((transaction) => transaction.ask(statement, [])),
      database.transaction((transaction) => transaction.write(statement, [])),
    ])
    expect(ours).toEqual([[SETTINGS], [SETTINGS], [SETTINGS]])
    const theirs = await Promise.all(Array.from({ length: 5 }, () => query(through, read)))
    for (const rows of theirs) expect(rows).toEqual([OTHERS])
  })
})

const why = /does not keep prepared statements: use PgBouncer 1\.21 or newer with max_prepared_statements = 200/

describe.skipIf(pgbouncerVersion === undefined)('a PgBouncer that keeps no prepared statements', () => {
  const mode = { pool_mode: 'transaction', ...(keepsPrepared && { max_prepared_statements: '0' }) }

  test('is refused at the start, with what to set, by doctor too', async () => {
    const through = await throughPgbouncer(await createDatabase(), mode)
    await expect(openPostgresTokenStore({ url: through })).rejects.toThrow(why)
    await expect(examine(through, tokenSchema)).rejects.toBeInstanceOf(DatabaseRefused)
    const service = await createProcess({ TOKEN_DATABASE_URL: through, SURVEY_DATABASE_URL: through })
    const { exitCode, stderr } = await service.cli(['serve'])
    expect({ exitCode, stderr }).toEqual({ exitCode: 78, stderr: expect.stringMatching(why) })
    expect((await service.run(['doctor'])).stdout).toMatch(why)
  })
})
