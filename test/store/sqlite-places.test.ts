// Where SQLite keeps grants: at the place of their codes and tokens, which other grants may share.
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { migrate } from '../../services/sqlite/migrate.js'
import { type Connection, openDatabase } from '../../services/sqlite/open.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { closing } from '../postgres/closing.js'
import { presented } from './presented.js'
import { temporaryDirectory } from './temporary-directory.js'
import {
  ACCESS_TTL,
  allPages,
  byOperator,
  byUser,
  CODE_TTL,
  DAY,
  findGrant,
  grant,
  hashOf,
  isGood,
  issue,
  mint,
  NOW,
  OVERLAP,
  REFRESH_TTL,
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

  test('that begin at another place than their code are found by either', async () => {
    const store = await seeded()
    const codeHash = hashAtPlace(PLACE, 'code')
    await issue(store, '', { codeHash })
    const { refreshTokenHash, accessTokenHash } = await redeem(store, '', {
      codeHash,
      refreshTokenHash: hashOf('elsewhere'),
    })
    expect((await mint(store, refreshTokenHash)).result).toBe('minted')
    expect((await redeem(store, '', { codeHash }, NOW + CODE_TTL - 1)).result).toEqual({
      kind: 'refused',
      replay: 'revoked_grant',
    })
    expect(await isGood(store, accessTokenHash)).toBe(false)
    await store.removeEnded({ endedBeforeMs: NOW + 60 * DAY, auditBeforeMs: 0, limit: 100 })
    expect((await redeem(store, '', { codeHash }, NOW + CODE_TTL - 1)).result).toEqual({
      kind: 'refused',
      replay: 'none',
    })
  })

  test('that begin at another place than their codes number at most 16 there, and the code stays good', async () => {
    const store = await seeded()
    const at = (name: string) => ({
      refreshTokenHash: hashAtPlace(PLACE, `refresh ${name}`),
      accessTokenHash: hashAtPlace(PLACE, `access ${name}`),
    })
    for (let n = 0; n < 16; n++) await grant(store, {}, at(String(n)))
    await issue(store, 'code')
    await expect(redeem(store, 'code', at('17th'))).rejects.toMatchObject({ outcomeUnknown: false })
    expect((await redeem(store, 'code')).result.kind).toBe('redeemed')
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
          for (const isDisabled of [true, false]) await store.setUserDisabled('ann', isDisabled, NOW + off, byOperator)
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
    const stray = redemption('code', { accessTokenHash: hashOf('elsewhere') })
    await expect(store.redeemCode(stray, NOW, byUser)).rejects.toThrow('not at the place of its grant')
    const { refreshTokenHash } = await redeem(store, 'code')
    await expect(mint(store, refreshTokenHash, { accessTokenHash: hashOf('elsewhere') })).rejects.toThrow(TypeError)
  })
})

describe('a migration of an older schema', () => {
  /** A file of that version with an app, its secret, a user and what `fill` puts there. */
  function fileOf(version: number, fill: (db: Connection) => void): string {
    const file = join(temporaryDirectory(), 'token.db')
    const db = openDatabase(file)
    migrate(db, { ...tokenSchema, migrations: tokenSchema.migrations.slice(0, version) })
    db.exec(`
      INSERT INTO apps VALUES ('app1', 'App', '[]', 0, 0, 1);
      INSERT INTO app_secrets VALUES ('secret_app1_default', 'app1', 'default', zeroblob(32), 1, NULL, NULL, NULL);
      INSERT INTO users VALUES ('user_ann', 'ann', 'Ann', '', '', 0, 1)`)
    fill(db)
    db.close()
    return file
  }

  function insertGrant(
    db: Connection,
    id: string,
    refreshTokenHash: Buffer,
    accessTokenHashes: readonly Buffer[],
  ): void {
    db.prepare(`INSERT INTO grants VALUES (?, 'app1', 'user_ann', 'o', 'snsapi_user', ?, ?, ?, ?, NULL)`).run(
      id,
      refreshTokenHash,
      NOW,
      NOW,
      NOW + REFRESH_TTL,
    )
    for (const [serial, hash] of accessTokenHashes.entries()) {
      db.prepare('INSERT INTO access_tokens VALUES (?, ?, ?, ?)').run(hash, id, serial, NOW + ACCESS_TTL - serial)
    }
  }

  test.each([PLACE, LAST])(
    'moves tokens to the rows of their grants, some of which share the place %x',
    async (place) => {
      const names = ['one', 'two', 'three']
      const tokensOf = (name: string) =>
        ['first', 'second', 'third'].map((at) => hashAtPlace(place, `${at} of ${name}`))
      const file = fileOf(2, (db) => {
        for (const name of names) insertGrant(db, name, hashAtPlace(place, name), tokensOf(name))
      })
      const store = closing(openSqliteTokenStore({ file }))
      for (const name of names) {
        for (const [serial, hash] of tokensOf(name).entries()) {
          expect(await store.findAccessToken(presented(hash))).toMatchObject({
            grantId: name,
            expiresAtMs: NOW + ACCESS_TTL - serial,
          })
        }
        // The newest two of the three stay, besides the new one.
        const { result, accessTokenHash } = await mint(store, hashAtPlace(place, name), { maxLive: 3 })
        expect(result).toBe('minted')
        const found = await Promise.all(
          [...tokensOf(name), accessTokenHash].map((hash) => store.findAccessToken(presented(hash))),
        )
        expect(found.map((token) => token?.expiresAtMs)).toEqual([
          undefined,
          NOW + OVERLAP,
          NOW + OVERLAP,
          NOW + ACCESS_TTL,
        ])
      }
    },
  )

  test('moves access tokens of 0.1.0, which have no place, to their grants too', async () => {
    const [refresh, access, other] = ['refresh', 'access', 'other'].map(hashOf) as [Buffer, Buffer, Buffer]
    const file = fileOf(2, (db) => {
      insertGrant(db, 'early', refresh, [access, other])
      insertGrant(db, 'without a token', hashOf('alone') as Buffer, [])
      insertGrant(db, 'without one for good', hashOf('never used') as Buffer, [])
    })
    const store = closing(openSqliteTokenStore({ file }))
    for (const hash of [access, other]) expect(await isGood(store, hash)).toBe(true)
    const { accessTokenHash } = await mint(store, refresh)
    for (const hash of [access, other, accessTokenHash]) {
      expect(await isGood(store, hash, NOW + OVERLAP - 1)).toBe(true)
      expect(await isGood(store, hash, NOW + OVERLAP)).toBe(hash === accessTokenHash)
    }
    expect((await mint(store, hashOf('alone'))).result).toBe('minted')
    expect(await findGrant(store, 'without a token')).toMatchObject({ createdAtMs: NOW })
    await store.removeEnded({ endedBeforeMs: NOW + 2 * REFRESH_TTL, auditBeforeMs: 0, limit: 100 })
    for (const hash of [access, other]) expect(await store.findAccessToken(presented(hash))).toBeUndefined()
    expect((await store.listGrants({}, { limit: 10, after: undefined })).rows).toEqual([])
  })

  describe('from version 3, which had a table of codes,', () => {
    const AT_ONE_PLACE = 40
    const unused = Array.from({ length: AT_ONE_PLACE }, (_, n) => hashAtPlace(PLACE, `unused ${n}`))
    const used = Array.from({ length: AT_ONE_PLACE }, (_, n) => hashAtPlace(PLACE, `used ${n}`))

    function opened(): TokenStore {
      const file = fileOf(3, (db) => {
        const insertCode = db.prepare('INSERT INTO codes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)')
        const insertGrant = db.prepare('INSERT INTO grants VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)')
        const about = ['app1', 'user_ann', 'https://a.example/', 'snsapi_user']
        for (const [n, hash] of unused.entries())
          insertCode.run(hash, ...about, NOW - n, NOW - n + CODE_TTL, null, null)
        for (const [n, hash] of used.entries()) {
          insertCode.run(hash, ...about, NOW, NOW + CODE_TTL, NOW + 1, `grant of ${n}`)
          if (n === 0) continue // the grant of one is gone
          const token = Buffer.concat([hashAtPlace(BigInt(n) << 9n, `access ${n}`), Buffer.from('019bffffffff', 'hex')])
          const refresh = hashAtPlace(BigInt(n) << 9n, `refresh ${n}`)
          const times = [NOW + 1, NOW + 1, NOW + REFRESH_TTL]
          insertGrant.run(
            BigInt(n) << 9n,
            `grant of ${n}`,
            'app1',
            'user_ann',
            'o',
            'snsapi_user',
            refresh,
            ...times,
            token,
          )
        }
      })
      return closing(openSqliteTokenStore({ file }))
    }

    test('keeps unused codes redeemable, wherever their tokens are, and a replay ends the grant', async () => {
      const store = opened()
      const last = NOW - AT_ONE_PLACE + CODE_TTL
      for (const [n, codeHash] of unused.entries()) {
        const own = n < 16 ? {} : { refreshTokenHash: hashOf(`fresh ${n}`) } // their own place has room for 16
        const { result, refreshTokenHash, accessTokenHash } = await redeem(store, '', { codeHash, ...own })
        expect(result.kind).toBe('redeemed')
        expect((await mint(store, refreshTokenHash)).result).toBe('minted')
        expect(await isGood(store, accessTokenHash)).toBe(true)
        expect((await redeem(store, '', { codeHash }, last)).result).toMatchObject({ replay: 'revoked_grant' })
        expect(await isGood(store, accessTokenHash)).toBe(false)
      }
    })

    test('lets a replay of a used code end its grant', async () => {
      const store = opened()
      for (const [n, codeHash] of used.entries()) {
        const token = hashAtPlace(BigInt(n) << 9n, `access ${n}`)
        expect(await isGood(store, token)).toBe(n !== 0)
        const { result } = await redeem(store, '', { codeHash }, NOW + CODE_TTL - 1)
        expect(result).toEqual({ kind: 'refused', replay: n === 0 ? 'none' : 'revoked_grant' })
        expect(await isGood(store, token)).toBe(false)
      }
    })

    test('does not list codes as grants, ends unused ones on a revocation, and removes expired ones', async () => {
      const store = opened()
      expect((await store.listGrants({}, { limit: 100, after: undefined })).rows).toHaveLength(used.length - 1)
      const bounds = { endedBeforeMs: NOW + CODE_TTL - 20, auditBeforeMs: 0, limit: 100 }
      expect(await store.removeEnded(bounds)).toMatchObject({ codes: AT_ONE_PLACE - 21, grants: 0 })
      await store.revokeGrant('grant of 1', NOW, byUser)
      for (const codeHash of unused)
        expect((await redeem(store, '', { codeHash })).result).toMatchObject({ replay: 'none' })
    })
  })
})
