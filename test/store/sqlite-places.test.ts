// Where SQLite keeps grants: at the place of their codes and tokens, which other grants may share.
import { describe, expect, test } from 'vitest'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { closing } from '../postgres/closing.js'
import { presented } from './presented.js'
import {
  allPages,
  byOperator,
  byUser,
  CODE_TTL,
  DAY,
  grant,
  hashOf,
  isGood,
  issue,
  mint,
  NOW,
  redeem,
  redemption,
  seed,
  signIn,
  userRow,
} from './token-store-verbs.js'

async function seeded(): Promise<TokenStore> {
  const store = closing(openSqliteTokenStore({ file: ':memory:' }))
  await seed(store)
  return store
}

/** A hash at this place. */
function hashAtPlace(place: bigint, name: string): Buffer {
  const hash = Buffer.from(hashOf(name))
  hash.writeBigUInt64BE(place)
  return hash
}

const PLACE = 0x019b_76da_a800_0007n
const LAST = 0xffff_ffff_ffff_ffffn

describe('grants', () => {
  test.each([
    ['one place', () => PLACE],
    ['places next to each other', (n: number) => PLACE + BigInt(n)],
    ['the last place', () => LAST],
    ['places that differ in the first bit', (n: number) => (n % 2 === 0 ? 5n : 2n ** 63n + 5n)],
  ])('at %s do not affect each other', async (_, placeOf) => {
    const store = await seeded()
    const grants = []
    for (let n = 0; n < 9; n++) {
      const place = placeOf(n)
      const about = { username: n < 5 ? 'ann' : 'bob' }
      const hashes = {
        codeHash: hashAtPlace(place, `code ${n}`),
        refreshTokenHash: hashAtPlace(place, `refresh ${n}`),
        accessTokenHash: hashAtPlace(place, `access ${n}`),
      }
      grants.push(await grant(store, about, hashes))
    }
    const minted = await Promise.all(grants.map(({ refreshTokenHash }) => mint(store, refreshTokenHash)))
    expect(minted.map(({ result }) => result)).toEqual(grants.map(() => 'minted'))
    const ended = grants[4]
    await store.revokeGrant(ended?.grantId ?? '', NOW, byUser)
    for (const [n, { grantId, accessTokenHash, refreshTokenHash }] of grants.entries()) {
      const isLive = n !== 4
      expect(await isGood(store, accessTokenHash), `the first token of ${n}`).toBe(isLive)
      expect(await isGood(store, minted[n]?.accessTokenHash ?? accessTokenHash), `the second of ${n}`).toBe(isLive)
      expect((await store.findAccessToken(presented(accessTokenHash)))?.grantId).toBe(grantId)
      expect((await mint(store, refreshTokenHash)).result).toBe(isLive ? 'minted' : 'refused')
    }
  })

  test('are stored where their codes were, beside unused codes', async () => {
    const store = await seeded()
    const codes = Array.from({ length: 9 }, (_, n) => hashAtPlace(PLACE, `code ${n}`))
    for (const codeHash of codes) expect(await issue(store, '', { codeHash })).toBe('issued')
    const used = codes.filter((_, n) => n % 2 === 0)
    const grants = []
    for (const codeHash of used) grants.push(await redeem(store, '', { codeHash }))
    expect(grants.map(({ result }) => result.kind)).toEqual(used.map(() => 'redeemed'))
    for (const { accessTokenHash, refreshTokenHash, grantId } of grants) {
      expect((await store.findAccessToken(presented(accessTokenHash)))?.grantId).toBe(grantId)
      expect((await mint(store, refreshTokenHash)).result).toBe('minted')
    }
    expect((await store.listGrants({}, { limit: 20, after: undefined })).rows).toHaveLength(used.length)
    for (const codeHash of codes) {
      const isUsed = used.includes(codeHash)
      expect(await issue(store, '', { codeHash })).toBe(isUsed ? 'exists_ended' : 'exists_live')
      const { result } = await redeem(store, '', { codeHash }, NOW + CODE_TTL - 1)
      expect(result).toEqual(
        isUsed ? { kind: 'refused', replay: 'revoked_grant' } : expect.objectContaining({ kind: 'redeemed' }),
      )
    }
  })

  test('number at most 16 at one place, codes included: one more is refused until some are removed', async () => {
    const store = await seeded()
    const codes = Array.from({ length: 17 }, (_, n) => hashAtPlace(PLACE + BigInt(n % 3), `code ${n}`))
    for (const codeHash of codes.slice(0, 16)) expect(await issue(store, '', { codeHash, maxLive: 20 })).toBe('issued')
    await expect(issue(store, '', { codeHash: codes[16] as Buffer, maxLive: 20 })).rejects.toMatchObject({
      outcomeUnknown: false,
    })
    for (const codeHash of codes.slice(0, 16)) {
      expect((await redeem(store, '', { codeHash })).result.kind).toBe('redeemed')
    }
    await store.removeEnded({ endedBeforeMs: NOW + 60 * DAY, auditBeforeMs: 0, limit: 100 })
    expect(await issue(store, '', { codeHash: codes[16] as Buffer })).toBe('issued')
  })

  test('are listed for a user by when they began, otherwise by when their codes were issued, each once', async () => {
    const store = await seeded()
    const names = ['a', 'b', 'c', 'd', 'e']
    for (const [n, name] of names.entries()) await issue(store, name, {}, NOW + n)
    const ids: string[] = []
    for (const [n, name] of names.toReversed().entries()) {
      ids.push((await redeem(store, name, {}, NOW + 10 + n)).grantId)
      await issue(store, `unused ${name}`, {}, NOW + n)
    }
    for (const [filter, expected] of [
      [{ userId: 'user_ann' }, ids.toReversed()],
      [{ userId: 'user_ann', appid: 'app1', liveAtMs: NOW }, ids.toReversed()],
      [{ appid: 'app1' }, ids],
      [{ liveAtMs: NOW }, ids],
    ] as const) {
      const listed = await allPages((page) => store.listGrants(filter, page), 2)
      expect(listed.map(({ grantId }) => grantId)).toEqual(expected)
    }
  })

  test('do not begin once their app was disabled, even from codes of the longest lifetime', async () => {
    const store = await seeded()
    const expiresAtMs = NOW + 3_600_000
    expect(await issue(store, 'code', { expiresAtMs })).toBe('issued')
    expect(await issue(store, 'of another app', { appid: 'app2', expiresAtMs })).toBe('issued')
    await expect(issue(store, 'longer', { expiresAtMs: expiresAtMs + 1 })).rejects.toThrow('for an hour at most')
    for (const isDisabled of [true, false]) await store.setAppDisabled('app1', isDisabled, NOW, byOperator)
    expect((await redeem(store, 'code')).result.kind).toBe('refused')
    expect((await redeem(store, 'of another app', { appid: 'app2' })).result.kind).toBe('redeemed')
  })

  test.each([-2 * 3_600_000, CODE_TTL + 60_000])(
    'do not begin from codes that were ended under a clock that is off by %i ms',
    async (off) => {
      const store = await seeded()
      const taking = {
        app: async () => {
          for (const isDisabled of [true, false]) await store.setAppDisabled('app1', isDisabled, NOW + off, byOperator)
        },
        user: async () => {
          for (const isDisabled of [true, false])
            await store.setUserDisabled('user_ann', isDisabled, NOW + off, byOperator)
        },
        grant: async () => {
          const { grantId } = await grant(store)
          await store.revokeGrant(grantId, NOW + off, byUser)
        },
      }
      for (const [what, take] of Object.entries(taking)) {
        await signIn(store, userRow('ann'))
        await issue(store, what)
        await take()
        expect((await redeem(store, what)).result, what).toEqual({ kind: 'refused', replay: 'none' })
      }
    },
  )

  test('refuse a token that would not be found at their place', async () => {
    const store = await seeded()
    await issue(store, 'code')
    for (const stray of [{ accessTokenHash: hashOf('elsewhere') }, { refreshTokenHash: hashOf('elsewhere') }]) {
      const strays = redemption('code', stray)
      await expect(store.redeemCode(strays, NOW, byUser)).rejects.toThrow('not at the place of its grant')
    }
    const { refreshTokenHash } = await redeem(store, 'code')
    await expect(mint(store, refreshTokenHash, { accessTokenHash: hashOf('elsewhere') })).rejects.toThrow(TypeError)
  })
})
