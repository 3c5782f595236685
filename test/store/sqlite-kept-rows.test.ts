// What writes look up about apps, secrets and users is kept in memory, and must equal the database in each transaction.
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { GroupCommit } from '../../services/storage/sqlite/group-commit.js'
import { migrate } from '../../services/storage/sqlite/migrate.js'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { appStateFinder } from '../../services/token/store/sqlite/app-state.js'
import { KeptRows } from '../../services/token/store/sqlite/kept-rows.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { liveUserFinder } from '../../services/token/store/sqlite/users.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { presented } from './presented.js'
import { temporaryDirectory } from './temporary-directory.js'
import { appRow, byOperator, grant, hashOf, issue, mint, NOW, redeem, secretRow, seed } from './token-store-verbs.js'

const file = () => join(temporaryDirectory(), 'store.db')

async function twoProcesses() {
  const path = file()
  const [server, commandLine] = [openSqliteTokenStore({ file: path }), openSqliteTokenStore({ file: path })]
  onTestFinished(async () => {
    await Promise.all([server.close(), commandLine.close()])
  })
  await seed(server)
  return { server, commandLine }
}

const switches: [string, (store: TokenStore, isDisabled: boolean) => Promise<unknown>][] = [
  ['a user', (store, isDisabled) => store.setUserDisabled('user_ann', isDisabled, NOW, byOperator)],
  ['an app', (store, isDisabled) => store.setAppDisabled('app1', isDisabled, NOW, byOperator)],
]

test.each(switches)('when another process disables or enables %s, the next write knows', async (_, set) => {
  const { server, commandLine } = await twoProcesses()
  const { refreshTokenHash } = await grant(server)
  for (let round = 0; round < 3; round++) {
    expect((await mint(server, refreshTokenHash)).result).toBe('minted')
    await issue(server, `code ${round}`)
    await set(commandLine, true)
    expect((await mint(server, refreshTokenHash)).result).not.toBe('minted')
    expect((await redeem(server, `code ${round}`)).result.kind).not.toBe('redeemed')
    expect(await issue(server, `late ${round}`)).toMatch(/_ended$/)
    await set(commandLine, false)
  }
})

test('the apps and secrets that are kept take a bounded number of bytes, the longest addresses counted', async () => {
  const db = openDatabase(file())
  onTestFinished(() => void db.close())
  const kept = new KeptRows(db)
  const redirectUris = Array.from({ length: 20 }, (_, at) => `https://a.example/${'x'.repeat(2_000)}${at}`)
  const bytesOfOne = 2 * redirectUris.join().length
  const looked: string[] = []
  const find = (appid: string) => {
    return kept.findApp(appid, () => {
      looked.push(appid)
      return appRow(appid, { redirectUris })
    })
  }
  const many = Math.ceil((16 * 1024 * 1024) / bytesOfOne) + 1
  await find('app first')
  await find('app first')
  expect(looked, 'it is kept').toEqual(['app first'])
  for (let n = 0; n < many; n += 1) await find(`app ${n}`)
  await find('app first')
  expect(
    looked.filter((appid) => appid === 'app first'),
    'it had to make room',
  ).toHaveLength(2)

  const lists: string[] = []
  const secrets = Array.from({ length: 1_000 }, (_, at) => secretRow('app1', String(at)))
  const list = (appid: string) => {
    return kept.listSecrets(appid, () => {
      lists.push(appid)
      return secrets
    })
  }
  await list('app first')
  for (let n = 0; n < 45; n += 1) await list(`app ${n}`)
  await list('app first')
  expect(lists.filter((appid) => appid === 'app first')).toHaveLength(2)
})

test('a secret added by another process is accepted by the next write, and a revoked one is not', async () => {
  const { server, commandLine } = await twoProcesses()
  const { refreshTokenHash } = await grant(server)
  const refreshWith = async (secretId: string) => (await mint(server, refreshTokenHash, { secretId })).result
  const exchangeWith = async (secretId: string, code: string) => {
    await issue(server, code)
    return (await redeem(server, code, { secretId })).result.kind
  }
  const { secretId } = secretRow('app1', 'second')
  expect(await refreshWith(secretId)).toBe('secret_ended')
  await commandLine.addAppSecret(secretRow('app1', 'second'), NOW, byOperator)
  expect(await refreshWith(secretId)).toBe('minted')
  expect(await exchangeWith(secretId, 'before')).toBe('redeemed')
  await commandLine.revokeAppSecret('app1', secretId, NOW, byOperator)
  expect(await refreshWith(secretId)).toBe('secret_ended')
  expect(await exchangeWith(secretId, 'after')).toBe('secret_ended')
})

test('a secret expires on time, even when nothing is written at that moment', async () => {
  const { server } = await twoProcesses()
  const { refreshTokenHash } = await grant(server)
  const secret = secretRow('app1', 'short', { expiresAtMs: NOW + 10 })
  const { secretId } = secret
  await server.addAppSecret(secret, NOW, byOperator)
  expect((await mint(server, refreshTokenHash, { secretId }, NOW + 9)).result).toBe('minted')
  expect((await mint(server, refreshTokenHash, { secretId }, NOW + 10)).result).toBe('secret_ended')
})

test('a change of whether an app must send its secret holds for the next write, whoever makes it', async () => {
  const { server, commandLine } = await twoProcesses()
  const { refreshTokenHash } = await grant(server)
  const change = (requiresSecretOnRefresh: boolean) => ({
    redirectUris: ['https://app1.example/'],
    requiresSecretOnRefresh,
  })
  for (const store of [server, commandLine]) {
    expect((await mint(server, refreshTokenHash)).result).toBe('minted')
    await store.updateApp('app1', change(true), NOW, byOperator)
    expect((await mint(server, refreshTokenHash)).result).toBe('secret_ended')
    await store.updateApp('app1', change(false), NOW, byOperator)
  }
})

test('within one commit, a refresh after the disabling is refused and one before it is not', async () => {
  const { server } = await twoProcesses()
  const { refreshTokenHash } = await grant(server)
  for (const [, set] of switches) {
    const results = await Promise.all([
      mint(server, refreshTokenHash),
      set(server, true),
      mint(server, refreshTokenHash),
      set(server, false),
      mint(server, refreshTokenHash),
    ])
    const [before, , disabled, , after] = results as { result: string }[]
    expect([before?.result, disabled?.result !== 'minted', after?.result]).toEqual(['minted', true, 'minted'])
  }
})

const lookedUp = [
  {
    what: 'a user',
    disable: (store: TokenStore) => store.setUserDisabled('user_ann', true, NOW, byOperator),
    finder(db: Connection, kept: KeptRows) {
      const isLive = liveUserFinder(db, kept)
      return () => isLive('user_ann')
    },
    enable: `UPDATE users SET is_disabled = 0 WHERE user_id = 'user_ann'`,
    event: 'user.enabled',
  },
  {
    what: 'an app',
    disable: (store: TokenStore) => store.setAppDisabled('app1', true, NOW, byOperator),
    finder(db: Connection, kept: KeptRows) {
      const find = appStateFinder(db, kept)
      return () => find('app1')?.isDisabled === false
    },
    enable: `UPDATE apps SET is_disabled = 0 WHERE appid = 'app1'`,
    event: 'app.enabled',
  },
] as const

test.each(lookedUp.flatMap((row) => ['alone', 'with other writes in its commit'].map((how) => ({ ...row, how }))))(
  'what a write read of $what is forgotten when it is rolled back, $how',
  async ({ disable, finder, enable, event, how }) => {
    const db = openDatabase(file())
    migrate(db, tokenSchema)
    const store = openSqliteTokenStore({ file: db.name })
    await seed(store)
    await disable(store)
    await store.close()
    const kept = new KeptRows(db)
    const isLive = finder(db, kept)
    const writer = new GroupCommit(db, { watcher: kept })
    const look = () => writer.submit(isLive)
    onTestFinished(async () => {
      await writer.close()
      db.close()
    })
    const others = how === 'alone' ? [] : [look()]
    const failing = writer.submit(() => {
      db.exec(enable)
      kept.changed(event, '')
      if (isLive()) throw new Error('seen')
    })
    const behind = how === 'alone' ? [] : [look()]
    await expect(failing).rejects.toThrow('seen')
    expect(await Promise.all([...others, ...behind])).not.toContain(true)
    expect(await look()).toBe(false)
  },
)

test('a recorded use updates the cached row, which stays cached', async () => {
  const store = openSqliteTokenStore({ file: file() })
  onTestFinished(() => store.close())
  await seed(store)
  const { accessTokenHash, grantId } = await grant(store)
  const known = await store.findAccessToken(presented(accessTokenHash))
  for (const atMs of [NOW + 90_000, NOW + 60_000]) {
    await store.recordUses({ grants: new Map([[grantId, atMs]]), secrets: new Map() })
  }
  const found = await store.findAccessToken(presented(accessTokenHash))
  expect(found, 'the same object').toBe(known)
  expect(found?.grantLastUsedAtMs).toBe(NOW + 90_000)
  await store.revokeGrant(grantId, NOW, byOperator)
  expect((await store.findAccessToken(presented(accessTokenHash)))?.grantLastUsedAtMs).toBe(NOW + 90_000)
})

test('tokens are cached up to a limit, at which all are dropped and looked up again', async () => {
  const db = openDatabase(file())
  onTestFinished(() => void db.close())
  const kept = new KeptRows(db)
  const about = { appid: 'app1', userId: 'user_ann', openid: 'o', scope: 'snsapi_user' }
  const profile = { externalId: '', nickname: '', avatar: '' }
  const times = { expiresAtMs: NOW, grantLastUsedAtMs: NOW, isRevoked: false }
  let looks = 0
  const find = async (...ids: number[]) => {
    const before = looks
    const asked = ids.map((id) => ({ digest: String(id), hash: hashOf('any') }))
    const look = () => ({ ...about, ...profile, ...times, grantId: `grant_${++looks}` })
    await Promise.all(asked.map((token) => kept.findToken(token, look)))
    return looks - before
  }
  expect(await find(...Array.from({ length: 50_000 }, (_, id) => id))).toBe(50_000)
  expect(await find(0, 49_999)).toBe(0)
  expect(await find(50_000)).toBe(1)
  expect(await find(50_000, 49_999)).toBe(1)
})
