import { randomBytes, randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { Cause } from '../../services/storage/cause.js'
import { GroupedWrites } from '../../services/storage/postgres/grouped-writes.js'
import { openDatabase } from '../../services/storage/postgres/open.js'
import { Together, type Waiting } from '../../services/storage/postgres/together.js'
import type { Database } from '../../services/storage/postgres/transaction.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { openBare } from '../postgres/bare-database.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { startCuttingProxy } from '../postgres/cutting-proxy.js'
import { patient } from '../postgres/patient.js'
import {
  authorize,
  cause,
  createUser,
  isGood,
  issue,
  redeem,
  refresh,
  type Seed,
  START,
  seed,
} from '../postgres/seed.js'
import { createDatabase, migratedDatabase } from '../postgres/shared-cluster.js'
import { presented } from './presented.js'

async function open(options: Partial<Record<keyof typeof patient, number>> = {}) {
  const url = await migratedDatabase()
  const store = closing(await openPostgresTokenStore({ url, ...patient, ...options }))
  const locker = await openBare(url)
  /** Runs `work` while another transaction holds the row's lock. */
  function whileLocked<Result>(
    table: string,
    column: string,
    value: string | Uint8Array,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const lock = { name: `lock ${table}`, text: `SELECT 1 FROM ${table} WHERE ${column} = $1 FOR UPDATE` }
    return locker.transaction(async (transaction) => {
      expect(await transaction.ask(lock, [value])).toHaveLength(1)
      return await work()
    })
  }
  return { url, store, locker, whileLocked }
}

/** Another user of the same app. */
async function another(store: TokenStore, seeded: Seed): Promise<Seed> {
  const userId = `user_${randomUUID()}`
  await createUser(store, { userId, username: userId })
  return { ...seeded, userId, username: userId }
}

test('a refresh whose grant is locked delays no refresh sent with it', async () => {
  const { store, whileLocked } = await open()
  const seeded = await seed(store)
  const held = await authorize(store, seeded)
  const free = await authorize(store, seeded)
  let refreshed: ReturnType<typeof refresh> | undefined
  let isDone = false
  await whileLocked('grants', 'grant_id', held.grantId, async () => {
    refreshed = refresh(store, seeded, held.refreshTokenHash)
    void refreshed.then(() => {
      isDone = true
    })
    expect((await refresh(store, seeded, free.refreshTokenHash)).result).toBe('minted')
    expect(isDone).toBe(false)
  })
  expect((await refreshed)?.result).toBe('minted')
})

test.each([
  ['its code', 'codes', 'code_hash'],
  ['its openid', 'openids', 'user_id'],
  ['its app', 'apps', 'appid'],
  ['its secret', 'app_secrets', 'appid'],
] as const)('an exchange with %s locked delays no other', async (_, table, column) => {
  const { store, whileLocked } = await open()
  const one = await seed(store)
  const other = await seed(store)
  await authorize(store, one)
  const [held, free] = await Promise.all([issue(store, one), issue(store, other)])
  let exchanged: ReturnType<typeof redeem> | undefined
  await whileLocked(table, column, { code_hash: held, user_id: one.userId, appid: one.appid }[column], async () => {
    exchanged = redeem(store, one, held)
    expect((await redeem(store, other, free)).result.kind).toBe('redeemed')
  })
  expect((await exchanged)?.result.kind).toBe('redeemed')
})

test('an exchange that times out waiting for the grant it would push out fails alone', async () => {
  const { store, whileLocked } = await open({ lockTimeoutMs: 300 })
  const one = await seed(store)
  const other = await seed(store)
  const { grantId, accessTokenHash } = await authorize(store, one)
  const [blocked, free] = await Promise.all([issue(store, one), issue(store, other)])
  await whileLocked('grants', 'grant_id', grantId, async () => {
    const exchanged = redeem(store, one, blocked, 1).catch((error: unknown) => error)
    expect((await redeem(store, other, free, 1)).result.kind).toBe('redeemed')
    expect(await exchanged).toBeInstanceOf(StoreUnavailable)
  })
  expect(await isGood(store, accessTokenHash)).toBe(true)
  expect((await redeem(store, one, blocked, 1)).result.kind).toBe('redeemed')
  expect(await isGood(store, accessTokenHash)).toBe(false)
})

test('of writes that share a transaction, only one that the database refuses fails', async () => {
  const { store } = await open()
  const seeded = await seed(store)
  const { accessTokenHash, refreshTokenHash } = await authorize(store, seeded)
  const other = await authorize(store, seeded)
  const terms = { lifetimeMs: 1, overlapMs: 0, accessTokenHash: () => other.accessTokenHash }
  const taken = { refreshTokenHash, appid: seeded.appid, secretId: undefined, ...terms }
  const [refused, good] = await Promise.all([
    store.mintAccessToken(taken, START, cause).catch((error: unknown) => String(error)),
    refresh(store, seeded, other.refreshTokenHash),
  ])
  expect(refused).toContain('duplicate key')
  expect(await isGood(store, good.accessTokenHash)).toBe(true)
  expect(await isGood(store, accessTokenHash)).toBe(true)
})

test('concurrent exchanges of one user and app get the same openid, and the cap on grants holds', async () => {
  const { store } = await open()
  const seeded = await seed(store)
  const earlier = await authorize(store, seeded)
  const codes = await Promise.all(Array.from({ length: 6 }, () => issue(store, seeded)))
  const exchanges = await Promise.all(codes.map((codeHash) => redeem(store, seeded, codeHash, 2)))
  const openids = exchanges.map(({ result }) => (result.kind === 'redeemed' ? result.openid : result.kind))
  expect(new Set(openids).size).toBe(1)
  const good = await Promise.all([earlier, ...exchanges].map((each) => isGood(store, each.accessTokenHash)))
  expect(good.filter(Boolean)).toHaveLength(2)
})

test('concurrent exchanges of one code share a transaction: one succeeds, the others are recorded', async () => {
  const { store, url } = await open()
  const seeded = await seed(store)
  const codeHash = await issue(store, seeded)
  const exchanges = await Promise.all(Array.from({ length: 32 }, () => redeem(store, seeded, codeHash)))
  const forgiven = exchanges.filter(({ result }) => result.kind === 'refused' && result.replay === 'forgiven')
  expect(forgiven).toHaveLength(31)
  expect(exchanges.filter(({ result }) => result.kind === 'redeemed')).toHaveLength(1)
  const [events] = await query(
    url,
    `SELECT count(*)::int, count(DISTINCT xmin::text)::int AS transactions FROM audit_events WHERE kind LIKE 'code.%ed'
     AND kind <> 'code.issued'`,
  )
  expect(events).toEqual({ count: 32, transactions: 1 })
})

test('without a grace, concurrent exchanges of one code end the grant of the first', async () => {
  const { store } = await open()
  const seeded = await seed(store)
  const codeHash = await issue(store, seeded)
  const [first, second] = await Promise.all([0, 1].map(() => redeem(store, seeded, codeHash, 10_000, 0)))
  expect(first?.result.kind).toBe('redeemed')
  expect(second?.result).toEqual({ kind: 'refused', replay: 'revoked_grant' })
  expect(await isGood(store, first?.accessTokenHash ?? codeHash)).toBe(false)
})

test('a refused exchange leaves no openid behind, even when it was sent with another', async () => {
  const { store, url } = await open()
  const one = await seed(store)
  const other = await seed(store)
  const [wrong, right] = await Promise.all([issue(store, one), issue(store, other)])
  const redemption = {
    codeHash: wrong,
    appid: one.appid,
    secretId: one.secretId,
    redirectUri: 'https://app.example/other',
    codeChallenge: '',
    replayGraceMs: 0,
    grantId: 'grant_wrong',
    accessTokenHash: randomBytes(32),
    accessTokenExpiresAtMs: START + 1,
    refreshTokenHash: randomBytes(32),
    refreshTokenExpiresAtMs: START + 1,
    newOpenid: 'o_wrong',
    maxGrants: 10,
  }
  const [refused, redeemed] = await Promise.all([
    store.redeemCode(redemption, START, cause),
    redeem(store, other, right),
  ])
  expect(refused).toEqual({ kind: 'refused', replay: 'none' })
  expect(redeemed.result.kind).toBe('redeemed')
  expect(await query(url, 'SELECT user_id FROM openids')).toEqual([{ user_id: other.userId }])
})

test('an exchange whose caller was told that it failed is not made afterwards', async () => {
  const { store, url, locker } = await open()
  const hurried = closing(await openPostgresTokenStore({ url, ...patient, connectTimeoutMs: 500 }))
  const seeded = await seed(store)
  const users = await Promise.all(Array.from({ length: 100 }, () => another(store, seeded)))
  const codes = await Promise.all(users.map((user) => issue(store, user)))
  const lock = { name: 'lock', text: 'LOCK TABLE codes IN ACCESS EXCLUSIVE MODE' }
  const [exchanges, settled] = await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [])
    const exchanges = codes.map((codeHash) => redeem(hurried, seeded, codeHash).catch(() => undefined))
    return [exchanges, await Promise.race([Promise.all(exchanges.slice(64)), sleep(5_000)])] as const
  })
  expect(settled, 'those who wait are told').toEqual(new Array(36).fill(undefined))
  const made = (await Promise.all(exchanges)).filter((each) => each?.result.kind === 'redeemed')
  expect(await query(url, 'SELECT count(*)::int AS grants FROM grants')).toEqual([{ grants: made.length }])
})

test('an openid that another transaction is creating delays only its user', async () => {
  const { store, locker } = await open()
  const held = await seed(store)
  const others = await Promise.all(Array.from({ length: 10 }, () => another(store, held)))
  const [heldCode, ...codes] = await Promise.all([held, ...others].map((user) => issue(store, user)))
  const make = { name: 'make', text: 'INSERT INTO openids VALUES ($1, $2, $3) RETURNING openid' }
  const exchanged = await locker.transaction(async (transaction) => {
    await transaction.ask(make, [held.appid, held.userId, 'o_held'])
    const exchanged = redeem(store, held, heldCode as Uint8Array)
    const made = await Promise.all(others.map((user, at) => redeem(store, user, codes[at] as Uint8Array)))
    expect(new Set(made.map(({ result }) => result.kind))).toEqual(new Set(['redeemed']))
    return { result: exchanged }
  })
  expect((await exchanged.result).result.kind).toBe('redeemed')
})

test('exchanges that push out grants do not deadlock with the recording of uses', async () => {
  const { url, whileLocked } = await open()
  const store = await openPostgresTokenStore({ url, ...patient })
  const seeded = await seed(store)
  const all = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const user = await another(store, seeded)
      return { user, ...(await authorize(store, user)), codeHash: await issue(store, user) }
    }),
  )
  all.sort((one, other) => (one.grantId < other.grantId ? -1 : 1))
  const [low, middle, high] = all as [(typeof all)[0], (typeof all)[0], (typeof all)[0]]
  const grants = new Map(all.map(({ grantId }) => [grantId, START + 1]))
  const work = await whileLocked('grants', 'grant_id', middle.grantId, async () => {
    const uses = store.recordUses({ answers: new Map(), grants, secrets: new Map() }) // has locked the first, and waits for the second
    await sleep(300)
    const exchanges = [redeem(store, high.user, high.codeHash, 1), redeem(store, low.user, low.codeHash, 1)]
    await sleep(300)
    return [uses, ...exchanges]
  })
  await Promise.all(work)
  await store.close() // a connection reports its statistics when it ends
  const [counted] = await query(url, 'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()')
  expect(counted).toEqual({ deadlocks: 0 })
})

test.each([
  ['before COMMIT', 8, 8],
  ['after COMMIT', 16, 24],
] as const)(
  'when a group is cut off %s, all callers are told that the outcome is unknown, and nothing is done twice',
  async (at, grants, tokens) => {
    const url = await migratedDatabase()
    const proxy = await startCuttingProxy(url)
    const store = closing(await openPostgresTokenStore({ url: proxy.url, ...patient }))
    onTestFinished(() => proxy.close())
    const seeded = await seed(store)
    const users = await Promise.all(Array.from({ length: 8 }, () => another(store, seeded)))
    const granted = await Promise.all(users.map((user) => authorize(store, user)))
    const codes = await Promise.all(users.map((user) => issue(store, user)))
    for (const kind of ['refresh', 'exchange']) {
      proxy.cutAt({ at })
      const works =
        kind === 'refresh'
          ? granted.map(({ refreshTokenHash }) => refresh(store, seeded, refreshTokenHash))
          : codes.map((codeHash) => redeem(store, seeded, codeHash))
      const outcomes = await Promise.all(works.map((work: Promise<unknown>) => work.catch((error: unknown) => error)))
      for (const outcome of outcomes) expect(outcome).toMatchObject({ outcomeUnknown: true })
      proxy.cutAt(undefined)
    }
    const counts =
      'SELECT (SELECT count(*) FROM grants)::int AS grants, (SELECT count(*) FROM access_tokens)::int AS tokens'
    expect(await query(url, counts)).toEqual([{ grants, tokens }])
  },
)

test('a caller whose lookup timed out is answered when it asks again', async () => {
  const { store, locker } = await open({ connectTimeoutMs: 300 })
  const { accessTokenHash } = await authorize(store, await seed(store))
  const lock = { name: 'lock', text: 'LOCK TABLE access_tokens IN ACCESS EXCLUSIVE MODE' }
  await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [])
    for (let count = 0; count < 256; count++)
      void store.findAccessToken(presented(randomBytes(32))).catch(() => undefined)
    const token = presented(accessTokenHash)
    await expect(store.findAccessToken(token)).rejects.toBeInstanceOf(StoreUnavailable)
  })
  expect(await isGood(store, accessTokenHash)).toBe(true)
})

test('two groups run at a time, never with the same key; what waits too long or exceeds the queue is refused', async () => {
  const groups: (string | undefined)[][] = []
  const ends: (() => void)[] = []
  const refused: unknown[] = []
  const item = (key: string) => {
    return { key, dueAt: performance.now() + 1_000, reject: (error: unknown) => refused.push(error) }
  }
  const together = new Together<Waiting>(2, (group) => {
    groups.push(group.map(({ key }) => key))
    return new Promise((resolve) => {
      ends.push(resolve)
    })
  })
  for (const key of ['a', 'a', 'b', 'c', 'd']) together.add(item(key))
  const begun = [
    ['a', 'a'],
    ['b', 'c'],
  ]
  await expect.poll(() => groups, { interval: 5 }).toEqual(begun)
  for (let added = 0; added < 4_999; added++) together.add(item('e'))
  expect(refused).toEqual([])
  together.add(item('f'))
  expect(refused).toEqual([expect.any(StoreUnavailable)])
  ends[0]?.()
  await expect.poll(() => groups[2], { interval: 5 }).toEqual(['d', 'e'])
  await expect.poll(() => refused.length, { timeout: 5_000 }).toBe(1 + 4_998) // although nothing ends
})

test('a write whose deadline passed while the process was busy is refused, and not begun', async () => {
  const groups: (string | undefined)[][] = []
  const refused: unknown[] = []
  const together = new Together<Waiting>(2, async (group) => {
    groups.push(group.map(({ key }) => key))
  })
  await sleep(1) // starts from a timer: the end of the turn comes before the next timer
  const timers = vi.spyOn(globalThis, 'setTimeout')
  onTestFinished(() => timers.mockRestore())
  together.add({ key: 'late', dueAt: performance.now() - 1, reject: (error) => refused.push(error) })
  together.add({ key: 'in time', dueAt: performance.now() + 60_000, reject: (error) => refused.push(error) })
  await expect.poll(() => groups, { interval: 5 }).toEqual([['in time']])
  expect(refused).toEqual([expect.any(StoreUnavailable)])
  await sleep(1)
  together.add({ key: 'late', dueAt: performance.now() - 1, reject: (error) => refused.push(error) })
  await expect.poll(() => refused.length, { interval: 5 }).toBe(2)
  await sleep(1)
  expect(groups, 'nothing is begun for nobody').toEqual([['in time']])
  const negative = timers.mock.calls.filter(([, ms = 0]) => ms < 0)
  expect(negative, 'of which Node warns').toEqual([])
})

test('a caller is refused at once when all connections have as many waiting as they can serve in time', async () => {
  const url = await createDatabase()
  const database = closing(await openDatabase({ url, ...patient, poolSize: 1 }, { name: 'none', migrations: [] }))
  const locker = await openBare(url)
  const lock = { name: 'lock', text: 'SELECT pg_advisory_xact_lock(1)::text AS locked' }
  const served = await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [])
    const first = database.read(lock, [])
    const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`
    await expect.poll(async () => (await query(url, waits)).length, { timeout: 30_000 }).toBe(1)
    const served = [first, ...Array.from({ length: 50 }, () => database.read(lock, []))]
    await expect(database.read(lock, [])).rejects.toMatchObject({ cause: { name: 'PoolExhausted' } })
    return { all: Promise.all(served) }
  })
  expect(await served.all).toHaveLength(51)
})

test('a write that may wait less than those queued before it is refused in time, and all others go on', async () => {
  const refused: unknown[] = []
  const begun: string[] = []
  let finish = () => {}
  const working = new Promise<void>((resolve) => (finish = resolve))
  type Item = { key: string; dueAt: number; reject: (error: unknown) => void }
  const together = new Together<Item>(1, async (group) => {
    begun.push(...group.map(({ key }) => key))
    await working
  })
  const add = (key: string, ms: number) =>
    together.add({ key, dueAt: performance.now() + ms, reject: () => refused.push(key) })
  for (const [key, ms] of [
    ['a', 60_000],
    ['b', 60_000],
    ['c', 60_000],
    ['late', 20],
    ['d', 60_000],
  ] as const)
    add(key, ms)
  await sleep(50)
  finish()
  await vi.waitFor(() => expect(begun).toEqual(['a', 'b', 'c', 'd']))
  expect(refused).toEqual(['late'])
})

test('when the outcome of a group is unknown, a write left out of it is told that nothing happened', async () => {
  const lost = new StoreUnavailable(new Error('lost'), true)
  const database = {
    until: (one: Cause) => one,
    async transaction(steps: (transaction: undefined) => unknown) {
      await sleep(60)
      await steps(undefined)
      throw lost
    },
  }
  const writes = new GroupedWrites<{ cause: Cause }, string>(database as unknown as Database, async (_, all) =>
    all.map(() => 'written'),
  )
  const within = (ms: number) => writes.submit(`${ms}`, { cause: { ...cause, dueAt: performance.now() + ms } })
  const [inIt, late] = await Promise.allSettled([within(60_000), within(30)])
  expect(inIt).toEqual({ status: 'rejected', reason: lost })
  expect(late).toMatchObject({ status: 'rejected', reason: { outcomeUnknown: false } })
})

test('a write whose deadline passes before a connection is free is not made; others of its group are', async () => {
  const written: unknown[] = []
  const database = {
    until: (one: Cause) => one,
    async transaction(steps: (transaction: undefined) => unknown) {
      await sleep(60)
      return steps(undefined)
    },
  }
  type Args = { readonly cause: Cause; readonly name: string }
  const writes = new GroupedWrites<Args, string>(database as unknown as Database, async (_, all) => {
    written.push(all.map(({ name }) => name))
    return all.map(({ name }) => `${name} written`)
  })
  const within = (name: string, ms: number) =>
    writes.submit(name, { name, cause: { ...cause, dueAt: performance.now() + ms } })
  const [early, late, last] = await Promise.allSettled([within('a', 60_000), within('b', 30), within('c', 60_000)])
  expect([early, last].map((one) => one?.status === 'fulfilled' && one.value)).toEqual(['a written', 'c written'])
  expect(late).toMatchObject({ status: 'rejected', reason: expect.any(StoreUnavailable) })
  await expect(within('d', 30)).rejects.toBeInstanceOf(StoreUnavailable)
  expect(written).toEqual([['a', 'c']])
})

test('a write whose group failed and whose deadline has passed is refused, and not run alone', async () => {
  let runs = 0
  const dueAt = performance.now() + 300
  const database = { until: () => ({ dueAt }), transaction: (steps: () => unknown) => steps() }
  const writes = new GroupedWrites<{ cause: Cause }, string>(database as unknown as Database, async () => {
    runs += 1
    while (performance.now() < dueAt) await sleep(20)
    throw new Error('refused')
  })
  await expect(writes.submit('key', { cause: { ...cause, dueAt } })).rejects.toBeInstanceOf(StoreUnavailable)
  expect(runs).toBe(1)
})
