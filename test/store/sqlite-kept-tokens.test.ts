// Access tokens that were looked up are kept in memory, and must equal the database, whoever writes to it.
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { foreignWrites } from '../../services/storage/sqlite/kept.js'
import { openDatabase } from '../../services/storage/sqlite/open.js'
import { KeptTokens } from '../../services/token/store/sqlite/kept-tokens.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { presented } from './presented.js'
import { temporaryDirectory } from './temporary-directory.js'
import { byOperator, grant, hashOf, isGood, issue, mint, NOW, redeem, secretRow, seed } from './token-store-verbs.js'

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

test.each<[string, (store: TokenStore, isDisabled: boolean) => Promise<unknown>]>([
  ['a user', (store, isDisabled) => store.setUserDisabled('user_ann', isDisabled, NOW, byOperator)],
  ['an app', (store, isDisabled) => store.setAppDisabled('app1', isDisabled, NOW, byOperator)],
])('when another process disables or enables %s, the next lookup and the next write know', async (_, set) => {
  const { server, commandLine } = await twoProcesses()
  const { accessTokenHash, refreshTokenHash } = await grant(server)
  for (let round = 0; round < 3; round++) {
    expect((await mint(server, refreshTokenHash)).result).toBe('minted')
    expect(await isGood(server, accessTokenHash)).toBe(true)
    await issue(server, `code ${round}`)
    await set(commandLine, true)
    expect(await isGood(server, accessTokenHash)).toBe(false)
    expect((await mint(server, refreshTokenHash)).result).not.toBe('minted')
    expect((await redeem(server, `code ${round}`)).result.kind).not.toBe('redeemed')
    expect(await issue(server, `late ${round}`)).toMatch(/_ended$/)
    await set(commandLine, false)
  }
})

test('a profile that another process changes is found by the next lookup', async () => {
  const { server, commandLine } = await twoProcesses()
  const { accessTokenHash } = await grant(server)
  for (const nickname of ['one', 'another']) {
    await commandLine.updateUser('user_ann', { nickname }, NOW, byOperator)
    expect(await server.findAccessToken(presented(accessTokenHash))).toMatchObject({ nickname })
  }
})

test('what another process has written is known from the next callback of the event loop on', async () => {
  const path = file()
  const [db, other] = [openDatabase(path), openDatabase(path)]
  onTestFinished(() => [db, other].forEach((one) => void one.close()))
  const haveOthersWritten = foreignWrites(db)
  for (const isWritten of [true, true, false, true]) {
    if (isWritten) other.exec('CREATE TABLE IF NOT EXISTS written (n); INSERT INTO written VALUES (1)')
    expect([haveOthersWritten(), haveOthersWritten()]).toEqual([isWritten, false])
    if (isWritten) other.exec('INSERT INTO written VALUES (2)') // after the look of this callback
    await new Promise(setImmediate)
    expect(haveOthersWritten()).toBe(isWritten)
    await new Promise(setImmediate)
  }
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

test('tokens are kept up to a limit, at which all are dropped and looked up again', () => {
  const db = openDatabase(file())
  onTestFinished(() => void db.close())
  const kept = new KeptTokens(db)
  const about = { appid: 'app1', userId: 'user_ann', openid: 'o', scope: 'snsapi_user' }
  const profile = { externalId: '', nickname: '', avatar: '' }
  const times = { expiresAtMs: NOW, grantLastUsedAtMs: NOW, isRevoked: false }
  const consent = { permissions: '', appReadsAnswers: false, answersReadAtMs: 0 } as const
  let looks = 0
  const find = (...ids: number[]) => {
    const before = looks
    const look = () => ({ ...about, ...profile, ...times, ...consent, grantId: `grant_${++looks}` })
    for (const id of ids) kept.find({ digest: String(id), hash: hashOf('any') }, look)
    return looks - before
  }
  expect(find(...Array.from({ length: 50_000 }, (_, id) => id))).toBe(50_000)
  expect(find(0, 49_999)).toBe(0)
  expect(find(50_000)).toBe(1)
  expect(find(50_000, 49_999)).toBe(1)
})
