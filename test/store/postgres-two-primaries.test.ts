// A standby was promoted, and the server it was a copy of still takes writes.
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { examine, openDatabase } from '../../services/storage/postgres/open.js'
import type { Database } from '../../services/storage/postgres/transaction.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { tokenSchema } from '../../services/token/store/postgres/schema.js'
import { freePort } from '../harness/free-port.js'
import { startProcess } from '../harness/process.js'
import { closing } from '../postgres/closing.js'
import { Cluster, query } from '../postgres/cluster.js'
import { authorize, isGood, seed } from '../postgres/seed.js'

vi.setConfig({ testTimeout: 120_000 })

const NOTHING = { name: 'nothing', migrations: [] }

let former: Cluster
let promoted: Cluster
let name: string

beforeAll(async () => {
  former = await Cluster.create()
  name = new URL(await former.createDatabase()).pathname
  await (await openPostgresTokenStore({ url: addressOf(former) })).close()
  promoted = await former.createStandby()
}, 120_000)
afterAll(async () => {
  await promoted?.destroy()
  await former?.destroy()
})

function addressOf(...clusters: readonly Cluster[]): string {
  return `postgres://postgres@${clusters.map(({ port }) => `127.0.0.1:${port}`).join()}${name}`
}

async function portOf(database: Database): Promise<unknown> {
  const [row] = await database.read({ name: 'port', text: `SELECT current_setting('port')::int AS port` }, [])
  return row?.port
}

const flaw = () => ({
  what: `host 127.0.0.1:${former.port}`,
  state: `takes writes beside 127.0.0.1:${promoted.port}`,
  cause: expect.stringMatching(/^it is on timeline 1, the one in use on 2: stop it/),
})

test('a standby that is promoted beside the server in use is moved to within seconds', async () => {
  const database = closing(await openDatabase({ url: addressOf(former, promoted) }, NOTHING))
  expect(await portOf(database)).toBe(former.port)
  expect(await database.ping()).toEqual([])
  await query(promoted.urlOf('postgres'), 'SELECT pg_promote()')
  await vi.waitUntil(async () => (await database.ping()).length > 0, 20_000)
  expect(await portOf(database)).toBe(promoted.port)
  expect(await database.ping()).toEqual([flaw()])
})

test('of two servers that take writes, the one promoted last is used, whichever is listed first, and the other is named', async () => {
  for (const hosts of [
    [former, promoted],
    [promoted, former],
  ] as const) {
    const url = addressOf(...hosts)
    const database = closing(await openDatabase({ url }, NOTHING))
    expect(await portOf(database)).toBe(promoted.port)
    expect(await examine(url, tokenSchema)).toEqual({ version: tokenSchema.migrations.length, flaws: [flaw()] })
  }
})

test('two addresses of one server are no flaw', async () => {
  const url = addressOf(promoted, promoted)
  expect((await examine(url, tokenSchema)).flaws).toEqual([])
})

test('a server that was left behind is not used when the promoted one stops, and the reason is given', async () => {
  const store = closing(await openPostgresTokenStore({ url: addressOf(former, promoted) }))
  const seeded = await seed(store)
  const { accessTokenHash } = await authorize(store, seeded)
  await promoted.stop()
  try {
    const why = /^the server takes writes on timeline 1, which a promotion to 2 has left behind/
    await expect(authorize(store, seeded)).rejects.toBeInstanceOf(StoreUnavailable)
    await expect(authorize(store, seeded)).rejects.toMatchObject({ cause: { message: expect.stringMatching(why) } })
  } finally {
    await promoted.start()
  }
  await vi.waitUntil(() => isGood(store, accessTokenHash).catch(() => false), 20_000)
})

test('readiness, the log, a metric and doctor name it, and the service starts though writes there wait for the standby', async () => {
  await query(former.urlOf('postgres'), `ALTER SYSTEM SET synchronous_standby_names = 'standby'`)
  await query(former.urlOf('postgres'), 'SELECT pg_reload_conf()')
  const url = addressOf(former, promoted)
  const adminPort = await freePort()
  const env = { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url, ADMIN_PORT: String(adminPort) }
  const startedAt = performance.now()
  const service = await startProcess(env)
  expect(performance.now() - startedAt).toBeLessThan(30_000)
  const get = async (path: string) => (await fetch(`http://127.0.0.1:${adminPort}${path}`)).text()
  const said = `host 127.0.0.1:${former.port} of the token database: takes writes beside 127.0.0.1:${promoted.port}`
  await vi.waitUntil(async () => (await get('/readyz')).startsWith('ready\n'), 20_000)
  expect(await get('/readyz')).toContain(said)
  await vi.waitUntil(() => service.output.includes('ready, but without: host '), 20_000)
  expect(await get('/metrics')).toContain(
    `survey_auth_ready_but{reason="host 127.0.0.1:${former.port} of the token database"} 1`,
  )
  const { exitCode, stdout } = await service.run(['doctor', '--json'])
  const findings = JSON.parse(stdout) as { readonly check: string }[]
  expect({ exitCode, found: findings.find(({ check }) => check === 'token database') }).toEqual({
    exitCode: 1,
    found: {
      check: 'token database',
      state: 'wrong',
      detail: expect.stringMatching(/it is on timeline 1, .+: stop it, and make it a standby/),
    },
  })
  await former.stop()
  expect((await service.run(['doctor'])).exitCode).toBe(0)
})
