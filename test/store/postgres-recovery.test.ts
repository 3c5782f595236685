import { once } from 'node:events'
import { type AddressInfo, createServer, Socket } from 'node:net'
import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { openDatabase } from '../../services/storage/postgres/open.js'
import { PrimaryPool } from '../../services/storage/postgres/pool.js'
import type { Database } from '../../services/storage/postgres/transaction.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { freePort } from '../harness/free-port.js'
import { closing } from '../postgres/closing.js'
import { Cluster, query } from '../postgres/cluster.js'
import { patient } from '../postgres/patient.js'
import { Relay } from '../postgres/relay.js'
import { authorize, cause, isGood, issue, redeem, refresh, type Seed, START, seed } from '../postgres/seed.js'

const NOTHING = { name: 'nothing', migrations: [] }
const MINUTE = 60_000

let cluster: Cluster
beforeAll(async () => {
  cluster = await Cluster.create()
}, 2 * MINUTE)
afterAll(() => cluster.destroy())

/** Calls until it succeeds; returns how long that took, in ms. */
async function untilIt(succeeds: () => Promise<unknown>): Promise<number> {
  const start = Date.now()
  for (;;) {
    try {
      await succeeds()
      return Date.now() - start
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || Date.now() - start > MINUTE) throw error
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}

interface History {
  /** Access tokens that were acknowledged. */
  readonly good: Uint8Array[]
  /** Codes whose exchange failed, and is known not to have happened. */
  readonly unused: Uint8Array[]
  failures: number
  /** Ends the clients and waits for them. */
  stop(): Promise<void>
}

/** Clients that authorize, exchange and refresh as fast as they can, whatever fails. */
function load(store: TokenStore, seeded: Seed, clients: number): History {
  let isOver = false
  const history = { good: [] as Uint8Array[], unused: [] as Uint8Array[], failures: 0 }
  const client = async () => {
    while (!isOver) {
      let codeHash: Uint8Array | undefined
      try {
        codeHash = await issue(store, seeded)
        const { result, ...tokens } = await redeem(store, seeded, codeHash)
        if (result.kind !== 'redeemed') throw new Error(result.kind)
        codeHash = undefined
        history.good.push(tokens.accessTokenHash)
        const refreshed = await refresh(store, seeded, tokens.refreshTokenHash)
        if (refreshed.result !== 'minted') throw new Error(refreshed.result)
        history.good.push(refreshed.accessTokenHash)
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error
        history.failures += 1
        if (codeHash && !error.outcomeUnknown) history.unused.push(codeHash)
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }
  }
  const running = Promise.all(Array.from({ length: clients }, client))
  return Object.assign(history, {
    async stop() {
      isOver = true
      await running
    },
  })
}

async function requireKept(store: TokenStore, seeded: Seed, history: History): Promise<void> {
  for (const accessTokenHash of history.good) expect(await isGood(store, accessTokenHash)).toBe(true)
  for (const codeHash of history.unused) {
    expect((await redeem(store, seeded, codeHash)).result.kind).toBe('redeemed')
  }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

test(
  'a database that was stopped is unavailable, and is used again when it is back',
  async () => {
    const store = closing(await openPostgresTokenStore({ url: await cluster.createDatabase() }))
    const seeded = await seed(store)
    const { accessTokenHash } = await authorize(store, seeded)
    await cluster.stop()
    await expect(store.ping()).rejects.toBeInstanceOf(StoreUnavailable)
    await expect(issue(store, seeded)).rejects.toBeInstanceOf(StoreUnavailable)
    await cluster.start()
    await untilIt(() => store.ping())
    expect(await isGood(store, accessTokenHash)).toBe(true)
    await authorize(store, seeded)
  },
  MINUTE,
)

test(
  'a database that refuses connections for whatever reason is unavailable, and is used again once it accepts them',
  async () => {
    const url = new URL(await cluster.createDatabase())
    const admin = url.href
    await query(admin, 'CREATE ROLE guest LOGIN; GRANT ALL ON SCHEMA public TO guest')
    const name = url.pathname.slice(1)
    url.username = 'guest'
    const store = closing(await openPostgresTokenStore({ url: url.href }))
    const elsewhere = new URL(admin)
    elsewhere.pathname = '/postgres'
    for (const [close, open] of [
      [`REVOKE CONNECT ON DATABASE "${name}" FROM PUBLIC`, `GRANT CONNECT ON DATABASE "${name}" TO PUBLIC`],
      [`ALTER DATABASE "${name}" ALLOW_CONNECTIONS false`, `ALTER DATABASE "${name}" ALLOW_CONNECTIONS true`],
    ] as const) {
      await store.ping()
      await query(elsewhere.href, close)
      await query(elsewhere.href, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`)
      await expect(store.ping()).rejects.toBeInstanceOf(StoreUnavailable)
      await expect(store.findApp('app')).rejects.toBeInstanceOf(StoreUnavailable)
      await query(elsewhere.href, open)
      await untilIt(() => store.ping())
    }
  },
  MINUTE,
)

/** The answer of a server that accepts every login. */
const WELCOME = Buffer.from('5200000008000000005a0000000549', 'hex')

/** A server that answers each piece it receives with the next of `answers`, where `end` hangs up; after those it is silent. */
async function pretend(...answers: readonly (Buffer | 'end')[]): Promise<number> {
  const sockets: Socket[] = []
  const server = createServer((socket) => {
    sockets.push(socket)
    const left = [...answers]
    socket.on('error', () => undefined)
    socket.on('data', () => {
      const answer = left.shift()
      if (answer === 'end') socket.end()
      else if (answer) socket.write(answer)
    })
  })
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return (server.address() as AddressInfo).port
}

test.each([
  ['says nothing', []],
  ['accepts the login and then says nothing', [WELCOME]],
  ['accepts the login and hangs up', [WELCOME, 'end']],
] as const)('a host that %s is unavailable, alone and as one of several', async (_, answers) => {
  const port = await pretend(...answers)
  const nobody = await freePort()
  for (const hosts of [`127.0.0.1:${port}`, `127.0.0.1:${nobody},127.0.0.1:${port}`]) {
    const options = { url: `postgres://postgres@${hosts}/postgres`, connectTimeoutMs: 200, statementTimeoutMs: 200 }
    await expect(openDatabase(options, NOTHING)).rejects.toBeInstanceOf(StoreUnavailable)
  }
})

/** To the cluster; closed after the test. */
async function openRelay(): Promise<Relay> {
  const relay = await Relay.open(cluster.port)
  onTestFinished(() => relay.close())
  return relay
}

/** An exchange through `hosts`, one of which may fall silent. */
async function exchangeThrough(hosts: (relay: Relay) => string) {
  const relay = await openRelay()
  const url = await cluster.createDatabase()
  const beside = closing(await openPostgresTokenStore({ url, ...patient }))
  const seeded = await seed(beside)
  const codeHash = await issue(beside, seeded)
  const through = `postgres://postgres@${hosts(relay)}${new URL(url).pathname}`
  const store = closing(await openPostgresTokenStore({ url: through }))
  return {
    relay,
    exchange: () => redeem(store, seeded, codeHash).catch((error: unknown) => error),
    isUnused: async () => (await redeem(beside, seeded, codeHash)).result.kind === 'redeemed',
    /** Ends all connections, and returns when the store must have noticed. */
    async disconnect() {
      const connections = 'FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()'
      await query(url, `SELECT pg_terminate_backend(pid) ${connections}`)
      await expect.poll(() => query(url, `SELECT 1 ${connections}`)).toEqual([])
      await pause(200)
    },
  }
}

test(
  'an exchange that a silent server did not answer in time is not made when the server responds again',
  async () => {
    const { relay, exchange, isUnused } = await exchangeThrough(({ port }) => `127.0.0.1:${port}`)
    relay.silence()
    const outcome = exchange()
    await pause(4_000) // the store gives the connection up after 3.5 s
    relay.resume()
    expect(await outcome).toMatchObject({ outcomeUnknown: false })
    expect(await isUnused()).toBe(true)
  },
  MINUTE,
)

test(
  'an exchange whose writable server is found too late is not made',
  async () => {
    const hosts = ({ port }: Relay) => `127.0.0.1:${port},127.0.0.1:${cluster.port}`
    const { relay, exchange, isUnused, disconnect } = await exchangeThrough(hosts)
    await disconnect()
    relay.silence() // it takes connections, so 2 s pass before another host is looked for
    expect(await exchange()).toMatchObject({ outcomeUnknown: false })
    expect(await isUnused()).toBe(true)
  },
  MINUTE,
)

test(
  'a transaction that lost a race is not retried after its deadline',
  async () => {
    const database = closing(await openDatabase({ url: await cluster.createDatabase() }, NOTHING))
    const lose = { name: 'lose', text: `DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '40001'; END $$` }
    let runs = 0
    const outcome = database.transaction(async (transaction) => {
      runs += 1
      await pause(2_100)
      await transaction.ask(lose, [])
    })
    await expect(outcome).rejects.toBeInstanceOf(StoreUnavailable)
    expect(runs).toBeLessThanOrEqual(1)
  },
  MINUTE,
)

test(
  'a lock that is never released makes the database unavailable only to those who need it',
  async () => {
    const url = await cluster.createDatabase()
    const store = closing(await openPostgresTokenStore({ url, lockTimeoutMs: 200 }))
    const seeded = await seed(store)
    const other = await seed(store)
    const locker = closing(await openDatabase({ url }, NOTHING))
    const lock = { name: 'lock', text: 'SELECT appid FROM apps WHERE appid = $1 FOR UPDATE' }
    await locker.transaction(async (transaction) => {
      await transaction.ask(lock, [seeded.appid])
      await expect(issue(store, seeded)).rejects.toMatchObject({ outcomeUnknown: false })
      await authorize(store, other)
    })
    await authorize(store, seeded)
  },
  MINUTE,
)

/** The values of `settings` on our connection, to a database that sets `others`. */
async function settingsBeside(others: Readonly<Record<string, string>>, settings: readonly string[]) {
  const url = await cluster.createDatabase()
  const name = new URL(url).pathname.slice(1)
  for (const [setting, value] of Object.entries(others))
    await query(url, `ALTER DATABASE ${name} SET ${setting} = ${value}`)
  const database = closing(await openDatabase({ url }, NOTHING))
  const text = `SELECT ${settings.map((setting) => `current_setting('${setting}') AS ${setting}`).join(', ')}`
  return database.read({ name: 'settings', text }, [])
}

test.each([
  ['off', 'on'],
  ['local', 'on'],
  ['remote_write', 'on'],
  ['remote_apply', 'remote_apply'],
])(
  'our connections flush commits, even on a database whose default is %s',
  async (others, ours) => {
    const settings = await settingsBeside({ synchronous_commit: others }, ['synchronous_commit'])
    expect(settings).toEqual([{ synchronous_commit: ours }])
  },
  MINUTE,
)

test(
  'on our connections no statement, lock wait or idle transaction lasts without limit, whatever the database default',
  async () => {
    const ours = { statement_timeout: '3s', lock_timeout: '2s', idle_in_transaction_session_timeout: '5s' }
    const none = Object.fromEntries(Object.keys(ours).map((setting) => [setting, '0']))
    expect(await settingsBeside(none, Object.keys(ours))).toEqual([ours])
  },
  MINUTE,
)

test(
  'a transaction has its own lock wait, and reads what is committed, whatever the default',
  async () => {
    const url = await cluster.createDatabase()
    await query(
      url,
      `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET default_transaction_isolation = serializable`,
    )
    const database = closing(await openDatabase({ url, poolSize: 1 }, NOTHING))
    const settings = {
      name: 'settings',
      text: `SELECT current_setting('lock_timeout') AS wait, current_setting('transaction_isolation') AS level`,
    }
    const within = (lockWaitMs?: number) =>
      database.transaction((transaction) => transaction.ask(settings, []), lockWaitMs)
    const level = 'read committed'
    expect(await within(100)).toEqual([{ wait: '100ms', level }])
    expect(await within()).toEqual([{ wait: '2s', level }])
    const writes = { name: 'writes', text: 'SELECT 1' }
    await database.transaction((transaction) => transaction.write(writes, []), 100) // is committed
    expect(await within()).toEqual([{ wait: '2s', level }])
  },
  MINUTE,
)

test(
  'a server that runs with fsync = off is refused',
  async () => {
    const url = await cluster.createDatabase()
    const configure = async (text: string) => {
      await query(url, text)
      await query(url, 'SELECT pg_reload_conf()')
      await pause(500)
    }
    await configure('ALTER SYSTEM SET fsync = off')
    try {
      await expect(openPostgresTokenStore({ url })).rejects.toThrow('fsync = off')
    } finally {
      await configure('ALTER SYSTEM RESET fsync')
    }
  },
  MINUTE,
)

test(
  'every connection leaves a primary that has become read-only for the new one',
  async () => {
    const url = await cluster.createDatabase()
    const standby = await cluster.createStandby()
    const writable = new URL(url)
    writable.searchParams.set('options', '-c default_transaction_read_only=off')
    try {
      const hosts = `127.0.0.1:${cluster.port},127.0.0.1:${standby.port}`
      const store = closing(
        await openPostgresTokenStore({ url: `postgres://postgres@${hosts}${new URL(url).pathname}` }),
      )
      const seeded = await seed(store)
      const { accessTokenHash } = await authorize(store, seeded)
      const [written] = await query(url, 'SELECT pg_current_wal_lsn()::text AS place')
      const replayed = `SELECT pg_last_wal_replay_lsn() >= '${written?.place}' AS "isThere"`
      await expect.poll(() => query(standby.urlOf('postgres'), replayed)).toEqual([{ isThere: true }])
      await query(standby.urlOf('postgres'), 'SELECT pg_promote()')
      await query(url, 'ALTER SYSTEM SET default_transaction_read_only = on')
      await query(url, 'SELECT pg_reload_conf()')
      const ours = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'survey-auth'`
      const isLeft = async () => {
        await issue(store, seeded).catch(() => undefined) // until the signal arrives, the server accepts writes
        return (await query(url, ours)).length === 0
      }
      await expect.poll(isLeft, { timeout: 20_000 }).toBe(true)
      await authorize(store, seeded)
      expect(await isGood(store, accessTokenHash)).toBe(true)
    } finally {
      await query(writable.href, 'ALTER SYSTEM RESET default_transaction_read_only')
      await query(writable.href, 'SELECT pg_reload_conf()')
      await standby.destroy()
    }
  },
  2 * MINUTE,
)

/** Connections of this process to a port. */
function connectionsTo(port: number): number {
  const { _getActiveHandles } = process as unknown as { _getActiveHandles(): readonly unknown[] }
  return _getActiveHandles().filter((handle) => handle instanceof Socket && handle.remotePort === port).length
}

/** A pool with some connections to a host that then falls silent, and another host, `next`. */
async function onSilentHost(next = '') {
  const relay = await openRelay()
  const pool = new PrimaryPool({ url: `postgres://postgres@127.0.0.1:${relay.port}${next}/postgres` })
  const clients = await Promise.all([1, 2, 3].map(() => pool.acquire()))
  for (const client of clients) client.release()
  expect(connectionsTo(relay.port)).toBe(3)
  relay.silence()
  return { relay, pool }
}

test('a closed pool leaves no connection open, even when the server does not answer', async () => {
  const { relay, pool } = await onSilentHost()
  await pool.close()
  expect(connectionsTo(relay.port)).toBe(0)
})

test('a host that was given up is left by every connection, even when it does not answer', async () => {
  const { relay, pool } = await onSilentHost(`,127.0.0.1:${cluster.port}`)
  closing(pool).report(new Error('a connection was lost'))
  await expect.poll(() => connectionsTo(relay.port), { timeout: 30_000 }).toBe(0)
})

const unanswered = new Error('Query read timeout')

test('whoever waits for a connection when all are abandoned gets a new one at once', async () => {
  const pool = closing(new PrimaryPool({ url: cluster.urlOf('postgres'), poolSize: 1, connectTimeoutMs: 10_000 }))
  const held = await pool.acquire()
  const acquired = pool.acquire()
  pool.report(unanswered, held)
  const client = await acquired
  expect(client).not.toBe(held)
  client.release()
  held.release(true)
})

test('whoever waits for a connection gets one to the next primary, though all are replaced twice on the way', async () => {
  const relay = await openRelay()
  const url = `postgres://postgres@127.0.0.1:${relay.port},127.0.0.1:${cluster.port}/postgres`
  const pool = closing(new PrimaryPool({ url, poolSize: 1, connectTimeoutMs: 10_000 }))
  const held = await pool.acquire()
  const acquired = pool.acquire()
  relay.silence()
  pool.report(unanswered, held) // first by new ones to the same host, then by those to the other
  const client = await acquired
  client.release()
  held.release(true)
})

test('a connection that comes after all were abandoned is not kept', async () => {
  const relay = await openRelay()
  const pool = closing(new PrimaryPool({ url: `postgres://postgres@127.0.0.1:${relay.port}/postgres`, poolSize: 2 }))
  const held = await pool.acquire()
  const acquired = pool.acquire() // begins to connect
  pool.report(unanswered, held)
  const client = await acquired
  held.release(true)
  await expect.poll(() => connectionsTo(relay.port), { timeout: 10_000 }).toBe(1)
  client.release()
})

test('a server without a connection to spare fails no call while there is one: it is shared', async () => {
  const superuser = await cluster.createDatabase()
  await query(superuser, 'CREATE ROLE limited LOGIN CONNECTION LIMIT 2; GRANT CREATE ON SCHEMA public TO limited')
  const database = closing(
    await openDatabase({ ...patient, url: superuser.replace('postgres@', 'limited@'), poolSize: 10 }, NOTHING),
  )
  const read = () => database.read<{ pid: number }>({ name: '', text: 'SELECT pg_backend_pid() AS pid' }, [])
  const pids = async () => new Set((await Promise.all(Array.from({ length: 40 }, read))).map(([row]) => row?.pid))
  expect((await pids()).size).toBe(2)
  await query(superuser, 'ALTER ROLE limited CONNECTION LIMIT 9')
  await expect.poll(async () => (await pids()).size, { timeout: 5_000 }).toBe(9)
  await query(superuser, 'ALTER ROLE limited CONNECTION LIMIT 0')
  expect((await pids()).size).toBe(9)
})

test('no other primary is looked for because all connections stay in use', async () => {
  const relay = await openRelay()
  const url = `postgres://postgres@127.0.0.1:${relay.port},127.0.0.1:${cluster.port}/postgres`
  const pool = closing(new PrimaryPool({ url, poolSize: 1, connectTimeoutMs: 1_000 }))
  const held = await pool.acquire()
  const before = relay.accepted
  const refused = await Promise.allSettled(Array.from({ length: 20 }, () => pool.acquire()))
  held.release()
  for (const outcome of refused) expect(outcome).toMatchObject({ reason: { name: 'PoolExhausted' } })
  expect(relay.accepted).toBe(before)
})

test(
  'a primary is looked for until there is one, even while callers always wait for a connection that cannot be made',
  async () => {
    const relays = await Promise.all([openRelay(), openRelay()])
    const [first, second] = relays
    for (const relay of relays) relay.silence()
    const url = `postgres://postgres@127.0.0.1:${first.port},127.0.0.1:${second.port}/postgres`
    const pool = closing(new PrimaryPool({ url, poolSize: 1, connectTimeoutMs: 500 }))
    const outcomes: Promise<boolean>[] = []
    const acquire = async () => {
      const client = await pool.acquire()
      client.release()
      return true
    }
    for (let call = 0; call < 100; call++) {
      outcomes.push(acquire().catch(() => false))
      await pause(50)
      if (call === 40) second.resume()
    }
    expect(await outcomes.at(-1)).toBe(true)
  },
  MINUTE,
)

test('a pool is closed only when its abandoned connections are no longer in use either', async () => {
  const pool = new PrimaryPool({ url: cluster.urlOf('postgres') })
  const held = await pool.acquire()
  pool.report(unanswered, held)
  let isReleased = false
  const closed = pool.close().then(() => isReleased)
  await pause(200)
  isReleased = true
  held.release()
  expect(await closed).toBe(true)
})

test(
  'when connections are forgotten by the network, calls made after the first timeout are answered over new ones',
  async () => {
    const relay = await openRelay()
    const url = await cluster.createDatabase()
    const through = `postgres://postgres@127.0.0.1:${relay.port}${new URL(url).pathname}`
    const database = closing(await openDatabase({ url: through }, NOTHING))
    const sleepy = { name: 'sleepy', text: 'SELECT pg_sleep(0.3)' }
    await Promise.all(Array.from({ length: 10 }, () => database.read(sleepy, [])))
    expect(connectionsTo(relay.port)).toBe(10)
    relay.forgetConnections()
    const one = { name: 'one', text: 'SELECT 1 AS one' }
    const asked = Array.from({ length: 3 }, async (_, index) => {
      await pause(500 * index)
      return database.read(one, []).catch((error: unknown) => error)
    })
    expect(await asked[0]).toMatchObject({ cause: { message: 'Query read timeout' } })
    await pause(100)
    expect(await database.read(one, [])).toEqual([{ one: 1 }])
    await Promise.all(asked)
    await expect.poll(() => connectionsTo(relay.port), { timeout: 30_000 }).toBeLessThanOrEqual(2)
  },
  MINUTE,
)

/** The backends of a database's connections, which are all made to wait for `ms`. */
async function backends(database: Database, connections: number, ms: number): Promise<unknown[]> {
  const sleep = { name: 'sleep', text: `SELECT pg_backend_pid() AS pid FROM pg_sleep($1::float8 / 1000)` }
  const rows = await Promise.all(Array.from({ length: connections }, () => database.read(sleep, [ms])))
  return rows.map(([row]) => row?.pid)
}

test(
  'a commit that is not answered, because a synchronous standby is missing, costs no other connection',
  async () => {
    const url = await cluster.createDatabase()
    await query(url, 'CREATE TABLE notes (text text)')
    const database = closing(await openDatabase({ url }, NOTHING))
    const before = await backends(database, 4, 500)
    expect(new Set(before).size).toBe(4)
    await query(url, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`)
    await query(url, 'SELECT pg_reload_conf()')
    try {
      await expect
        .poll(() => query(url, 'SHOW synchronous_standby_names'))
        .toEqual([{ synchronous_standby_names: 'nobody' }])
      const note = { name: 'note', text: `INSERT INTO notes VALUES ('written')` }
      const written = database.transaction((transaction) => transaction.write(note, []))
      await expect(written).rejects.toMatchObject({ outcomeUnknown: true, cause: { message: 'Query read timeout' } })
      expect(before).toEqual(expect.arrayContaining(await backends(database, 2, 500)))
    } finally {
      await query(url, 'ALTER SYSTEM RESET synchronous_standby_names')
      await query(url, 'SELECT pg_reload_conf()')
    }
    await expect.poll(() => query(url, 'SELECT text FROM notes')).toEqual([{ text: 'written' }])
  },
  MINUTE,
)

test(
  'statements of a transaction that are sent together may each wait as long as a statement may',
  async () => {
    const url = await cluster.createDatabase()
    const store = closing(await openPostgresTokenStore({ url, lockTimeoutMs: MINUTE, statementTimeoutMs: 6_000 }))
    const seeded = await seed(store)
    const { grantId } = await authorize(store, seeded)
    const ours = `SELECT pid FROM pg_stat_activity
      WHERE datname = current_database() AND application_name = 'survey-auth' ORDER BY pid`
    await Promise.all([store.ping(), store.ping(), store.ping()])
    const before = await query(url, ours)
    const [ofUser, ofGrant] = [new pg.Client(url), new pg.Client(url)]
    await Promise.all([ofUser.connect(), ofGrant.connect()])
    await ofUser.query('BEGIN; SELECT 1 FROM users FOR UPDATE')
    await ofGrant.query('BEGIN; SELECT 1 FROM grants FOR UPDATE')
    const revoked = store.revokeGrant(grantId, START, cause)
    await pause(4_000)
    await ofUser.end()
    await pause(4_000) // 8 s in all; one statement may take 6 s
    await ofGrant.end()
    expect(await revoked).toBe('revoked')
    expect(await query(url, ours)).toEqual(before)
  },
  MINUTE,
)

test(
  'when the primary dies under load, the promoted standby is found, and nothing acknowledged is lost',
  async () => {
    const url = await cluster.createDatabase()
    const name = new URL(url).pathname.slice(1)
    const standby = await cluster.createStandby()
    try {
      await query(url, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
      await query(url, 'SELECT pg_reload_conf()')
      const synchronous = `SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'`
      while ((await query(url, synchronous)).length === 0) await pause(50)

      const hosts = `127.0.0.1:${standby.port},127.0.0.1:${cluster.port}`
      const store = closing(await openPostgresTokenStore({ url: `postgres://postgres@${hosts}/${name}` }))
      const seeded = await seed(store)
      const history = load(store, seeded, 16)
      await pause(1_000)
      await cluster.stop('immediate')
      await expect(store.ping()).rejects.toBeInstanceOf(StoreUnavailable)
      await query(standby.urlOf('postgres'), 'SELECT pg_promote()')
      expect(await untilIt(() => store.ping())).toBeLessThan(5_000)
      const before = history.good.length
      await pause(500)
      await history.stop()
      expect(history.good.length).toBeGreaterThan(before)
      await requireKept(store, seeded, history)
    } finally {
      await standby.destroy()
    }
  },
  2 * MINUTE,
)

test('a pool is closed, and whoever waits is refused, while the host does not answer a new connection', async () => {
  const relay = await openRelay()
  relay.silence()
  const url = `postgres://postgres@127.0.0.1:${relay.port}/postgres`
  const pool = new PrimaryPool({ url, poolSize: 1, connectTimeoutMs: 30_000 })
  const acquired = Promise.allSettled([pool.acquire(), pool.acquire()])
  await expect.poll(() => relay.accepted).toBeGreaterThan(0)
  const closed = pool.close().then(() => 'closed')
  expect(await Promise.race([closed, pause(10_000)])).toBe('closed')
  expect((await acquired).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
})

test('a pool is closed while it looks for a primary among hosts that do not answer', async () => {
  const relays = await Promise.all([openRelay(), openRelay()])
  for (const relay of relays) relay.silence()
  const hosts = relays.map(({ port }) => `127.0.0.1:${port}`).join()
  const pool = new PrimaryPool({ url: `postgres://postgres@${hosts}/postgres`, connectTimeoutMs: 30_000 })
  pool.report(unanswered)
  await expect.poll(() => relays.every(({ accepted }) => accepted > 0)).toBe(true)
  const closed = pool.close().then(() => 'closed')
  expect(await Promise.race([closed, pause(10_000)])).toBe('closed')
})
