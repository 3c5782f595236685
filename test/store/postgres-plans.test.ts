// Plans are cached, and one made when a table was empty must not read a whole index for one row.
import { createHash, randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { query } from '../postgres/cluster.js'
import { patient } from '../postgres/patient.js'
import { authorize, isGood, issue, redeem, refresh, type Seed, START, seed } from '../postgres/seed.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { presented } from './presented.js'

const ROWS = 20_000
/** Entries read from one index in 32 refreshes, exchanges and lookups: far fewer than it has. */
const FEW = 4_000

/** Users with a code and a grant each, named by their number. */
function fill({ appid }: Seed, from: number, count: number): string {
  const of = (table: string, columns: string) =>
    `INSERT INTO ${table} SELECT ${columns} FROM generate_series(${from}, ${from + count - 1}) i;`
  const end = START + 1e9
  return [
    of('users', `'u' || i, 'n' || i, '', '', '', 'none', false, false, 1`),
    of('openids', `'${appid}', 'u' || i, 'o' || i`),
    of(
      'grants',
      `'g' || i, '${appid}', 'u' || i, 'o' || i, 's', '', '', sha256(('r' || i)::bytea), ${START}, ${START}, 0, ${end}, NULL`,
    ),
    of('access_tokens', `sha256(('a' || i)::bytea), 'g' || i, 1, ${end}`),
    of(
      'codes',
      `sha256(('c' || i)::bytea), '${appid}', 'u' || i, 'https://a.example', '', 's', '', '', ${START}, ${end}, NULL, NULL`,
    ),
  ].join('')
}

const sha = (text: string) => createHash('sha256').update(text).digest()

test.each([
  ['nothing', 0, false, 'auto'],
  ['empty tables', 0, true, 'auto'],
  ['empty tables, and makes generic plans', 0, true, 'force_generic_plan'],
  ['tables of one row', 1, true, 'auto'],
] as const)(
  'a planner that knows %s reads no index or table from end to end',
  async (_, rowsKnown, isAnalyzed, planCacheMode) => {
    const url = await createDatabase()
    await query(url, `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET plan_cache_mode = ${planCacheMode}`)
    const store = await openPostgresTokenStore({ url, ...patient, poolSize: 1 }) // one connection, so that plans are cached
    const tables = ['users', 'codes', 'openids', 'grants', 'access_tokens', 'audit_events']
    await query(url, tables.map((table) => `ALTER TABLE ${table} SET (autovacuum_enabled = off)`).join(';'))
    const seeded = await seed(store)
    if (rowsKnown > 0) await query(url, fill(seeded, 1, rowsKnown))
    if (isAnalyzed) await query(url, 'ANALYZE')
    for (let round = 0; round < 8; round++) {
      const { accessTokenHash, refreshTokenHash } = await authorize(store, seeded)
      expect((await refresh(store, seeded, refreshTokenHash)).result).toBe('minted')
      expect(await isGood(store, accessTokenHash)).toBe(true)
      await redeem(store, seeded, await issue(store, seeded), 2)
    }
    await query(url, fill(seeded, 1_000_000, ROWS))

    const rowsRead = async () => {
      const indexes = await query(
        url,
        'SELECT indexrelname AS name, idx_tup_read::int AS rows FROM pg_stat_user_indexes',
      )
      const heaps = await query(url, 'SELECT relname AS name, seq_tup_read::int AS rows FROM pg_stat_user_tables')
      return new Map([...indexes, ...heaps].map(({ name, rows }) => [String(name), Number(rows)]))
    }
    const before = await rowsRead()
    for (let round = 0; round < 4; round++) {
      const users = Array.from({ length: 8 }, (_, at) => 1_000_000 + round * 1_000 + at)
      await Promise.all([
        ...users.map(async (id) => expect((await refresh(store, seeded, sha(`r${id}`))).result).toBe('minted')),
        ...users.map(async (id) =>
          expect((await redeem(store, seeded, sha(`c${id}`), 1)).result.kind).toBe('redeemed'),
        ),
        ...users.map((id) => store.findAccessToken(presented(sha(`a${id}`)))),
        refresh(store, seeded, randomBytes(32)),
        redeem(store, seeded, randomBytes(32)),
      ])
    }
    await store.close() // a connection reports its statistics when it ends
    await expect.poll(async () => (await rowsRead()).get('grants_by_refresh_token')).toBeGreaterThanOrEqual(32)
    const read = [...(await rowsRead())].map(([name, rows]) => [name, rows - (before.get(name) ?? 0)] as const)
    expect(read.filter(([, rows]) => rows > FEW)).toEqual([])
  },
)

test('an exchange reads nothing that its user has open with other apps', async () => {
  const url = await createDatabase()
  const store = await openPostgresTokenStore({ url, ...patient, poolSize: 1 })
  const seeded = await seed(store)
  const [other, code] = [await seed(store), await issue(store, seeded)]
  const columns = `'${other.appid}', '${seeded.userId}', 'o', 's', '', '', sha256(i::text::bytea), ${START}, ${START}, 0, ${START + 1e9}, NULL`
  await query(url, `INSERT INTO grants SELECT 'g' || i, ${columns} FROM generate_series(1, ${ROWS}) i`)
  const uri = `'https://a.example', '', 's', '', '', ${START}, ${START + 1e9}, NULL, NULL`
  await query(
    url,
    `INSERT INTO codes SELECT sha256(i::text::bytea), '${other.appid}', '${seeded.userId}', ${uri} FROM generate_series(1, ${ROWS}) i`,
  )
  expect((await redeem(store, seeded, code, 1)).result.kind).toBe('redeemed')
  await store.close()
  const read = () =>
    query(
      url,
      `SELECT coalesce(sum(idx_tup_read), 0)::int AS rows, max(idx_scan)::int AS scans FROM pg_stat_user_indexes
       WHERE relname IN ('grants', 'codes')`,
    )
  await expect.poll(async () => Number((await read())[0]?.scans)).toBeGreaterThan(0)
  expect(Number((await read())[0]?.rows)).toBeLessThan(100)
})
