import { expect } from 'vitest'
import type { TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { presented } from '../presented.js'
import {
  ACCESS_TTL,
  auditTrail,
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
  REFRESH_TTL,
  redeem,
  seed,
  startSession,
} from '../token-store-verbs.js'

const nothing = { codes: 0, accessTokens: 0, grants: 0, sessions: 0, auditEvents: 0 }

export const upkeepChecks: readonly Check<TokenStore>[] = [
  {
    title: 'codes and sessions that ended before the bound are removed, those that ended at it stay',
    async run(store) {
      await seed(store)
      await issue(store, 'code')
      await startSession(store, 'session', { expiresAtMs: NOW + CODE_TTL })
      const end = NOW + CODE_TTL
      const remove = (endedBeforeMs: number) => store.removeEnded({ endedBeforeMs, auditBeforeMs: 0, limit: 100 })
      expect(await remove(end)).toEqual(nothing)
      expect(await remove(end + 1)).toEqual({ ...nothing, codes: 1, sessions: 1 })
      expect(await issue(store, 'code')).toBe('issued')
      expect(await store.findSession(hashOf('session'))).toBeUndefined()
    },
  },
  {
    title: 'a used code stays until its own expiry, so that its replay still ends the grant',
    async run(store) {
      await seed(store)
      const { name, accessTokenHash } = await grant(store)
      await store.removeEnded({ endedBeforeMs: NOW + CODE_TTL, auditBeforeMs: 0, limit: 100 })
      const now = NOW + CODE_TTL - 1
      expect((await redeem(store, name, {}, now)).result).toEqual({ kind: 'refused', replay: 'revoked_grant' })
      expect(await isGood(store, accessTokenHash, now)).toBe(false)
    },
  },
  {
    title: 'a live grant and its live tokens are never removed',
    async run(store) {
      await seed(store)
      const { grantId, refreshTokenHash } = await grant(store)
      const now = NOW + REFRESH_TTL - 1
      const last = await mint(store, refreshTokenHash, {}, now)
      await store.removeEnded({ endedBeforeMs: now, auditBeforeMs: now, limit: 100 })
      expect(await findGrant(store, grantId)).toBeDefined()
      expect(await isGood(store, last.accessTokenHash, now)).toBe(true)
      expect((await mint(store, refreshTokenHash, {}, now)).result).toBe('minted')
    },
  },
  {
    title: 'a grant whose refresh token has expired stays as long as one of its access tokens lives',
    async run(store) {
      await seed(store)
      const { grantId, refreshTokenHash } = await grant(store)
      const mintedAt = NOW + REFRESH_TTL - 1
      const { accessTokenHash } = await mint(store, refreshTokenHash, {}, mintedAt)
      const lastGood = mintedAt + ACCESS_TTL - 1
      await store.removeEnded({ endedBeforeMs: lastGood, auditBeforeMs: 0, limit: 100 })
      expect(await isGood(store, accessTokenHash, lastGood)).toBe(true)
      await store.removeEnded({ endedBeforeMs: lastGood + 2, auditBeforeMs: 0, limit: 100 })
      expect(await findGrant(store, grantId)).toBeUndefined()
      expect(await store.findAccessToken(presented(accessTokenHash))).toBeUndefined()
    },
  },
  {
    title: 'a grant whose refresh token expired before the bound is removed; if it expired at the bound, it stays',
    async run(store) {
      await seed(store)
      const { grantId } = await grant(store)
      const remove = (endedBeforeMs: number) => store.removeEnded({ endedBeforeMs, auditBeforeMs: 0, limit: 100 })
      await remove(NOW + REFRESH_TTL)
      expect(await findGrant(store, grantId)).toBeDefined()
      await remove(NOW + REFRESH_TTL + 1)
      expect(await findGrant(store, grantId)).toBeUndefined()
    },
  },
  {
    title: 'a grant stays until all its access tokens ended before the bound, even if the last is not the newest',
    async run(store) {
      await seed(store)
      const { grantId, refreshTokenHash } = await grant(store, {}, { refreshTokenExpiresAtMs: NOW + 1 })
      await mint(store, refreshTokenHash, { lifetimeMs: 2, overlapMs: 9 })
      const remove = (endedBeforeMs: number) => store.removeEnded({ endedBeforeMs, auditBeforeMs: 0, limit: 100 })
      await remove(NOW + 9)
      expect(await findGrant(store, grantId)).toBeDefined()
      await remove(NOW + 10)
      expect(await findGrant(store, grantId)).toBeUndefined()
    },
  },
  {
    title: 'a grant revoked before the bound is removed with its tokens; one revoked at the bound stays',
    async run(store) {
      await seed(store)
      const { grantId, accessTokenHash, refreshTokenHash } = await grant(store)
      await mint(store, refreshTokenHash)
      await store.revokeGrant(grantId, NOW + 5, byUser)
      const remove = (endedBeforeMs: number) => store.removeEnded({ endedBeforeMs, auditBeforeMs: 0, limit: 100 })
      expect(await remove(NOW + 5)).toEqual(nothing)
      expect(await remove(NOW + 6)).toEqual({ ...nothing, grants: 1, accessTokens: 2 })
      expect(await store.findAccessToken(presented(accessTokenHash))).toBeUndefined()
      expect((await mint(store, refreshTokenHash)).result).toBe('refused')
    },
  },
  {
    title: 'a removal takes at most its limit of each kind, plus tokens of removed grants; repeated ones take all',
    async run(store) {
      await seed(store)
      for (let i = 0; i < 7; i++) {
        const { grantId, refreshTokenHash } = await grant(store)
        await mint(store, refreshTokenHash)
        await store.revokeGrant(grantId, NOW, byUser)
        await issue(store, `code ${i}`, { userId: 'user_bob' })
        await startSession(store, `session ${i}`)
      }
      const total = { ...nothing }
      for (let round = 0; round < 100; round++) {
        const bounds = { endedBeforeMs: NOW + 60 * DAY, auditBeforeMs: NOW + 60 * DAY, limit: 3 }
        const removed = await store.removeEnded(bounds)
        for (const table of Object.keys(nothing) as (keyof typeof nothing)[]) {
          expect(removed[table]).toBeLessThanOrEqual(table === 'accessTokens' ? 6 : 3) // a grant may take its two tokens along
          total[table] += removed[table]
        }
        if (Object.values(removed).every((count) => count === 0)) break
      }
      expect(total).toMatchObject({ codes: 14, grants: 7, accessTokens: 14, sessions: 7 })
      expect(await auditTrail(store)).toEqual([])
    },
  },
  {
    title: 'audit events before their bound are removed, those at it stay',
    async run(store) {
      await seed(store)
      await store.setAppDisabled('app1', true, NOW + 1, byOperator)
      const removed = await store.removeEnded({ endedBeforeMs: 0, auditBeforeMs: NOW + 1, limit: 100 })
      expect(removed).toEqual({ ...nothing, auditEvents: 6 })
      expect(await auditTrail(store)).toMatchObject([{ kind: 'app.disabled' }])
    },
  },
  {
    title: 'an openid outlives every grant',
    async run(store) {
      await seed(store)
      const { openid, grantId } = await grant(store)
      await store.revokeGrant(grantId, NOW, byUser)
      await store.removeEnded({ endedBeforeMs: NOW + 1, auditBeforeMs: 0, limit: 100 })
      expect((await grant(store)).openid).toBe(openid)
    },
  },
  {
    title: 'ping fulfils while the database answers, and finds no flaw',
    run: async (store) => expect(await store.ping()).toEqual([]),
  },
]
