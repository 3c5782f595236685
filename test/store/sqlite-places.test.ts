// Where SQLite keeps grants: at the place of their tokens, which others may have too.
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { migrate } from '../../services/sqlite/migrate.js'
import { type Connection, openDatabase } from '../../services/sqlite/open.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { closing } from '../postgres/closing.js'
import { temporaryDirectory } from './temporary-directory.js'
import {
  ACCESS_TTL,
  byUser,
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

describe('grants at places', () => {
  test.each([
    ['one place', () => PLACE],
    ['places next to each other', (n: number) => PLACE + BigInt(n)],
    ['the last place', () => LAST],
    ['places that differ in the first bit', (n: number) => (n % 2 === 0 ? 5n : 2n ** 63n + 5n)],
  ])('of %s each go on by themselves', async (_, placeOf) => {
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
    await store.revokeGrant(ended?.grantId ?? '', {}, NOW, byUser)
    for (const [n, { grantId, accessTokenHash, refreshTokenHash }] of grants.entries()) {
      const isLive = n !== 4
      expect(await isGood(store, accessTokenHash), `the first token of ${n}`).toBe(isLive)
      expect(await isGood(store, minted[n]?.accessTokenHash ?? accessTokenHash), `the second of ${n}`).toBe(isLive)
      expect((await store.findAccessToken(accessTokenHash))?.grantId).toBe(grantId)
      expect((await mint(store, refreshTokenHash)).result).toBe(isLive ? 'minted' : 'refused')
    }
  })

  test('of one place are 16 at most: one more is told to come again, and its code stays good', async () => {
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

  test('take no token that would not be found there', async () => {
    const store = await seeded()
    await issue(store, 'code')
    const stray = redemption('code', { accessTokenHash: hashOf('elsewhere') })
    await expect(store.redeemCode(stray, NOW, byUser)).rejects.toThrow('not at the place of its grant')
    const { refreshTokenHash } = await redeem(store, 'code')
    await expect(mint(store, refreshTokenHash, { accessTokenHash: hashOf('elsewhere') })).rejects.toThrow(TypeError)
  })
})

describe('the schema before', () => {
  /** A file of version 2 with an app, a user and what `fill` puts there. */
  function fileOfVersion2(fill: (db: Connection) => void): string {
    const file = join(temporaryDirectory(), 'token.db')
    const db = openDatabase(file)
    migrate(db, { ...tokenSchema, migrations: tokenSchema.migrations.slice(0, 2) })
    db.exec(`
      INSERT INTO apps VALUES ('app1', 'App', '[]', 0, 0, 1);
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
    'gives its tokens to the rows of their grants, of which some share the place %x',
    async (place) => {
      const names = ['one', 'two', 'three']
      const tokensOf = (name: string) =>
        ['first', 'second', 'third'].map((at) => hashAtPlace(place, `${at} of ${name}`))
      const file = fileOfVersion2((db) => {
        for (const name of names) insertGrant(db, name, hashAtPlace(place, name), tokensOf(name))
      })
      const store = closing(openSqliteTokenStore({ file }))
      for (const name of names) {
        for (const [serial, hash] of tokensOf(name).entries()) {
          expect(await store.findAccessToken(hash)).toMatchObject({
            grantId: name,
            expiresAtMs: NOW + ACCESS_TTL - serial,
          })
        }
        // The newest two of the three stay, beside the one that is new.
        const { result, accessTokenHash } = await mint(store, hashAtPlace(place, name), { maxLive: 3 })
        expect(result).toBe('minted')
        const found = await Promise.all([...tokensOf(name), accessTokenHash].map((hash) => store.findAccessToken(hash)))
        expect(found.map((token) => token?.expiresAtMs)).toEqual([
          undefined,
          NOW + OVERLAP,
          NOW + OVERLAP,
          NOW + ACCESS_TTL,
        ])
      }
    },
  )

  test('gives access tokens without a place, which 0.1.0 made, to their grants too', async () => {
    const [refresh, access, other] = ['refresh', 'access', 'other'].map(hashOf) as [Buffer, Buffer, Buffer]
    const file = fileOfVersion2((db) => {
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
    for (const hash of [access, other]) expect(await store.findAccessToken(hash)).toBeUndefined()
    expect((await store.listGrants({}, { limit: 10, after: undefined })).rows).toEqual([])
  })
})
