import { randomBytes, randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { Together } from '../../services/postgres/together.js'
import { openDatabase } from '../../services/postgres/transaction.js'
import { StoreUnavailable } from '../../services/store/store-unavailable.js'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { patient } from '../postgres/patient.js'
import { authorize, cause, isGood, issue, redeem, refresh, START, seed } from '../postgres/seed.js'
import { createDatabase } from '../postgres/shared-cluster.js'

async function open(options: { readonly lockTimeoutMs?: number } = {}) {
  const url = await createDatabase()
  const store = closing(await openPostgresTokenStore({ url, ...patient, ...options }))
  const locker = closing(await openDatabase({ url, ...patient }, { name: `none ${randomUUID()}`, migrations: [] }))
  /** Runs `work` while another transaction has the row. */
  function whileLocked(table: string, column: string, value: string | Uint8Array, work: () => Promise<void>) {
    const lock = { name: `lock ${table}`, text: `SELECT 1 FROM ${table} WHERE ${column} = $1 FOR UPDATE` }
    return locker.transaction(async (transaction) => {
      expect(await transaction.ask(lock, [value])).toHaveLength(1)
      await work()
    })
  }
  return { url, store, whileLocked }
}

test('a refresh whose grant somebody has locked keeps nobody waiting who asked with it', async () => {
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
] as const)('an exchange of which somebody has locked %s keeps nobody waiting', async (_, table, column) => {
  const { store, whileLocked } = await open()
  const one = await seed(store)
  const other = await seed(store)
  await authorize(store, one)
  const [held, free] = await Promise.all([issue(store, one), issue(store, other)])
  let exchanged: ReturnType<typeof redeem> | undefined
  await whileLocked(table, column, table === 'codes' ? held : one.userId, async () => {
    exchanged = redeem(store, one, held)
    expect((await redeem(store, other, free)).result.kind).toBe('redeemed')
  })
  expect((await exchanged)?.result.kind).toBe('redeemed')
})

test('an exchange that waits in vain for the grant it would push out fails alone', async () => {
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

test('of writes that share a transaction, one that the database refuses fails alone', async () => {
  const { store } = await open()
  const seeded = await seed(store)
  const { accessTokenHash, refreshTokenHash } = await authorize(store, seeded)
  const other = await authorize(store, seeded)
  const minting = { refreshTokenHash, appid: seeded.appid, secretId: undefined, overlapMs: 0, maxLive: 10 }
  const taken = { ...minting, accessTokenHash, accessTokenExpiresAtMs: START + 1 }
  const [refused, good] = await Promise.all([
    store.mintAccessToken(taken, START, cause).catch((error: unknown) => String(error)),
    refresh(store, seeded, other.refreshTokenHash),
  ])
  expect(refused).toContain('duplicate key')
  expect(await isGood(store, good.accessTokenHash)).toBe(true)
  expect(await isGood(store, accessTokenHash)).toBe(true)
})

test('exchanges of one user and app that come together have one openid, and the cap holds', async () => {
  const { store } = await open()
  const seeded = await seed(store)
  const codes = await Promise.all(Array.from({ length: 6 }, () => issue(store, seeded)))
  const exchanges = await Promise.all(codes.map((codeHash) => redeem(store, seeded, codeHash, 2)))
  const openids = exchanges.map(({ result }) => (result.kind === 'redeemed' ? result.openid : result.kind))
  expect(new Set(openids).size).toBe(1)
  const good = await Promise.all(exchanges.map(({ accessTokenHash }) => isGood(store, accessTokenHash)))
  expect(good.filter(Boolean)).toHaveLength(2)
})

test('an exchange that is refused leaves no openid behind, whoever it came with', async () => {
  const { store, url } = await open()
  const one = await seed(store)
  const other = await seed(store)
  const [wrong, right] = await Promise.all([issue(store, one), issue(store, other)])
  const redemption = {
    codeHash: wrong,
    appid: one.appid,
    secretId: one.secretId,
    redirectUri: 'https://app.example/other',
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

test('a survey of the same version that was stored at another time is read anew', async () => {
  const url = await createDatabase()
  const store = closing(await openPostgresSurveyStore({ url, ...patient }))
  const draft = { surveyId: 7, hash: '', title: 'a', state: 2, document: Buffer.from('first') }
  await store.putSurveys('ann', [draft], START)
  const first = await store.findSurvey(7)
  expect(await store.findSurvey(7)).toBe(first)
  // What a restored backup does, after which another survey becomes the version that was known.
  await query(url, `UPDATE surveys SET document = 'second', stored_at_ms = stored_at_ms + 1`)
  expect((await store.findSurvey(7))?.document.toString()).toBe('second')
})

test('two groups are under way at a time, of different keys each, and a crowd without end is refused', async () => {
  const groups: string[][] = []
  const ends: (() => void)[] = []
  const together = new Together<{ readonly key: string }>(2, (group) => {
    groups.push(group.map(({ key }) => key))
    return new Promise((resolve) => {
      ends.push(resolve)
    })
  })
  for (const key of ['a', 'a', 'b', 'c', 'd']) together.add({ key })
  await sleep(10)
  expect(groups).toEqual([
    ['a', 'b'],
    ['a', 'c'],
  ])
  for (let added = 0; added < 4_999; added++) together.add({ key: 'e' })
  expect(() => together.add({ key: 'f' })).toThrow(StoreUnavailable)
  ends[0]?.()
  await sleep(10)
  expect(groups[2]).toEqual(['d', 'e'])
})
