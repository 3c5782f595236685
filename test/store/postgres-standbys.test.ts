// A server with synchronous standbys acknowledges no write without them.
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { openDatabase } from '../../services/storage/postgres/open.js'
import { judgeStandbys } from '../../services/storage/postgres/standbys.js'
import type { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { freePort } from '../harness/free-port.js'
import { startProcess } from '../harness/process.js'
import { closing } from '../postgres/closing.js'
import { Cluster, query } from '../postgres/cluster.js'
import { createUser, issue, seed } from '../postgres/seed.js'

vi.setConfig({ testTimeout: 120_000 })

let cluster: Cluster
let standby: Cluster
beforeAll(async () => {
  cluster = await Cluster.create()
  standby = await cluster.createStandby()
}, 120_000)
afterAll(async () => {
  await standby?.destroy()
  await cluster?.destroy()
})

async function configure(setting: string): Promise<void> {
  await query(cluster.urlOf('postgres'), `ALTER SYSTEM SET ${setting}`)
  await query(cluster.urlOf('postgres'), 'SELECT pg_reload_conf()')
}

/** A database of a role that may nothing else. */
async function asGuest(): Promise<string> {
  const url = new URL(await cluster.createDatabase())
  const name = `guest_${url.pathname.slice(1)}`
  await query(url.href, `CREATE ROLE ${name} LOGIN; GRANT CREATE ON SCHEMA public TO ${name}`)
  url.username = name
  return url.href
}

const missing = {
  what: 'synchronous standby standby',
  state: 'missing',
  cause: expect.stringMatching(/^writes wait for 1 of synchronous_standby_names, and 0 can confirm/),
}

test('a synchronous standby that is missing is named, to a role without privileges too, until it is back', async () => {
  const store = closing(await openPostgresTokenStore({ url: await asGuest() }))
  await configure(`synchronous_standby_names = 'standby'`)
  expect(await store.ping()).toEqual([])
  await standby.stop()
  await expect.poll(() => store.ping(), { timeout: 20_000 }).toEqual([missing])
  await standby.start()
  await expect.poll(() => store.ping(), { timeout: 20_000 }).toEqual([])
})

test('a migration keeps no table locked while it waits for a synchronous standby', async () => {
  const url = await asGuest()
  const create = { version: 1, name: 'first', sql: 'CREATE TABLE used (id text)' }
  const expand = { version: 2, name: 'next', sql: 'ALTER TABLE used ADD COLUMN more text' }
  await (await openDatabase({ url }, { name: 'test', migrations: [create] })).close()
  await configure(`synchronous_standby_names = 'standby'`)
  await standby.stop()
  const migrated = openDatabase({ url }, { name: 'test', migrations: [create, expand] })
  await expect.poll(() => query(url, 'SELECT * FROM schema_versions')).toMatchObject([{ version: 2 }])
  await query(url, 'SET statement_timeout = 1000; SELECT more FROM used')
  expect(await Promise.race([migrated, 'waits'])).toBe('waits')
  await standby.start()
  await (await migrated).close()
}, 120_000)

test('so is one that is connected and does not confirm', async () => {
  const store = closing(await openPostgresTokenStore({ url: await asGuest() }))
  const seeded = await seed(store)
  await configure(`synchronous_commit = 'remote_apply'`)
  const later = closing(await openPostgresTokenStore({ url: await asGuest() }))
  const another = await seed(later)
  await query(standby.urlOf('postgres'), 'SELECT pg_wal_replay_pause()')
  try {
    await issue(store, seeded)
    expect(await store.ping()).toEqual([])
    const written = issue(later, another).catch(() => undefined)
    const state = 'does not confirm'
    const cause = expect.stringMatching(/^1 writes have waited for more than a second; mend it/)
    const flaws = () => later.ping()
    await expect.poll(flaws, { timeout: 20_000 }).toEqual([{ what: 'synchronous standby standby', state, cause }])
    await query(standby.urlOf('postgres'), 'SELECT pg_wal_replay_resume()')
    await written
    await expect.poll(flaws, { timeout: 20_000 }).toEqual([])
  } finally {
    await configure(`synchronous_commit = 'on'`)
  }
})

test('writes without it keep no more connections of the server than a process has, and leave reads theirs', async () => {
  const url = await asGuest()
  const store = closing(await openPostgresTokenStore({ url, statementTimeoutMs: 500 }))
  const seeded = await seed(store)
  const users = Array.from({ length: 60 }, (_, n) => ({ userId: `user_${n}`, username: `user ${n}` }))
  for (const user of users) await createUser(store, user)
  await configure(`synchronous_standby_names = 'standby'`)
  await expect.poll(() => store.ping(), { timeout: 20_000 }).toEqual([])
  await standby.stop()
  const refused: unknown[] = []
  for (const user of users) {
    const written = issue(store, { ...seeded, ...user }).catch((error: unknown) => refused.push(error))
    await expect(store.findApp(seeded.appid)).resolves.toBeDefined()
    await Promise.race([written, sleep(100)])
  }
  await expect.poll(() => refused.length, { timeout: 20_000 }).toBe(users.length)
  const waiting = await query(url, `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
  expect(waiting.length).toBeLessThanOrEqual(10)
  expect(refused.filter((error) => (error as StoreUnavailable).outcomeUnknown)).toHaveLength(waiting.length)
  await standby.start()
  await expect.poll(() => issue(store, seeded).catch(() => undefined), { timeout: 20_000 }).toBeDefined()
  // What was told to have failed did not happen; what may have happened did.
  expect(await query(url, `SELECT 1 FROM codes WHERE user_id <> '${seeded.userId}'`)).toHaveLength(waiting.length)
})

test('readiness, a metric, the log and doctor name it, while reads are answered, and a service can start', async () => {
  const url = await asGuest()
  const adminPort = await freePort()
  const env = { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url, ADMIN_PORT: String(adminPort) }
  await (await startProcess(env)).stop()
  await configure(`synchronous_standby_names = 'FIRST 1 ("node-2")'`)
  const service = await startProcess(env)
  const get = async (path: string) => (await fetch(`http://127.0.0.1:${adminPort}${path}`)).text()
  const what = (store: string) => `synchronous standby node-2 of the ${store} database`
  const lines = `ready\n${what('token')}: missing\n${what('survey')}: missing\n`
  await expect.poll(() => get('/readyz'), { timeout: 20_000 }).toBe(lines)
  await expect.poll(() => service.output, { timeout: 20_000 }).toContain(`ready, but without: ${what('token')} (`)
  expect(await get('/metrics')).toContain(`survey_auth_ready_but{reason="${what('token')}"} 1`)
  const { exitCode, stdout } = await service.run(['doctor', '--json'])
  const findings = JSON.parse(stdout) as { readonly check: string }[]
  expect({ exitCode, found: findings.find(({ check }) => check === 'token database') }).toEqual({
    exitCode: 1,
    found: {
      check: 'token database',
      state: 'wrong',
      detail: expect.stringMatching(/^synchronous standby node-2 missing: .*; start it, or take it out of synchr/),
    },
  })
  await configure(`synchronous_standby_names = ''`)
  await expect.poll(() => get('/readyz'), { timeout: 20_000 }).toBe('ready\n')
  expect((await service.run(['doctor'])).exitCode).toBe(0)
})

test.each<[string, readonly string[], string | undefined]>([
  ['a', ['a'], undefined],
  ['A', ['a'], undefined],
  ['a, b', ['b'], undefined],
  ['a,b', [], 'a, b'],
  ['*', ['x'], undefined],
  ['*', [], '*'],
  ['2 (a, b, c)', ['a', 'c'], undefined],
  ['2 (a, b, c)', ['c'], 'a, b'],
  ['FIRST 2 (a, b)', ['a'], 'b'],
  ['first 1 (a, b)', ['b'], undefined],
  ['ANY 1 ("node-1","node-2")', ['node-2'], undefined],
  ['ANY 2 ("node-1","node-2")', ['node-2'], 'node-1'],
  ['ANY 2 (*)', ['x'], '*'],
  ['"say ""a"""', ['say "a"'], undefined],
  ['2 (a)', ['a', 'a'], undefined],
])('of the standbys %s, when %j are connected, what is missing is %s', (list, connected, what) => {
  const found = judgeStandbys(list, { connected, waiting: 0 }).map((flaw) => flaw.what)
  expect(found).toEqual(what === undefined ? [] : [`synchronous standby ${what}`])
})
