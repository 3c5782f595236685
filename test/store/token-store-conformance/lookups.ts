import { expect } from 'vitest'
import type { TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { presented } from '../presented.js'
import {
  byOperator,
  byUser,
  CODE_TTL,
  findGrant,
  GRACE,
  grant,
  isGood,
  mint,
  NOW,
  redeem,
  seed,
} from '../token-store-verbs.js'

type Granted = Awaited<ReturnType<typeof grant>>

/** Everything that ends or changes tokens, and what a lookup of a token looked up before must then return. */
const changes: readonly {
  readonly title: string
  readonly change: (store: TokenStore, granted: Granted) => Promise<unknown>
  readonly at?: number
  readonly isGoodAfter?: boolean
}[] = [
  { title: 'its grant is revoked', change: (store, { grantId }) => store.revokeGrant(grantId, NOW, byUser) },
  {
    title: 'a refresh without overlap replaces it',
    change: (store, { refreshTokenHash }) => mint(store, refreshTokenHash, { overlapMs: 0 }),
  },
  {
    title: 'a refresh keeps only the newest token',
    change: (store, { refreshTokenHash }) => mint(store, refreshTokenHash, { overlapMs: 0 }),
  },
  {
    title: 'its code is replayed after the grace',
    change: (store, { name }) => redeem(store, name, {}, NOW + GRACE),
    at: NOW + GRACE,
  },
  { title: 'its grant is revoked by the cap on grants', change: (store) => grant(store, {}, { maxGrants: 1 }) },
  { title: 'its app is disabled', change: (store) => store.setAppDisabled('app1', true, NOW, byOperator) },
  { title: 'its user is disabled', change: (store) => store.setUserDisabled('user_ann', true, NOW, byOperator) },
  {
    title: 'its app is disabled and enabled again',
    async change(store) {
      await store.setAppDisabled('app1', true, NOW, byOperator)
      await store.setAppDisabled('app1', false, NOW, byOperator)
    },
    isGoodAfter: true,
  },
  {
    title: 'another grant is revoked',
    async change(store) {
      const other = await grant(store, { username: 'bob' })
      await store.revokeGrant(other.grantId, NOW, byUser)
    },
    isGoodAfter: true,
  },
]

export const lookupChecks: readonly Check<TokenStore>[] = [
  ...changes.map(({ title, change, at = NOW, isGoodAfter = false }) => ({
    title: `a token looked up before is ${isGoodAfter ? 'still' : 'no longer'} good once ${title}`,
    async run(store: TokenStore) {
      await seed(store)
      const granted = await grant(store)
      for (let i = 0; i < 3; i++) expect(await isGood(store, granted.accessTokenHash, at)).toBe(true)
      await change(store, granted)
      for (let i = 0; i < 3; i++) expect(await isGood(store, granted.accessTokenHash, at)).toBe(isGoodAfter)
    },
  })),
  {
    title: 'a token looked up before knows that its app may not read answers any more, and that it may again',
    async run(store) {
      await seed(store)
      const { accessTokenHash } = await grant(store, { permissions: 'read_answers' })
      const other = await grant(store, { appid: 'app2', permissions: 'read_answers' })
      for (const appReadsAnswers of [true, false, true]) {
        await store.updateApp('app1', { readsAnswers: appReadsAnswers }, NOW, byOperator)
        const found = { permissions: 'read_answers', appReadsAnswers }
        expect(await store.findAccessToken(presented(accessTokenHash))).toMatchObject(found)
        const ofOther = await store.findAccessToken(presented(other.accessTokenHash))
        expect(ofOther).toMatchObject({ appReadsAnswers: false })
      }
    },
  },
  {
    title: 'after a refresh, a token looked up before expires with the overlap',
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      await store.findAccessToken(presented(accessTokenHash))
      await mint(store, refreshTokenHash, { overlapMs: 1_000 })
      expect((await store.findAccessToken(presented(accessTokenHash)))?.expiresAtMs).toBe(NOW + 1_000)
    },
  },
  {
    title: 'a use of its grant shows on a token looked up before',
    async run(store) {
      await seed(store)
      const { grantId, accessTokenHash } = await grant(store)
      await store.findAccessToken(presented(accessTokenHash))
      await store.recordUses({ answers: new Map(), grants: new Map([[grantId, NOW + 5]]), secrets: new Map() })
      expect((await store.findAccessToken(presented(accessTokenHash)))?.grantLastUsedAtMs).toBe(NOW + 5)
      expect((await findGrant(store, grantId))?.lastUsedAtMs).toBe(NOW + 5)
    },
  },
  {
    title: 'a token looked up before is not found once it has been removed',
    async run(store) {
      await seed(store)
      const { accessTokenHash } = await grant(store)
      await store.findAccessToken(presented(accessTokenHash))
      const longAfter = NOW + 1_000 * CODE_TTL * 1_000
      await store.removeEnded({ endedBeforeMs: longAfter, auditBeforeMs: 0, limit: 100 })
      expect(await store.findAccessToken(presented(accessTokenHash))).toBeUndefined()
    },
  },
]
