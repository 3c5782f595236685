// Several janitors on one database, while it is written to: as many as there are token services.
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Rounds } from '../../services/storage/rounds.js'
import { startJanitor as startSurveyJanitor } from '../../services/survey/janitor.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { startJanitor } from '../../services/token/janitor.js'
import type { TimeFloor } from '../../services/token/password/time-floor.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { Removed, TokenStore } from '../../services/token/store/token-store.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'
import { patient } from '../postgres/patient.js'
import { migratedDatabase } from '../postgres/shared-cluster.js'
import { temporaryDirectory } from './temporary-directory.js'
import {
  ACCESS_TTL,
  byUser,
  DAY,
  findGrant,
  grant,
  isGood,
  issue,
  MINUTE,
  mint,
  NOW,
  REFRESH_TTL,
  seed,
  startSession,
} from './token-store-verbs.js'

const JANITORS = 4
/** More than a batch of the janitor, 500, so that each needs several. */
const ENDED = 1200
const AT_ONCE = 100
/** When they run; everything made at NOW ended long before. */
const LATER = NOW + 400 * DAY

const stores = {
  SQLite: async () => {
    const file = join(temporaryDirectory(), 'token.db')
    return async () => openSqliteTokenStore({ file })
  },
  PostgreSQL: async () => {
    const url = await migratedDatabase()
    return () => openPostgresTokenStore({ url, ...patient })
  },
}

const NO_FLOOR: TimeFloor = { kept: (_, attempt) => attempt(), measure: async () => undefined }

function janitorOf(store: TokenStore, errors: unknown[]): Rounds<Removed> {
  const janitor = startJanitor({
    store,
    uses: createUseRecorder(store),
    timeFloor: NO_FLOOR,
    now: () => LATER,
    everyMs: 3_600_000,
    accessTokenMs: ACCESS_TTL,
    refreshTokenMs: REFRESH_TTL,
    keepEndedMs: DAY,
    keepAuditMs: 1_000 * DAY,
    onRemoved: () => undefined,
    onError: (error) => errors.push(error),
  })
  onTestFinished(() => janitor.stop())
  return janitor
}

/** What ended: codes, and a few grants, with sessions. */
async function fillWithEnded(store: TokenStore): Promise<void> {
  for (let n = 0; n < ENDED; n += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, (_, k) => issue(store, `ended ${n + k}`, { maxLive: ENDED })))
  }
  for (let n = 0; n < 20; n += 1) {
    const { refreshTokenHash } = await grant(store, { appid: 'app2' })
    await mint(store, refreshTokenHash, { appid: 'app2' })
    await startSession(store, `ended session ${n}`)
  }
}

function sumOf(rounds: readonly Removed[], table: keyof Removed): number {
  return rounds.reduce((sum, removed) => sum + removed[table], 0)
}

test.each(Object.entries(stores))('janitors on one %s share the work, and other writes succeed', async (_, place) => {
  const open = await place()
  const store = await open()
  onTestFinished(() => store.close())
  await seed(store)
  await fillWithEnded(store)
  const live = await grant(store, { username: 'bob' }, {}, LATER)
  const errors: unknown[] = []
  const janitors: Rounds<Removed>[] = []
  for (let n = 0; n < JANITORS; n += 1) {
    const own = await open()
    onTestFinished(() => own.close())
    janitors.push(janitorOf(own, errors))
  }

  let isOver = false
  const writing = (async () => {
    const made = []
    while (!isOver) {
      const { grantId, accessTokenHash, refreshTokenHash } = await grant(store, { username: 'bob' }, {}, LATER)
      const { result } = await mint(store, refreshTokenHash, {}, LATER)
      made.push({ grantId, accessTokenHash, result })
      await store.revokeGrant(grantId, LATER, byUser)
    }
    return made
  })()
  const rounds = await Promise.all(janitors.map((janitor) => janitor.run()))
  isOver = true
  const made = await writing
  // A grant is removed after its last token; when two janitors each removed one of them, it is left for the next round.
  rounds.push(...(await Promise.all(janitors.map((janitor) => janitor.run()))))

  expect(errors).toEqual([])
  expect(sumOf(rounds, 'codes')).toBe(ENDED + 20)
  expect(sumOf(rounds, 'grants')).toBe(20)
  expect(sumOf(rounds, 'accessTokens')).toBe(40)
  expect(sumOf(rounds, 'sessions')).toBe(20)
  expect(made.every(({ result }) => result === 'minted')).toBe(true)
  expect(await isGood(store, live.accessTokenHash, LATER)).toBe(true)
  for (const { grantId, accessTokenHash } of made) {
    expect(await isGood(store, accessTokenHash, LATER)).toBe(false)
    expect(await findGrant(store, grantId)).toBeDefined() // it ended too recently to be removed
  }
})

/** One round over a store that removes the given numbers of rows, and of counts of requests, one per call. */
async function roundOver(rows: readonly Partial<Removed>[], requestCounts: readonly number[] = []) {
  const [left, leftCounts, bounds] = [[...rows], [...requestCounts], [] as unknown[]]
  const nothing: Removed = { codes: 0, accessTokens: 0, grants: 0, sessions: 0, auditEvents: 0 }
  const store = {
    async removeEnded(bound: unknown) {
      bounds.push(bound)
      return { ...nothing, ...left.shift() }
    },
    removeSignIns: async () => 0,
    async removeRequestCounts(bound: unknown) {
      bounds.push(bound)
      return leftCounts.shift() ?? 0
    },
    lastCleanUp: async () => LATER,
    shortenAhead: async () => 0,
  } as unknown as TokenStore
  const removed = await janitorOf(store, []).run()
  return { removed, bounds }
}

test('a round continues while batches are full, whatever they hold, and adds up what they removed', async () => {
  const { removed, bounds } = await roundOver([
    { codes: 500 },
    { codes: 250, grants: 250 },
    { sessions: 499 },
    { codes: 1 },
  ])
  expect(removed).toEqual({ codes: 750, accessTokens: 0, grants: 250, sessions: 499, auditEvents: 0 })
  expect(bounds).toHaveLength(4)
})

test('rounds of the survey janitor continue while batches are full, and report what they removed', async () => {
  const [left, bounds, told] = [[500, 500, 3, 1], [] as unknown[], [] as unknown[]]
  const answersLeft = [500, 7, 0, 0, 1]
  const store = {
    async removeEvents(bound: unknown) {
      bounds.push(bound)
      return left.shift() ?? 0
    },
    removeAnswers: async () => answersLeft.shift() ?? 0,
    lastCleanUp: async () => LATER,
  } as unknown as SurveyStore
  let flushed = 0
  const janitor = startSurveyJanitor({
    store,
    reads: { record: async () => undefined, flush: async () => void flushed++ },
    now: () => LATER,
    everyMs: 3_600_000,
    keepAuditMs: 1_000 * DAY,
    onRemoved: (removed) => told.push(removed),
    onError: () => undefined,
  })
  for (let round = 0; round < 3; round += 1) await janitor.run()
  await janitor.stop()
  expect(flushed).toBe(3)
  expect(told).toEqual([
    { surveyEvents: 1003, answers: 507 },
    { surveyEvents: 1, answers: 0 },
    { surveyEvents: 0, answers: 1 },
  ])
  expect(bounds).toEqual(Array.from({ length: 5 }, () => ({ beforeMs: LATER - 1_000 * DAY, limit: 500 })))
})

test('audit events are kept longer than ended rows, and request counts a minute longer than their window', async () => {
  const { bounds } = await roundOver([])
  expect(bounds).toEqual([
    { endedBeforeMs: LATER - DAY, auditBeforeMs: LATER - 1_000 * DAY, limit: 500 },
    { endedBeforeMs: LATER - MINUTE, limit: 10_000 },
  ])
})

test('request counts are removed while batches are full, at most two million in a round', async () => {
  const callsFor = async (counts: readonly number[]) => (await roundOver([], counts)).bounds.length - 1
  expect(await callsFor([10_000, 10_000, 9_999, 1])).toBe(3)
  expect(await callsFor(Array.from({ length: 300 }, () => 10_000))).toBe(200)
})

test('rounds never overlap; others follow a failed one; stopping waits for the current one, which ends with its batch', async () => {
  const nothing: Removed = { codes: 0, accessTokens: 0, grants: 0, sessions: 0, auditEvents: 0 }
  const [happened, told] = [[] as string[], [] as Removed[]]
  let answer: { with(removed: Partial<Removed>): void; fail(): void } | undefined
  const store = {
    removeEnded: () =>
      new Promise<Removed>((resolve, reject) => {
        happened.push('asked')
        answer = { with: (removed) => resolve({ ...nothing, ...removed }), fail: () => reject(new Error('as told')) }
      }),
    removeSignIns: async () => 0,
    removeRequestCounts: async () => 0,
    lastCleanUp: async () => LATER,
    shortenAhead: async () => 0,
  } as unknown as TokenStore
  const janitor = startJanitor({
    timeFloor: NO_FLOOR,
    store,
    uses: { flush: async () => void happened.push('uses written') } as unknown as ReturnType<typeof createUseRecorder>,
    now: () => LATER,
    everyMs: 3_600_000,
    accessTokenMs: ACCESS_TTL,
    refreshTokenMs: REFRESH_TTL,
    keepEndedMs: DAY,
    keepAuditMs: DAY,
    onRemoved: (removed) => told.push(removed),
    onError: () => undefined,
  })
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  const rounds = [janitor.run(), janitor.run(), janitor.run()]
  const outcomes = Promise.allSettled(rounds)
  await turn()
  expect(happened).toEqual(['uses written', 'asked'])
  answer?.fail()
  await turn()
  answer?.with({})
  await turn()
  expect(happened).toHaveLength(6)
  const ended = janitor.stop().then(() => happened.push('ended'))
  await turn()
  expect(happened).not.toContain('ended')
  answer?.with({ codes: 500 })
  await ended
  expect((await outcomes).map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled'])
  expect(happened.slice(4)).toEqual(['uses written', 'asked', 'ended'])
  expect(told).toEqual([{ ...nothing, codes: 500 }])
})
