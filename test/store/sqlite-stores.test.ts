import { renameSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { presented } from './presented.js'
import { describeSurveyStore, expectBoundedSurveys } from './survey-store-conformance.js'
import { temporaryDirectory } from './temporary-directory.js'
import { describeTokenStore } from './token-store-conformance.js'
import { auditKinds, byOperator, grant, hashOf, isGood, issue, MINUTE, NOW, redeem, seed } from './token-store-verbs.js'

const file = () => join(temporaryDirectory(), 'store.db')

describeTokenStore('SQLite', async () => openSqliteTokenStore({ file: file() }))
describeSurveyStore('SQLite', async () => openSqliteSurveyStore({ file: file() }))

describe('SQLite stores', () => {
  test('what was acknowledged is kept when the store is reopened', async () => {
    const options = { file: file() }
    const first = openSqliteTokenStore(options)
    await seed(first)
    const { accessTokenHash } = await grant(first)
    await first.close()
    const second = openSqliteTokenStore(options)
    expect(await isGood(second, accessTokenHash)).toBe(true)
    expect(await auditKinds(second, { userId: 'user_ann' })).toContain('code.exchanged')
    await second.close()
  })

  test('codes that were never exchanged leave the index of what is open, however many a user makes', async () => {
    const options = { file: file() }
    const store = openSqliteTokenStore(options)
    await seed(store)
    const { accessTokenHash } = await grant(store)
    const at = (minute: number) => NOW + minute * MINUTE
    for (let i = 0; i < 60; i++) await issue(store, `code ${i}`, {}, at(i))
    const db = openDatabase(options.file)
    const open = () => db.prepare('SELECT count(*) FROM grants WHERE revoked_at_ms IS NULL').pluck().get()
    expect(open(), 'the grant, and what was issued within 20 minutes').toBeLessThan(25)
    db.close()
    expect((await redeem(store, 'code 59', {}, at(60))).result.kind).toBe('redeemed')
    const closed = await redeem(store, 'code 0', {}, NOW)
    expect(closed.result.kind, 'whatever the clock says').toBe('refused')
    expect(await isGood(store, accessTokenHash, at(61))).toBe(true)
    await store.close()
  })

  test('surveys written by one store are in the next read of another, and unchanged ones are the same object', async () => {
    const options = { file: file() }
    const server = openSqliteSurveyStore(options)
    const commandLine = openSqliteSurveyStore(options)
    const survey = { surveyId: 7, hash: '', state: 2, document: Buffer.from('a') }
    const list = () => server.listSurveys('ann', { offset: 0, limit: 5 })
    for (const title of ['first', 'second', 'third']) {
      await commandLine.putSurveys('ann', [{ ...survey, title, document: Buffer.from(title) }], NOW, byOperator)
      const found = await server.findSurvey(7)
      expect(Buffer.from(found?.document ?? []).toString()).toBe(title)
      expect((await list()).rows).toMatchObject([{ title }])
      expect(await server.findSurvey(7)).toBe(found)
      expect(await list()).toBe(await list())
    }
    await server.close()
    await commandLine.close()
  })

  test('cached surveys and lists are bounded by the memory for them', async () => {
    const store = openSqliteSurveyStore({ file: ':memory:' })
    await expectBoundedSurveys(store)
    const title = 't'.repeat(14_000_000) // counts five times
    await store.putSurveys('ann', [{ surveyId: 3, hash: '', title, state: 2, document: Buffer.of() }], NOW, byOperator)
    const list = (limit: number) => store.listSurveys('ann', { offset: 2, limit })
    const first = await list(1)
    expect(await list(1)).toBe(first)
    await list(2)
    expect(await list(1)).not.toBe(first)
    await store.close()
  })

  test('many last uses are written in parts, between which other writes have their turn', async () => {
    const commits: number[] = []
    const store = openSqliteTokenStore({ file: file(), onCommit: (writes) => commits.push(writes) })
    await seed(store)
    const { grantId } = await grant(store)
    const madeUp = Array.from({ length: 1_600 }, (_, n) => [`grant_${n}`, NOW] as const)
    commits.length = 0
    const recorded = store.recordUses({
      grants: new Map([...madeUp, [grantId, NOW + MINUTE]]),
      answers: new Map(),
      secrets: new Map([['secret_app1_default', NOW + MINUTE]]),
    })
    await store.touchSession(hashOf('nobody'), NOW)
    const commitsBefore = commits.length
    await recorded
    expect(commitsBefore, 'of a write that came behind them').toBeLessThan(3)
    expect(commits.length).toBeGreaterThan(4)
    expect((await store.listGrants({}, { limit: 10, after: undefined })).rows).toMatchObject([
      { grantId, lastUsedAtMs: NOW + MINUTE },
    ])
    expect(await store.listAppSecrets('app1')).toMatchObject([{ lastUsedAtMs: NOW + MINUTE }])
    await store.close()
  })

  test('a closed store is unavailable, and closing waits for the writes that were submitted', async () => {
    const store = openSqliteTokenStore({ file: file() })
    const seeded = seed(store)
    const closed = seeded.then(async () => {
      const last = issue(store, 'code')
      await store.close()
      return last
    })
    expect(await closed).toBe('issued')
    await expect(store.findApp('app1')).rejects.toThrow('the database is unavailable')
    await expect(store.ping()).rejects.toThrow('the database is unavailable')
    await expect(issue(store, 'late')).rejects.toThrow('the database is unavailable')
  })

  test('a page token that is not a position of the list is refused as the caller’s mistake', async () => {
    const store = openSqliteTokenStore({ file: file() })
    await expect(store.listGrants({}, { limit: 1, after: 'garbage' })).rejects.toThrow('the page token is not valid')
    await store.close()
  })

  test('what was read before is not answered from memory when the database is unavailable', async () => {
    const store = openSqliteTokenStore({ file: file() })
    await seed(store)
    const { accessTokenHash } = await grant(store)
    const reads = [() => store.findApp('app1'), () => store.findAccessToken(presented(accessTokenHash))]
    for (const read of reads) expect(await read()).toBeDefined()
    await store.close()
    for (const read of reads) await expect(read()).rejects.toThrow('the database is unavailable')
  })

  test('a file that was replaced by another of its name is no longer the database', async () => {
    const path = file()
    const store = openSqliteTokenStore({ file: path })
    await store.ping()
    renameSync(path, `${path}.away`)
    openDatabase(path).close()
    await expect(store.ping()).rejects.toThrow('the database is unavailable')
    await store.close()
  })

  test('a missing table is a defect, not an unavailable database', async () => {
    const options = { file: file() }
    const store = openSqliteTokenStore(options)
    const saboteur: Connection = openDatabase(options.file)
    saboteur.exec('ALTER TABLE grants RENAME TO gone')
    await expect(store.findAccessToken(presented(hashOf('any')))).rejects.toThrow('no such table')
    saboteur.close()
    await store.close()
  })
})
