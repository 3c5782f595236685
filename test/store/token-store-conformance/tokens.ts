import { expect } from 'vitest'
import { LAST_USE_RESOLUTION_MS, type TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { presented } from '../presented.js'
import {
  ACCESS_TTL,
  auditKinds,
  byUser,
  findGrant,
  grant,
  hashOf,
  isGood,
  mint,
  NOW,
  OVERLAP,
  REFRESH_TTL,
  seed,
  share,
} from '../token-store-verbs.js'

export const tokenChecks: readonly Check<TokenStore>[] = [
  {
    title: 'unknown and empty hashes find nothing',
    async run(store) {
      await seed(store)
      const { refreshTokenHash } = await grant(store)
      for (const hash of [hashOf('nothing'), new Uint8Array(32), new Uint8Array(0), refreshTokenHash]) {
        expect(await store.findAccessToken(presented(hash))).toBeUndefined()
        expect(await store.findSession(hash)).toBeUndefined()
      }
    },
  },
  {
    title: 'a refresh token is good until 1 ms before its expiry, and a token minted then has its full lifetime',
    async run(store) {
      await seed(store)
      const { refreshTokenHash } = await grant(store)
      const end = NOW + REFRESH_TTL
      const last = await mint(store, refreshTokenHash, {}, end - 1)
      expect(last.result).toBe('minted')
      expect((await mint(store, refreshTokenHash, {}, end)).result).toBe('refused')
      expect((await mint(store, refreshTokenHash, {}, end + 1)).result).toBe('refused')
      expect(await isGood(store, last.accessTokenHash, end - 1 + ACCESS_TTL - 1)).toBe(true)
      expect(await isGood(store, last.accessTokenHash, end - 1 + ACCESS_TTL)).toBe(false)
    },
  },
  {
    title: "an unknown refresh token, an access token and another app's refresh token are refused",
    async run(store) {
      await seed(store)
      const { refreshTokenHash, accessTokenHash } = await grant(store)
      expect((await mint(store, hashOf('nothing'))).result).toBe('refused')
      expect((await mint(store, accessTokenHash)).result).toBe('refused')
      const other = await mint(store, refreshTokenHash, { appid: 'app2' })
      expect(other.result).toBe('refused')
      expect(await store.findAccessToken(presented(other.accessTokenHash))).toBeUndefined()
      expect((await mint(store, refreshTokenHash, { appid: 'nobody' })).result).toBe('app_ended')
      expect(await isGood(store, accessTokenHash, NOW + OVERLAP)).toBe(true)
    },
  },
  {
    title: 'each of many concurrent refreshes and lookups gets its own result',
    async run(store) {
      await seed(store)
      const grants = await Promise.all(
        Array.from({ length: 150 }, (_, at) => grant(store, { appid: at % 2 ? 'app1' : 'app2' })),
      )
      const minted = await Promise.all(
        grants.map(({ appid, refreshTokenHash }, at) => {
          if (at % 5 === 0) return mint(store, hashOf(`nothing ${at}`), { appid })
          const other = appid === 'app1' ? 'app2' : 'app1'
          if (at % 5 === 1) return mint(store, refreshTokenHash, { appid: other })
          if (at % 5 === 2) return mint(store, refreshTokenHash, { appid, secretId: `secret_${other}_default` })
          return mint(store, refreshTokenHash, {
            appid,
            secretId: at % 5 === 3 ? `secret_${appid}_default` : undefined,
          })
        }),
      )
      const expected = ['refused', 'refused', 'secret_ended', 'minted', 'minted']
      expect(minted.map(({ result }) => result)).toEqual(grants.map((_, at) => expected[at % 5]))
      const lookups = [...minted, ...grants, ...minted].map(({ accessTokenHash }) =>
        store.findAccessToken(presented(accessTokenHash)),
      )
      const found = (await Promise.all(lookups)).map((token) => token?.grantId)
      const ofMinted = grants.map(({ grantId }, at) => (at % 5 < 3 ? undefined : grantId))
      expect(found).toEqual([...ofMinted, ...grants.map(({ grantId }) => grantId), ...ofMinted])
    },
  },
  {
    title: 'after a refresh earlier tokens live for the overlap, but never beyond their own expiry',
    async run(store) {
      await seed(store)
      const { accessTokenHash: first, refreshTokenHash } = await grant(store)
      const { accessTokenHash: second } = await mint(store, refreshTokenHash, {}, NOW + 1000)
      expect(await isGood(store, first, NOW + 1000 + OVERLAP - 1)).toBe(true)
      expect(await isGood(store, first, NOW + 1000 + OVERLAP)).toBe(false)
      expect(await isGood(store, second, NOW + 1000 + ACCESS_TTL - 1)).toBe(true)

      await mint(store, refreshTokenHash, {}, NOW + 2000)
      expect(await store.findAccessToken(presented(first))).toMatchObject({ expiresAtMs: NOW + 1000 + OVERLAP })
      const { accessTokenHash: short } = await mint(store, refreshTokenHash, { lifetimeMs: 1000 }, NOW + 3000)
      await mint(store, refreshTokenHash, {}, NOW + 3500)
      expect(await store.findAccessToken(presented(short))).toMatchObject({ expiresAtMs: NOW + 4000 })
    },
  },
  {
    title: 'without an overlap a refresh ends the earlier tokens at once',
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      const minted = await mint(store, refreshTokenHash, { overlapMs: 0 })
      expect(await isGood(store, accessTokenHash)).toBe(false)
      expect(await isGood(store, minted.accessTokenHash)).toBe(true)
    },
  },
  {
    title: 'a thousand refreshes at once share one token, which is good for its whole lifetime, and end no other',
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      const shared = await Promise.all(Array.from({ length: 1_000 }, () => share(store, refreshTokenHash)))
      expect(new Set(shared.map((token) => String(token.accessTokenHash))).size).toBe(1)
      const [token] = shared
      if (!token) throw new Error('there is none')
      expect(await isGood(store, token.accessTokenHash, NOW + ACCESS_TTL - 1)).toBe(true)
      expect(await isGood(store, token.accessTokenHash, NOW + ACCESS_TTL)).toBe(false)
      expect(await isGood(store, accessTokenHash, NOW + OVERLAP - 1)).toBe(true)
      expect((await auditKinds(store)).filter((kind) => kind === 'token.refreshed')).toHaveLength(1)
    },
  },
  {
    title:
      'a token is handed out again within an eighth of the overlap, by clocks that differ by less, and not at its end',
    async run(store) {
      await seed(store)
      const window = OVERLAP / 8
      for (const [off, isSame] of [
        [0, true],
        [window - 1, true],
        [window, false],
        [window + 1, false],
        [1 - window, true],
        [-window, false],
        [-window - 1, false],
      ] as const) {
        const { refreshTokenHash } = await grant(store)
        const first = await share(store, refreshTokenHash)
        const second = await share(store, refreshTokenHash, {}, NOW + off)
        expect(second, `${off} ms later`).toEqual(
          isSame ? first : { accessTokenHash: expect.anything(), expiresAtMs: NOW + off + ACCESS_TTL },
        )
        expect(await isGood(store, first.accessTokenHash, NOW + off + (isSame ? ACCESS_TTL - off : OVERLAP) - 1)).toBe(
          true,
        )
      }
    },
  },
  {
    title: 'the token of the exchange is not handed out again, nor one that was made with other terms',
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      const first = await share(store, refreshTokenHash)
      expect(first.accessTokenHash).not.toEqual(accessTokenHash)
      const other = await share(store, refreshTokenHash, { lifetimeMs: ACCESS_TTL / 2 })
      expect(other.expiresAtMs).toBe(NOW + ACCESS_TTL / 2)
    },
  },
  {
    title: 'every token that was handed out is good for the overlap at least, however often its grant is refreshed',
    async run(store) {
      await seed(store)
      const { refreshTokenHash } = await grant(store)
      const handedOut = []
      for (let now = NOW; now < NOW + 3 * OVERLAP; now += OVERLAP / 16) {
        handedOut.push({ now, ...(await share(store, refreshTokenHash, {}, now)) })
        for (const token of handedOut.filter(({ now: at }) => now < at + OVERLAP)) {
          expect(await isGood(store, token.accessTokenHash, now)).toBe(true)
        }
      }
      const found = await Promise.all(handedOut.map((token) => store.findAccessToken(presented(token.accessTokenHash))))
      expect(new Set(found.filter(Boolean).map((token) => token?.expiresAtMs)).size).toBeLessThan(10)
    },
  },
  {
    title: 'of access tokens that clocks far apart have minted ten live, and the oldest end first',
    async run(store) {
      await seed(store)
      const { refreshTokenHash } = await grant(store)
      const minted = []
      for (let i = 0; i < 12; i++) minted.push(await mint(store, refreshTokenHash, {}, NOW + i))
      const good = await Promise.all(minted.map((token) => isGood(store, token.accessTokenHash, NOW + 12)))
      expect(good).toEqual([false, false, ...Array(10).fill(true)])
    },
  },
  {
    title: 'a refresh counts as a use of its grant, recorded at most once a minute',
    async run(store) {
      await seed(store)
      const { grantId, refreshTokenHash } = await grant(store)
      const lastUseAfterMintingAt = async (now: number) => {
        await mint(store, refreshTokenHash, {}, now)
        return (await findGrant(store, grantId))?.lastUsedAtMs
      }
      expect(await lastUseAfterMintingAt(NOW + LAST_USE_RESOLUTION_MS - 1)).toBe(NOW)
      expect(await lastUseAfterMintingAt(NOW + LAST_USE_RESOLUTION_MS)).toBe(NOW + LAST_USE_RESOLUTION_MS)
      const longOverlap = { overlapMs: 100 * LAST_USE_RESOLUTION_MS }
      await share(store, refreshTokenHash, longOverlap, NOW + 2 * LAST_USE_RESOLUTION_MS)
      await share(store, refreshTokenHash, longOverlap, NOW + 3 * LAST_USE_RESOLUTION_MS)
      expect((await findGrant(store, grantId))?.lastUsedAtMs).toBe(NOW + 3 * LAST_USE_RESOLUTION_MS)
    },
  },
  {
    title: 'a refresh neither extends nor replaces the refresh token, and touches no other grant',
    async run(store) {
      await seed(store)
      const one = await grant(store)
      const other = await grant(store)
      const now = NOW + 5000
      await mint(store, one.refreshTokenHash, { overlapMs: 0 }, now)
      expect(await findGrant(store, one.grantId)).toMatchObject({ expiresAtMs: NOW + REFRESH_TTL })
      expect((await mint(store, one.refreshTokenHash, {}, now)).result).toBe('minted')
      expect(await isGood(store, other.accessTokenHash, now)).toBe(true)
    },
  },
  {
    title: 'a replaced token does not become good again when the clock is set back',
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      await mint(store, refreshTokenHash, { overlapMs: 0 }, NOW + 1000)
      await mint(store, refreshTokenHash, {}, NOW)
      expect(await isGood(store, accessTokenHash, NOW + 1000)).toBe(false)
    },
  },
  {
    title: 'a refresh that races a revocation leaves no good token behind',
    async run(store) {
      await seed(store)
      for (let round = 0; round < 10; round++) {
        const { grantId, accessTokenHash, refreshTokenHash } = await grant(store)
        const before = Array.from({ length: 5 }, () => mint(store, refreshTokenHash))
        const revoked = store.revokeGrant(grantId, NOW, byUser)
        const after = Array.from({ length: 5 }, () => mint(store, refreshTokenHash))
        expect(await revoked).toBe('revoked')
        expect(await isGood(store, accessTokenHash)).toBe(false)
        expect((await mint(store, refreshTokenHash)).result).toBe('refused')
        for (const token of await Promise.all([...before, ...after])) {
          expect(await isGood(store, token.accessTokenHash)).toBe(false)
        }
      }
    },
  },
]
