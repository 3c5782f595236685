// Lists of audit events on SQLite, which are filtered by app and user without an index of either.
import { randomInt } from 'node:crypto'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { BLOCK, eventRecorder } from '../../services/token/store/sqlite/audit.js'
import { KeptTokens } from '../../services/token/store/sqlite/kept-tokens.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { AuditRow, TokenStore } from '../../services/token/store/token-store.js'
import { closing } from '../postgres/closing.js'
import { temporaryDirectory } from './temporary-directory.js'
import { allPages, byApp, DAY, NOW } from './token-store-verbs.js'

/** Many ids share their last characters, one is shorter than those, and some occur in few blocks. */
const USERS = ['', 'ab', 'user_1_ann', 'user_2_ann', 'rare', ...Array.from({ length: 40 }, (_, n) => `user_${n}`)]
const APPS = ['', 'app_1', 'app_2', '用户应用', 'the rare app']
const pick = (list: readonly string[], n: number) =>
  list[n % 1_999 === 0 ? randomInt(list.length) : (n * 7) % list.length] ?? ''
const isRare = (id: string) => id.includes('rare')

/** Writes events in transactions of 100, as a service does; rare ids occur in some blocks only. */
function write(db: Connection, count: number): void {
  const record = eventRecorder(db, new KeptTokens(db))
  const orNot = (id: string, n: number) => (isRare(id) && Math.floor(n / BLOCK) % 3 !== 1 ? '' : id)
  for (let from = 0; from < count; from += 100) {
    db.transaction(() => {
      for (let n = from; n < Math.min(from + 100, count); n++) {
        const [appid, userId] = [orNot(pick(APPS, n), n), orNot(pick(USERS, n), n)]
        record({ kind: 'token.refreshed', now: NOW + n, cause: byApp, appid, userId, note: String(n) })
      }
    })()
  }
}

const filters = [
  {},
  ...['ab', 'user_1_ann', 'user_2_ann', 'rare', 'user_3', 'nobody', '_ann'].map((userId) => ({ userId })),
  ...['app_1', '用户应用', 'the rare app', 'app_'].map((appid) => ({ appid })),
  { appid: 'app_2', userId: 'user_7' },
  { appid: 'the rare app', userId: 'rare' },
]

/** Compares every list, in pages of different lengths, with a filter over all events. */
async function expectLists(store: TokenStore, known: readonly AuditRow[]): Promise<void> {
  for (const filter of filters) {
    const { appid, userId } = filter as { appid?: string; userId?: string }
    const wanted = known.filter(
      (event) => (appid === undefined || event.appid === appid) && (userId === undefined || event.userId === userId),
    )
    for (const limit of [1_000, 17]) {
      const found = await allPages((page) => store.listAuditEvents(filter, page), limit)
      expect(found, JSON.stringify(filter)).toEqual(wanted)
    }
  }
}

/** A store and a connection beside it. */
function opened(): { store: TokenStore; db: Connection } {
  const file = join(temporaryDirectory(), 'token.db')
  const store = closing(openSqliteTokenStore({ file }))
  const db = openDatabase(file)
  onTestFinished(() => void db.close())
  return { store, db }
}

const removeUntilNothing = async (store: TokenStore, auditBeforeMs: number) => {
  while ((await store.removeEnded({ endedBeforeMs: 0, auditBeforeMs, limit: 500 })).auditEvents > 0);
}

test('lists are complete over many blocks, at their ends, and after old events are removed', async () => {
  const { store, db } = opened()
  write(db, 5 * BLOCK + 100)
  const known = await allPages((page) => store.listAuditEvents({}, page), 1_000)
  expect(known.map(({ note }) => Number(note))).toEqual(Array.from(known, (_, n) => known.length - 1 - n))
  expect(new Set(known.map(({ eventId }) => eventId)).size).toBe(5 * BLOCK + 100)
  await expectLists(store, known)

  const blocks = () => db.prepare('SELECT block FROM audit_blocks').pluck().all()
  expect(blocks()).toEqual([0, 1, 2, 3, 4])
  await removeUntilNothing(store, NOW + 2.5 * BLOCK)
  expect(blocks()).toEqual([2, 3, 4])
  await expectLists(
    store,
    known.filter(({ atMs }) => atMs >= NOW + 2.5 * BLOCK),
  )

  await store.removeEnded({ endedBeforeMs: 0, auditBeforeMs: NOW + 1_000_000, limit: 5 * BLOCK })
  expect(blocks()).toEqual([])
  await expectLists(store, [])
  write(db, 2 * BLOCK) // numbers start over
  await expectLists(store, await allPages((page) => store.listAuditEvents({}, page), 1_000))
})

test('lists are complete when old events are removed while the last block has just been filled', async () => {
  const { store, db } = opened()
  write(db, 2 * BLOCK - 1) // the first number is 1
  const blocks = () => db.prepare('SELECT block FROM audit_blocks').pluck().all()
  await removeUntilNothing(store, NOW + 10)
  expect(blocks()).toEqual([0, 1])
  write(db, BLOCK)
  expect(blocks()).toEqual([0, 1, 2])
  expect(await allPages((page) => store.listAuditEvents({}, page), 1_000)).toHaveLength(3 * BLOCK - 11)
})

test('lists are complete when the last events were removed by hand and their numbers are reused', async () => {
  const { store, db } = opened()
  write(db, BLOCK + 10)
  db.exec(`DELETE FROM audit_events WHERE number >= ${BLOCK - 50}`)
  write(db, 100)
  const known = await allPages((page) => store.listAuditEvents({}, page), 1_000)
  expect(known).toHaveLength(BLOCK - 51 + 100)
  await expectLists(store, known)
})

test('a list finds its events in thousands of blocks', async () => {
  const { store, db } = opened()
  const insert = db.prepare(
    `INSERT INTO audit_events VALUES (?, ?, ?, 'user.created', 'operator', '', '', 'r', '', 'user_old', '', '')`,
  )
  const insertBlock = db.prepare(`INSERT INTO audit_blocks VALUES (?, ',_old')`)
  db.transaction(() => {
    for (let block = 0; block < 2_500; block++) {
      insert.run(block * BLOCK, `event ${block}`, NOW)
      insertBlock.run(block)
    }
  })()
  const found = await allPages((page) => store.listAuditEvents({ userId: 'user_old' }, page), 1_000)
  expect(found.map(({ eventId }) => eventId)).toEqual(Array.from({ length: 2_500 }, (_, n) => `event ${2_499 - n}`))
})

test('events written by a clock that was ahead do not keep others from being removed', async () => {
  const { store, db } = opened()
  const record = eventRecorder(db, new KeptTokens(db))
  const ahead = NOW + 10 * 365 * DAY
  for (let n = 0; n < 600; n++) record({ kind: 'user.created', now: ahead, cause: byApp })
  write(db, 3 * BLOCK)
  await removeUntilNothing(store, NOW + DAY)
  const left = await allPages((page) => store.listAuditEvents({}, page), 1_000)
  expect(left.map(({ atMs }) => atMs)).toEqual(Array(600).fill(ahead))
})

test('events that reuse the numbers of events written by a clock that was behind are found', async () => {
  const { store, db } = opened()
  const record = eventRecorder(db, new KeptTokens(db))
  for (let n = 0; n < BLOCK - 100; n++) record({ kind: 'user.created', now: NOW, cause: byApp, userId: 'user_early' })
  for (let n = 0; n < 150; n++) record({ kind: 'user.created', now: 1, cause: byApp, userId: 'user_behind' })
  expect(db.prepare('SELECT block FROM audit_blocks').pluck().all()).toEqual([0])
  await removeUntilNothing(store, NOW)
  record({ kind: 'user.created', now: NOW, cause: byApp, userId: 'user_late' })
  for (const userId of ['user_late', 'user_early']) {
    const found = await allPages((page) => store.listAuditEvents({ userId }, page), 1_000)
    expect(found).toHaveLength(userId === 'user_late' ? 1 : BLOCK - 100)
  }
})

test.each(['garbage', '', '-1', '1.5', '9'.repeat(16)])(
  'a page token that no page returned is refused: %s',
  async (after) => {
    const { store } = opened()
    await expect(store.listAuditEvents({}, { limit: 1, after })).rejects.toThrow('the page token is not valid')
  },
)
