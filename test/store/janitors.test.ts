// Several janitors on one database, while it is written to: as many as there are token services.
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { type Janitor, startJanitor } from '../../services/token/janitor.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { Removed, TokenStore } from '../../services/token/store/token-store.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'
import { patient } from '../postgres/patient.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { temporaryDirectory } from './temporary-directory.js'
import { byUser, DAY, findGrant, grant, isGood, issue, mint, NOW, seed, startSession } from './token-store-verbs.js'

const JANITORS = 4
/** More than a batch of the janitor, 500, so that each needs several. */
const ENDED = 1200
const AT_ONCE = 100
/** When they tidy up; what was made at NOW ended long before. */
const LATER = NOW + 400 * DAY

const stores = {
  SQLite: async () => {
    const file = join(temporaryDirectory(), 'token.db')
    return async () => openSqliteTokenStore({ file })
  },
  PostgreSQL: async () => {
    const url = await createDatabase()
    return () => openPostgresTokenStore({ url, ...patient })
  },
}

function janitorOf(store: TokenStore, errors: unknown[]): Janitor {
  const janitor = startJanitor({
    store,
    uses: createUseRecorder(store),
    now: () => LATER,
    everyMs: 3_600_000,
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

test.each(Object.entries(stores))('janitors on one %s share the work, and nobody else fails', async (_, place) => {
  const open = await place()
  const store = await open()
  onTestFinished(() => store.close())
  await seed(store)
  await fillWithEnded(store)
  const live = await grant(store, { username: 'bob' }, {}, LATER)
  const errors: unknown[] = []
  const janitors: Janitor[] = []
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
  // A grant goes after its last token; when two janitors each took one of them, it is left for the next round.
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
    expect(await findGrant(store, grantId)).toBeDefined() // it ended just now, so it is not theirs yet
  }
})
