import pg from 'pg'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Transaction } from '../../services/storage/postgres/transaction.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { openBare } from '../postgres/bare-database.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { patient } from '../postgres/patient.js'
import { authorize, cause, isGood, issue, redeem, refresh, type Seed, START, seed } from '../postgres/seed.js'
import { createDatabase, migratedDatabase } from '../postgres/shared-cluster.js'
import { hashOf, newCode, secretRow, userRow } from './token-store-verbs.js'

const DAY = 86_400_000
const session = { passwordHash: 'none', expiresAtMs: START + 60_000, previousSessionHash: undefined, browser: '' }

/** Two services on one database. */
async function openTwo(): Promise<readonly [TokenStore, TokenStore]> {
  const url = await migratedDatabase()
  const open = async () => closing(await openPostgresTokenStore({ url, ...patient }))
  return Promise.all([open(), open()])
}

/** Returns when `count` statements wait for locks. */
async function waiting(url: string, count: number): Promise<void> {
  const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
  await expect.poll(async () => (await query(url, waits)).length, { timeout: 30_000 }).toBeGreaterThanOrEqual(count)
}

/** Deadlocks the server has resolved. Ask after closing the stores: a connection reports its statistics when it ends. */
async function deadlocks(url: string): Promise<unknown> {
  const [counted] = await query(url, 'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()')
  return counted?.deadlocks
}

const times = <Result>(count: number, run: (index: number) => Promise<Result>) =>
  Promise.all(Array.from({ length: count }, (_, index) => run(index)))

test('of a hundred exchanges of one code over two services, exactly one succeeds', async () => {
  const [one, two] = await openTwo()
  const seeded = await seed(one)
  for (let round = 0; round < 5; round++) {
    const codeHash = await issue(one, seeded)
    const attempts = await times(100, (index) => redeem(index % 2 ? one : two, seeded, codeHash))
    const kinds = attempts.map(({ result }) => result.kind)
    expect(kinds.filter((kind) => kind === 'redeemed')).toHaveLength(1)
    expect(kinds.filter((kind) => kind === 'refused')).toHaveLength(99)
    const good = await Promise.all(attempts.map(({ accessTokenHash }) => isGood(one, accessTokenHash)))
    expect(good.filter(Boolean)).toHaveLength(1)
  }
})

test('racing first exchanges of one user get the same openid', async () => {
  const [one, two] = await openTwo()
  const seeded = await seed(one)
  const codes = await times(10, () => issue(one, seeded))
  const attempts = await times(10, (index) =>
    redeem(index % 2 ? one : two, seeded, codes[index] ?? (codes[0] as Uint8Array)),
  )
  const openids = attempts.map(({ result }) => (result.kind === 'redeemed' ? result.openid : result.kind))
  expect(new Set(openids).size).toBe(1)
})

test('a hundred concurrent refreshes all succeed, and ten tokens remain good', async () => {
  const [one, two] = await openTwo()
  const seeded = await seed(one)
  const { refreshTokenHash } = await authorize(one, seeded)
  const minted = await times(100, (index) => refresh(index % 2 ? one : two, seeded, refreshTokenHash))
  expect(new Set(minted.map(({ result }) => result))).toEqual(new Set(['minted']))
  const good = await Promise.all(minted.map(({ accessTokenHash }) => isGood(one, accessTokenHash)))
  expect(good.filter(Boolean)).toHaveLength(10)
})

test('refreshes of a grant that another process keeps locked wait over a few connections, not over one each', async () => {
  const url = await migratedDatabase()
  const store = closing(await openPostgresTokenStore({ url, ...patient }))
  const seeded = await seed(store)
  const { grantId, refreshTokenHash } = await authorize(store, seeded)
  const other = new pg.Client(url)
  await other.connect()
  onTestFinished(() => other.end())
  await other.query('BEGIN')
  await other.query('SELECT 1 FROM grants WHERE grant_id = $1 FOR UPDATE', [grantId])
  const refreshed = times(30, () => refresh(store, seeded, refreshTokenHash))
  await waiting(url, 1)
  const waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
  let most = 0
  for (let look = 0; look < 30; look++) most = Math.max(most, (await query(url, waits)).length)
  await other.query('COMMIT')
  expect(new Set((await refreshed).map(({ result }) => result))).toEqual(new Set(['minted']))
  expect(most, 'connections that waited').toBeLessThanOrEqual(2)
})

test('without an overlap, racing refreshes leave one good token', async () => {
  const [one, two] = await openTwo()
  const seeded = await seed(one)
  const { refreshTokenHash } = await authorize(one, seeded)
  const minted = await times(20, (index) => refresh(index % 2 ? one : two, seeded, refreshTokenHash, { overlapMs: 0 }))
  const good = await Promise.all(minted.map(({ accessTokenHash }) => isGood(one, accessTokenHash)))
  expect(good.filter(Boolean)).toHaveLength(1)
})

test('once a revocation has returned, no token minted concurrently is good', async () => {
  const [one, two] = await openTwo()
  const seeded = await seed(one)
  for (let round = 0; round < 20; round++) {
    const { grantId, refreshTokenHash } = await authorize(one, seeded)
    const minting = times(5, () => refresh(one, seeded, refreshTokenHash))
    expect(await two.revokeGrant(grantId, START, cause)).toBe('revoked')
    const minted = await minting
    const good = await Promise.all(minted.map(({ accessTokenHash }) => isGood(two, accessTokenHash)))
    expect(good).not.toContain(true)
  }
})

test('an app that is deleted while codes of it are issued and exchanged has no live grant afterwards', async () => {
  const [one, two] = await openTwo()
  for (let round = 0; round < 10; round++) {
    const seeded = await seed(one)
    const { appid } = seeded
    const exchanges = times(5, async () => redeem(one, seeded, await issue(one, seeded))).catch(() => undefined)
    const deletion = await two.deleteApp(appid, START, cause)
    await exchanges
    const { rows } = await two.listGrants({ appid, liveAtMs: START }, { limit: 10, after: undefined })
    expect(rows.length > 0).toBe(deletion !== 'deleted')
  }
})

test('once a secret is revoked, no exchange with it adds a grant any more', async () => {
  const [one, two] = await openTwo()
  for (let round = 0; round < 10; round++) {
    const seeded = await seed(one)
    const codes = await times(5, () => issue(one, seeded))
    const exchanges = Promise.all(codes.map((codeHash) => redeem(one, seeded, codeHash)))
    expect(await two.revokeAppSecret(seeded.appid, seeded.secretId, START, cause)).toBe('revoked')
    const then = await two.listGrants({ appid: seeded.appid }, { limit: 100, after: undefined })
    const redeemed = (await exchanges).filter(({ result }) => result.kind === 'redeemed')
    expect(redeemed.map(({ grantId }) => grantId).sort()).toEqual(then.rows.map(({ grantId }) => grantId).sort())
  }
})

const disabling: [string, (store: TokenStore, seeded: Seed, isDisabled: boolean) => Promise<unknown>][] = [
  ['an app', (store, { appid }, isDisabled) => store.setAppDisabled(appid, isDisabled, START, cause)],
  ['a user', (store, { userId }, isDisabled) => store.setUserDisabled(userId, isDisabled, START, cause)],
]

test.each(disabling)('once %s was disabled, no code can be redeemed, and no token is good', async (_, set) => {
  const [one, two] = await openTwo()
  for (let round = 0; round < 10; round++) {
    const seeded = await seed(one)
    const codes = await times(5, () => issue(one, seeded))
    const exchanges = Promise.all(codes.map((codeHash) => redeem(one, seeded, codeHash)))
    const issues = times(5, () => issue(one, seeded).catch(() => undefined))
    await set(two, seeded, true)
    const good = await Promise.all((await exchanges).map(({ accessTokenHash }) => isGood(two, accessTokenHash)))
    expect(good).not.toContain(true)
    const issued = await issues
    await set(two, seeded, false)
    for (const codeHash of issued) {
      if (codeHash) expect((await redeem(two, seeded, codeHash)).result.kind).toBe('refused')
    }
  }
})

/** Tables in which a row is locked, with the time before which rows have ended, several in each. */
const held: [string, number][] = [
  ['codes', START + DAY],
  ['access_tokens', START + DAY],
  ['access_tokens', START + 1], // of grants that were revoked, long before they expire
  ['grants', START + DAY],
  ['sessions', START + DAY],
  ['audit_events', START + DAY],
  ['request_counts', START + DAY],
]

test.each(held)(
  'a row of %s that another transaction has locked is left to the next round, and nobody waits for it',
  async (table, endedBeforeMs) => {
    const url = await migratedDatabase()
    const store = closing(await openPostgresTokenStore({ url, ...patient, lockTimeoutMs: 500 }))
    const seeded = await seed(store)
    const counts = ['one', 'another', 'a third'].map((key) => ({ key, windowEndMs: START, requests: 1 }))
    await store.countRequests(counts)
    for (const { key } of counts) {
      const { grantId } = await authorize(store, seeded)
      await store.revokeGrant(grantId, START, cause)
      await store.startSession(
        { ...session, sessionHash: hashOf(key), userId: seeded.userId, maxLive: 9 },
        START,
        cause,
      )
    }
    const tidyUp = async () => {
      await store.removeEnded({ endedBeforeMs, auditBeforeMs: endedBeforeMs, limit: 100 })
      await store.removeRequestCounts({ endedBeforeMs, limit: 100 })
    }
    const left = () => query(url, `SELECT count(*)::int AS count FROM ${table}`)
    const locker = await openBare(url)
    await locker.transaction(async (transaction) => {
      await transaction.ask({ name: 'lock', text: `SELECT 1 FROM ${table} LIMIT 1 FOR UPDATE` }, [])
      await tidyUp()
      expect(await left()).toEqual([{ count: 1 }])
    })
    await tidyUp()
    expect(await left()).toEqual([{ count: 0 }])
  },
)

test('requests counted at the same time, in whatever order, do not deadlock', async () => {
  const url = await migratedDatabase()
  const stores = [1, 2].map(() => openPostgresTokenStore({ url, ...patient }))
  const [one, two] = (await Promise.all(stores)) as [TokenStore, TokenStore]
  const counts = ['a', 'b', 'c'].map((key) => ({ key, windowEndMs: START, requests: 1 }))
  await one.countRequests(counts)
  const locker = await openBare(url)
  const lock = { name: 'lock', text: `SELECT 1 FROM request_counts WHERE key LIKE '% b' FOR UPDATE` }
  const counting = await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [])
    const first = one.countRequests(counts) // has the first, and waits for the second
    await waiting(url, 1)
    const second = two.countRequests(counts.toReversed())
    await waiting(url, 2)
    return [first, second]
  })
  expect(await Promise.all(counting)).toEqual([
    [2, 2, 2],
    [3, 3, 3],
  ])
  await Promise.all([one.close(), two.close()])
  expect(await deadlocks(url)).toBe(0)
})

test('transactions that deadlock are retried, and all succeed', async () => {
  const url = await createDatabase()
  await query(url, 'CREATE TABLE counters (id text PRIMARY KEY, count integer NOT NULL)')
  await query(url, `INSERT INTO counters VALUES ('a', 0), ('b', 0)`)
  const database = await openBare(url)
  const lock = { name: 'lock', text: 'SELECT count FROM counters WHERE id = $1 FOR UPDATE' }
  const add = { name: 'add', text: 'UPDATE counters SET count = count + 1 WHERE id = $1' }
  await times(8, (index) => {
    const ids = index % 2 ? ['a', 'b'] : ['b', 'a']
    return database.transaction(async (transaction) => {
      for (const id of ids) await transaction.ask(lock, [id])
      for (const id of ids) transaction.write(add, [id])
    })
  })
  expect(await query(url, 'SELECT sum(count)::integer AS sum FROM counters')).toEqual([{ sum: 16 }])
})

test('a transaction fails with the error that aborted it, even when a later statement reports first', async () => {
  const database = await openBare(await createDatabase())
  const divide = { name: 'divide', text: 'SELECT 1 / $1::integer AS quotient' }
  const failing = database.transaction(async (transaction) => {
    const first = transaction.ask(divide, [0])
    first.catch(() => undefined)
    await transaction.ask(divide, [1]) // 25P02: the transaction is aborted
    await first
  })
  await expect(failing).rejects.toMatchObject({ code: '22012' })
  expect(await database.read(divide, [1])).toEqual([{ quotient: 1 }])
})

test('a transaction with a failed statement whose error was ignored is not reported as committed', async () => {
  const url = await createDatabase()
  await query(url, 'CREATE TABLE written (id integer)')
  const database = await openBare(url)
  const writing = database.transaction(async (transaction) => {
    await transaction.write({ name: 'write', text: 'INSERT INTO written VALUES (1)' }, [])
    await transaction.ask({ name: 'divide', text: 'SELECT 1 / 0' }, []).catch(() => undefined)
  })
  await expect(writing).rejects.toMatchObject({ code: '22012' })
  expect(await query(url, 'SELECT id FROM written')).toEqual([])
})

test('when BEGIN fails, waiting writes are not sent, and what was read with it is not trusted', async () => {
  const sent: unknown[] = []
  const client = {
    query: async (query: string | { readonly text: string }) => {
      sent.push(typeof query === 'string' ? query : query.text)
      if (typeof query === 'string') throw new Error('canceled')
      return { rows: [{ id: 1 }] }
    },
  }
  const transaction = new Transaction(client as unknown as pg.PoolClient, {
    answerTimeoutMs: 1_000,
    settings: '',
    lockWaitMs: undefined,
  })
  const begin = 'BEGIN ISOLATION LEVEL READ COMMITTED'
  await expect(transaction.write({ name: 'write', text: 'a write' }, [])).rejects.toThrow('canceled')
  expect(sent).toEqual([begin])
  await expect(transaction.ask({ name: 'read', text: 'a read' }, [])).rejects.toThrow('canceled')
  expect(sent).toEqual([begin, 'a read'])
})

const ending: [string, (store: TokenStore, seeded: Seed, grantId: string) => Promise<string>][] = [
  ['a revocation', (store, _, grantId) => store.revokeGrant(grantId, START, cause)],
  ['a disconnection', (store, { userId }, grantId) => store.disconnectApp(grantId, userId, START, cause)],
]

test.each(ending)('%s, an issue and exchanges of one user and app do not deadlock', async (_, end) => {
  const url = await migratedDatabase()
  const store = await openPostgresTokenStore({ url, ...patient })
  const seeded = await seed(store)
  const { grantId } = await authorize(store, seeded)
  const earlier = await issue(store, seeded)
  const locker = await openBare(url)
  const lock = { name: 'lock', text: 'SELECT 1 FROM grants WHERE grant_id = $1 FOR UPDATE' }
  const { ended, ...exchanged } = await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [grantId])
    const ended = end(store, seeded, grantId)
    await waiting(url, 1) // for the grant
    const tooLate = redeem(store, seeded, earlier, 1)
    await waiting(url, 2)
    const anew = issue(store, seeded).then((codeHash) => redeem(store, seeded, codeHash, 1))
    await waiting(url, 3)
    return { ended, tooLate, anew }
  })
  expect(await ended).toBe('revoked')
  expect((await exchanged.tooLate).result.kind).toBe('refused')
  expect((await exchanged.anew).result.kind).toBe('redeemed')
  await store.close()
  expect(await deadlocks(url)).toBe(0)
})

test('a code that is confirmed while its session is being ended is not issued afterwards', async () => {
  const url = await createDatabase()
  const store = closing(await openPostgresTokenStore({ url, ...patient }))
  const seeded = await seed(store)
  const locker = await openBare(url)
  const issued = await locker.transaction(async (transaction) => {
    await transaction.write({ name: 'sign_out', text: 'DELETE FROM sessions RETURNING 1' }, [])
    const issued = issue(store, seeded).catch((error) => error)
    await waiting(url, 1)
    return { issued }
  })
  expect(await issued.issued).toEqual(new Error('session_ended'))
})

const endingCodes: [string, (store: TokenStore, appid: string) => Promise<unknown>][] = [
  ['the removal of a redirect_uri', (store, appid) => store.updateApp(appid, { redirectUris: [] }, START + 1, cause)],
  ['disabling an app', (store, appid) => store.setAppDisabled(appid, true, START + 1, cause)],
]

test.each(
  endingCodes.flatMap(([name, endCodes]) => ending.map(([other, end]) => [name, other, endCodes, end] as const)),
)('%s and %s, which end the same codes, do not deadlock', async (_name, _other, endCodes, end) => {
  const url = await migratedDatabase()
  const store = await openPostgresTokenStore({ url, ...patient })
  const seeded = await seed(store)
  const { grantId } = await authorize(store, seeded)
  const codes = [await issue(store, seeded), await issue(store, seeded), await issue(store, seeded)]
  const inOrder = codes.map((hash) => Buffer.from(hash).toString('hex')).sort()
  // So that they are found in the opposite order, along the table and by their expiry.
  for (const [at, hash] of inOrder.toReversed().entries())
    await query(url, `UPDATE codes SET expires_at_ms = expires_at_ms + ${at} WHERE code_hash = '\\x${hash}'`)
  const locker = await openBare(url)
  const lock = { name: 'lock', text: `SELECT 1 FROM codes WHERE encode(code_hash, 'hex') = $1 FOR UPDATE` }
  const works = await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [inOrder[1] ?? ''])
    const first = endCodes(store, seeded.appid)
    await waiting(url, 1)
    const second = end(store, seeded, grantId)
    await waiting(url, 2)
    return { first, second }
  })
  await works.first
  expect(await works.second).toBe('revoked')
  await store.close()
  expect(await deadlocks(url)).toBe(0)
})

interface Asked extends Seed {
  readonly grantId: string
  readonly sessionHash: Uint8Array
}
/** A name, the table whose locked row three callers wait for, the `n`th call, and what must exist once afterwards. */
type Once = readonly [
  string,
  'apps' | 'app_secrets' | 'users' | 'sessions' | 'grants',
  (store: TokenStore, asked: Asked, n: number) => Promise<unknown>,
  string,
]
const about = { redirectUri: 'https://app.example/callback', sessionHash: hashOf('session'), maxLive: 1 }
const eventsOf = (kind: string) => `audit_events WHERE kind = '${kind}'`
const changes = [
  { name: 'new' },
  { redirectUris: ['https://new.example/'] },
  { requiresSecretOnRefresh: true, requiresPkce: true, readsAnswers: true },
]
const profiles = [{ nickname: 'new' }, { avatar: 'https://new.example/' }, { nickname: 'new' }]
const once: Once[] = [
  [
    'a grant is revoked once',
    'grants',
    (store, { grantId }, n) => store.revokeGrant(grantId, START + n, cause),
    eventsOf('grant.revoked'),
  ],
  [
    'an app is disconnected once',
    'grants',
    (store, { grantId, userId }, n) => store.disconnectApp(grantId, userId, START + n, cause),
    eventsOf('grant.revoked'),
  ],
  [
    'a secret is revoked once',
    'app_secrets',
    (store, { appid, secretId }, n) => store.revokeAppSecret(appid, secretId, START + n, cause),
    eventsOf('secret.revoked'),
  ],
  [
    'an app is disabled once',
    'apps',
    (store, { appid }, n) => store.setAppDisabled(appid, true, START + n, cause),
    eventsOf('app.disabled'),
  ],
  [
    'an app is deleted once',
    'apps',
    async (store, { appid, grantId }, n) => {
      await store.revokeGrant(grantId, START + n, cause)
      await store.deleteApp(appid, START + n, cause)
    },
    eventsOf('app.deleted'),
  ],
  [
    'a user is disabled once',
    'users',
    (store, { userId }, n) => store.setUserDisabled(userId, true, START + n, cause),
    eventsOf('user.disabled'),
  ],
  [
    'a user is deleted once',
    'users',
    async (store, { userId }, n) => {
      await store.setUserDisabled(userId, true, START + n, cause)
      await store.deleteUser(userId, START + n, cause)
    },
    eventsOf('user.deleted'),
  ],
  [
    'a secret of the same name is added only once',
    'apps',
    (store, { appid }, n) => store.addAppSecret(secretRow(appid, 'next', { secretId: `next ${n}` }), START, cause),
    `app_secrets WHERE name = 'next'`,
  ],
  [
    'no change of an app is lost',
    'apps',
    (store, { appid }, n) => store.updateApp(appid, changes[n] ?? {}, START, cause),
    `apps WHERE name = 'new' AND redirect_uris = '{https://new.example/}' AND requires_secret_on_refresh`,
  ],
  [
    'no change of a profile is lost',
    'users',
    (store, { userId }, n) => store.updateUser(userId, profiles[n] ?? {}, START, cause),
    `users WHERE nickname = 'new' AND avatar = 'https://new.example/'`,
  ],
  [
    'one session is left if the cap is one',
    'users',
    (store, { userId }, n) =>
      store.startSession({ ...session, sessionHash: hashOf(`${n}`), userId, maxLive: 1 }, START, cause),
    'sessions',
  ],
  [
    'one unused code is left if the cap is one',
    'users',
    (store, { appid, userId }, n) =>
      store.issueCode(newCode(`${n}`, { ...about, appid, userId, expiresAtMs: START + 9 }), START, cause),
    `codes WHERE used_at_ms IS NULL AND expires_at_ms > ${START}`,
  ],
  [
    'the latest use of a session is kept',
    'sessions',
    (store, { sessionHash }, n) => store.touchSession(sessionHash, START + 9 - n),
    `sessions WHERE last_seen_at_ms = ${START + 9}`,
  ],
]

test.each(once)('when three callers ask at the same moment, %s', async (_, table, ask, counted) => {
  const url = await migratedDatabase()
  const stores = [1, 2].map(async () => closing(await openPostgresTokenStore({ url, ...patient })))
  const [one, two] = (await Promise.all(stores)) as [TokenStore, TokenStore]
  const seeded = await seed(one)
  const { grantId } = await authorize(one, seeded)
  const sessionHash = hashOf('session')
  await one.startSession({ ...session, sessionHash, userId: seeded.userId, maxLive: 1 }, START, cause)
  const locker = await openBare(url)
  const lock = { name: 'lock', text: `SELECT 1 FROM ${table} FOR UPDATE` }
  const asked = await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [])
    const asked: Promise<unknown>[] = []
    for (const [n, store] of [one, two, one].entries()) {
      asked.push(ask(store, { ...seeded, grantId, sessionHash }, n))
      await waiting(url, n + 1)
    }
    return asked
  })
  await Promise.all(asked)
  expect(await query(url, `SELECT count(*)::int AS count FROM ${counted}`)).toEqual([{ count: 1 }])
})

/** Locks rows of `table`, in an order unrelated to that of their ids. */
type Locking = readonly [
  string,
  'grants' | 'app_secrets',
  (store: TokenStore, ids: readonly string[], seeded: Seed) => Promise<unknown>,
]
const locking: Locking[] = [
  [
    'a recording of uses of grants',
    'grants',
    (store, ids) =>
      store.recordUses({ answers: new Map(), grants: new Map(ids.map((id) => [id, START + 2])), secrets: new Map() }),
  ],
  [
    'a recording of uses of secrets',
    'app_secrets',
    (store, ids) =>
      store.recordUses({ answers: new Map(), grants: new Map(), secrets: new Map(ids.map((id) => [id, START + 2])) }),
  ],
  [
    'a disconnection',
    'grants',
    (store, [grantId = ''], { userId }) => store.disconnectApp(grantId, userId, START, cause),
  ],
  [
    'a deletion of a user',
    'grants',
    async (store, _, { userId }) => {
      await store.setUserDisabled(userId, true, START, cause)
      await store.deleteUser(userId, START, cause)
    },
  ],
]

test.each(locking)('%s and a concurrent recording of uses do not deadlock', async (_, table, run) => {
  const url = await migratedDatabase()
  const stores = [1, 2].map(() => openPostgresTokenStore({ url, ...patient }))
  const [one, two] = (await Promise.all(stores)) as [TokenStore, TokenStore]
  const seeds = await times(3, () => seed(one))
  const seeded = seeds[0] as Seed
  const grants = await times(3, () => authorize(one, seeded))
  const [column, made] = {
    grants: ['grant_id', grants.map(({ grantId }) => grantId)],
    app_secrets: ['secret_id', seeds.map(({ secretId }) => secretId)],
  }[table] as [string, string[]]
  const ids = made.sort()
  for (const [index, id] of ids.entries()) {
    await query(url, `UPDATE ${table} SET created_at_ms = ${START - index} WHERE ${column} = '${id}'`)
  }
  const uses = new Map(ids.map((id) => [id, START + 1]))
  const none = { grants: new Map(), answers: new Map(), secrets: new Map() }
  const recorded = { ...none, [table === 'grants' ? 'grants' : 'secrets']: uses }
  const locker = await openBare(url)
  const lock = { name: 'lock', text: `SELECT 1 FROM ${table} WHERE ${column} = $1 FOR UPDATE` }
  const works = await locker.transaction(async (transaction) => {
    await transaction.ask(lock, [ids[1] as string])
    const recording = one.recordUses(recorded) // has the first, and waits for the second
    await waiting(url, 1)
    const other = run(two, [...ids].reverse(), seeded)
    await waiting(url, 2)
    return [recording, other]
  })
  await Promise.all(works)
  await Promise.all([one.close(), two.close()])
  expect(await deadlocks(url)).toBe(0)
})

test.each([
  ['its sid', { subject: '', sid: 'sid 1' }],
  ['its sub', { subject: 's', sid: '' }],
])('a sign-in that commits while its provider ends the sessions of %s begins none that stays', async (_, which) => {
  const url = await migratedDatabase()
  const store = closing(await openPostgresTokenStore({ url, ...patient }))
  await store.createUser(userRow('ann'), cause)
  const at = { provider: 'corp', subject: 's' }
  await store.linkIdentity(at, 'user_ann', START, cause)
  const asked = {
    challengeHash: hashOf('challenge'),
    browserHash: hashOf('browser'),
    source: '',
    linkTo: '',
    appid: '',
  }
  const where = { redirectUri: '', returnUri: 'https://here', restartUri: 'https://here', language: 'en' }
  const wishes = { asksToReauthenticate: false, asksToSelectAccount: false, expiresAtMs: START + DAY }
  await store.beginSignIn({ ...asked, ...where, ...wishes, provider: at.provider }, START, cause)
  const person = { ...at, sid: 'sid 1', nickname: '', avatar: '', authenticatedAtMs: 0, mayCreate: false }
  const verifier = { verifierHash: hashOf('verifier'), verifierExpiresAtMs: START + DAY }
  await store.acceptSignIn(asked.challengeHash, { ...person, sessionSeconds: 60 }, verifier, START, cause)
  const other = new pg.Client(url)
  await other.connect()
  onTestFinished(() => other.end())
  await other.query('BEGIN')
  await other.query("SELECT 1 FROM users WHERE user_id = 'user_ann' FOR UPDATE")
  const returned = {
    verifierHash: verifier.verifierHash,
    browserHash: asked.browserHash,
    newUserId: 'new',
    browser: '',
  }
  const sessionHash = hashOf('session')
  const completing = store.completeSignIn(
    { ...returned, sessionHash, previousSessionHash: undefined, maxLive: 9 },
    START,
    cause,
  )
  await waiting(url, 1)
  const ending = store.endProviderSessions({ provider: at.provider, ...which }, START, cause)
  await Promise.race([waiting(url, 2), ending])
  await other.query('COMMIT')
  expect([(await completing).verdict, await ending]).toEqual(['signed_in', 1])
  expect(await store.findSession(sessionHash)).toBeUndefined()
})

test('an identity that another has linked after it was looked for stays theirs', async () => {
  const [one, two] = await openTwo()
  for (const userId of ['ann', 'bob']) expect(await one.createUser(userRow(userId, { userId }), cause)).toBe('created')
  const identity = { provider: 'corp', subject: 's' }
  const { ask } = Transaction.prototype
  let isFirst = true
  const looking = vi.spyOn(Transaction.prototype, 'ask').mockImplementation(async function (
    this: Transaction,
    ...asked
  ) {
    const rows = await ask.apply(this, asked)
    if (isFirst && asked[0].name === 'find_owner_of_identity') {
      isFirst = false
      expect(await two.linkIdentity(identity, 'bob', START, cause)).toBe('linked')
    }
    return rows as never
  })
  onTestFinished(() => looking.mockRestore())
  expect(await one.linkIdentity(identity, 'ann', START, cause)).toBe('taken')
  expect(await one.listIdentities('bob')).toMatchObject([identity])
})
