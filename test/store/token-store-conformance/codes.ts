import { expect } from 'vitest'
import type { TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { presented } from '../presented.js'
import {
  auditKinds,
  auditTrail,
  byApp,
  byOperator,
  byUser,
  CODE_TTL,
  findGrant,
  GRACE,
  grant,
  isGood,
  issue,
  MINUTE,
  mint,
  NOW,
  redeem,
  redemption,
  saidOf,
  seed,
  signIn,
  userRow,
} from '../token-store-verbs.js'

async function disableAndEnable(setDisabled: (isDisabled: boolean) => Promise<unknown>): Promise<void> {
  for (const isDisabled of [true, false]) await setDisabled(isDisabled)
}

const refused = { kind: 'refused', replay: 'none' }

export const codeChecks: readonly Check<TokenStore>[] = [
  {
    title: 'a code is exchanged for a grant, an access token, a refresh token and an openid',
    async run(store) {
      await seed(store)
      expect(await issue(store, 'code')).toBe('issued')
      const redeemed = await redeem(store, 'code', { newOpenid: 'o1' }, NOW + 7)
      expect(redeemed.result).toEqual({ kind: 'redeemed', openid: 'o1' })
      const { grantId } = redeemed
      expect(await store.findAccessToken(presented(redeemed.accessTokenHash))).toEqual({
        grantId,
        appid: 'app1',
        userId: 'user_ann',
        openid: 'o1',
        scope: 'snsapi_user',
        externalId: '',
        nickname: 'Nick ann',
        avatar: 'https://img.example/ann.png',
        expiresAtMs: redeemed.accessTokenExpiresAtMs,
        grantLastUsedAtMs: NOW + 7,
        permissions: '',
        appReadsAnswers: false,
        answersReadAtMs: 0,
        isRevoked: false,
      })
      expect(await findGrant(store, grantId)).toEqual({
        grantId,
        appid: 'app1',
        appName: 'App app1',
        userId: 'user_ann',
        username: 'ann',
        externalId: '',
        openid: 'o1',
        scope: 'snsapi_user',
        permissions: '',
        consentVersion: 'abc',
        createdAtMs: NOW + 7,
        lastUsedAtMs: NOW + 7,
        answersReadAtMs: 0,
        expiresAtMs: redeemed.refreshTokenExpiresAtMs,
        accessExpiresAtMs: redeemed.accessTokenExpiresAtMs,
        revokedAtMs: undefined,
      })
      expect((await mint(store, redeemed.refreshTokenHash, {}, NOW + 8)).result).toBe('minted')
      const about = { appid: 'app1', userId: 'user_ann' }
      expect((await auditTrail(store, { userId: 'user_ann' })).slice(2)).toMatchObject([
        { kind: 'code.issued', ...saidOf(byUser), ...about, grantId: '', atMs: NOW },
        { kind: 'code.exchanged', ...saidOf(byApp), ...about, grantId, atMs: NOW + 7 },
        { kind: 'token.refreshed', ...saidOf(byApp), ...about, grantId, atMs: NOW + 8 },
      ])
    },
  },
  {
    title: 'of 200 concurrent exchanges of one code exactly one succeeds, and only its tokens exist',
    async run(store) {
      await seed(store)
      await issue(store, 'code')
      const tries = await Promise.all(Array.from({ length: 200 }, () => redeem(store, 'code')))
      const won = tries.filter(({ result }) => result.kind === 'redeemed')
      expect(won).toHaveLength(1)
      const lost = tries.filter(({ result }) => result.kind !== 'redeemed')
      for (const { result } of lost) expect(result).toEqual({ kind: 'refused', replay: 'forgiven' })
      const found = await Promise.all(tries.map((each) => store.findAccessToken(presented(each.accessTokenHash))))
      expect(found.filter((token) => token !== undefined)).toMatchObject([{ grantId: won[0]?.grantId }])
      expect((await store.listGrants({}, { limit: 10, after: undefined })).rows).toHaveLength(1)
      const minted = await Promise.all(lost.slice(0, 20).map((each) => mint(store, each.refreshTokenHash)))
      expect(minted.every(({ result }) => result === 'refused')).toBe(true)
    },
  },
  {
    title: 'a code is good until 1 ms before its expiry',
    async run(store) {
      await seed(store)
      for (const [offset, kind] of [
        [-1, 'redeemed'],
        [0, 'refused'],
        [1, 'refused'],
      ] as const) {
        await issue(store, `code ${offset}`)
        expect((await redeem(store, `code ${offset}`, {}, NOW + CODE_TTL + offset)).result.kind).toBe(kind)
      }
    },
  },
  {
    title: 'every refused exchange leaves the code as it was',
    async run(store) {
      await seed(store)
      await issue(store, 'code')
      await store.revokeAppSecret('app2', 'secret_app2_default', NOW, byOperator)
      expect((await redeem(store, 'unknown')).result).toEqual(refused)
      expect((await redeem(store, 'code', { redirectUri: 'https://app1.example/callback/' })).result).toEqual(refused)
      expect((await redeem(store, 'code', { secretId: 'nothing' })).result).toEqual({ kind: 'secret_ended' })
      expect((await redeem(store, 'code', { appid: 'nobody' })).result).toEqual({ kind: 'app_ended' })
      expect((await redeem(store, 'code', { appid: 'app2' })).result).toEqual({ kind: 'secret_ended' })
      expect((await redeem(store, 'code', {}, NOW + CODE_TTL)).result).toEqual(refused)
      const redirectUri = 'https://app1.example/callback'
      expect((await redeem(store, 'code', { redirectUri })).result.kind).toBe('redeemed')
    },
  },
  {
    title: 'a code with a code_challenge is exchanged with that only, and one without is not exchanged with any',
    async run(store) {
      await seed(store)
      const codeChallenge = 'challenge'.padEnd(43, '-')
      const other = 'other'.padEnd(43, '-')
      await issue(store, 'code', { codeChallenge })
      expect(await issue(store, 'code', { codeChallenge })).toBe('exists_live')
      await issue(store, 'plain code')
      expect((await redeem(store, 'code')).result).toEqual(refused)
      expect((await redeem(store, 'code', { codeChallenge: other })).result).toEqual(refused)
      expect((await redeem(store, 'plain code', { codeChallenge })).result).toEqual(refused)
      expect((await redeem(store, 'code', { codeChallenge })).result.kind).toBe('redeemed')
      expect((await redeem(store, 'plain code')).result.kind).toBe('redeemed')
      expect((await redeem(store, 'code', { codeChallenge: other })).result).toMatchObject({ replay: 'forgiven' })
    },
  },
  {
    title: 'a grant permits what its own code was issued for, whatever other grants of the user and the app have',
    async run(store) {
      await seed(store)
      const before = await grant(store, { consentVersion: 'old' })
      await store.updateApp('app1', { readsAnswers: true }, NOW, byOperator)
      const consented = await grant(store, { permissions: 'read_answers', consentVersion: 'new' })
      const after = await grant(store, { consentVersion: 'newer' })
      for (const [{ grantId, accessTokenHash, refreshTokenHash }, permissions, consentVersion] of [
        [before, '', 'old'],
        [consented, 'read_answers', 'new'],
        [after, '', 'newer'],
      ] as const) {
        const refreshed = await mint(store, refreshTokenHash)
        for (const hash of [accessTokenHash, refreshed.accessTokenHash]) {
          expect(await store.findAccessToken(presented(hash))).toMatchObject({ permissions, appReadsAnswers: true })
        }
        expect(await findGrant(store, grantId)).toMatchObject({ permissions, consentVersion })
      }
      const notes = (await auditTrail(store)).flatMap(({ kind, note }) => (kind === 'code.issued' ? [note] : []))
      expect(notes).toEqual(['', 'read_answers, as worded in new', ''])
    },
  },
  {
    title: "another app's code is refused as unknown, used or not, and trying it ends no grant",
    async run(store) {
      await seed(store)
      await issue(store, 'code')
      expect((await redeem(store, 'code', { appid: 'app2' })).result).toEqual(refused)
      const { accessTokenHash } = await redeem(store, 'code')
      const later = NOW + GRACE + 1
      expect((await redeem(store, 'code', { appid: 'app2' }, later)).result).toEqual(refused)
      expect(await isGood(store, accessTokenHash, later)).toBe(true)
      expect(await auditKinds(store, { appid: 'app2' })).not.toContain('code.replayed')
    },
  },
  {
    title: 'a code whose exchange failed halfway can be exchanged again',
    async run(store) {
      await seed(store)
      const { grantId } = await grant(store)
      await issue(store, 'code')
      await expect(store.redeemCode(redemption('code', { grantId }), NOW, byApp)).rejects.toThrow() // id is taken
      expect((await redeem(store, 'code')).result.kind).toBe('redeemed')
    },
  },
  {
    title: 'a replay is forgiven until 1 ms before the grace ends, then it ends the grant',
    async run(store) {
      await seed(store)
      const exchangedAt = NOW + 1000
      for (const [offset, replay] of [
        [-1, 'forgiven'],
        [0, 'revoked_grant'],
        [1, 'revoked_grant'],
      ] as const) {
        await issue(store, `code ${offset}`)
        const { accessTokenHash, refreshTokenHash } = await redeem(store, `code ${offset}`, {}, exchangedAt)
        const now = exchangedAt + GRACE + offset
        expect((await redeem(store, `code ${offset}`, {}, now)).result).toEqual({ kind: 'refused', replay })
        expect(await isGood(store, accessTokenHash, now)).toBe(replay === 'forgiven')
        expect((await mint(store, refreshTokenHash, {}, now)).result).toBe(replay === 'forgiven' ? 'minted' : 'refused')
      }
      const kinds = await auditKinds(store)
      expect(kinds.filter((kind) => kind === 'code.replayed')).toHaveLength(3)
      expect(kinds.filter((kind) => kind === 'grant.revoked')).toHaveLength(2)
    },
  },
  {
    title: 'without a grace period the first replay ends the grant, and the next does not end it again',
    async run(store) {
      await seed(store)
      const { name, grantId, accessTokenHash } = await grant(store)
      for (const [now, replay] of [
        [NOW, 'revoked_grant'],
        [NOW + 1, 'already_revoked'],
      ] as const) {
        const again = await redeem(store, name, { replayGraceMs: 0 }, now)
        expect(again.result).toEqual({ kind: 'refused', replay })
        expect(await isGood(store, accessTokenHash)).toBe(false)
        expect(await findGrant(store, grantId)).toMatchObject({ revokedAtMs: NOW })
      }
      const kinds = await auditKinds(store)
      expect(kinds.filter((kind) => kind === 'code.replayed')).toHaveLength(2)
      expect(kinds.filter((kind) => kind === 'grant.revoked')).toHaveLength(1)
    },
  },
  {
    title: 'of concurrent replays exactly one ends the grant, or none if its user had ended it already',
    async run(store) {
      await seed(store)
      const ended = await grant(store)
      await store.disconnectApp(ended.grantId, 'user_ann', NOW, byUser)
      const live = await grant(store)
      for (const [{ name, grantId }, ends] of [
        [ended, 0],
        [live, 1],
      ] as const) {
        const replays = await Promise.all(Array.from({ length: 8 }, () => redeem(store, name, {}, NOW + GRACE)))
        const effects = replays.map(({ result }) => result.kind === 'refused' && result.replay)
        const expected = Array.from({ length: 8 }, (_, n) => (n < ends ? 'revoked_grant' : 'already_revoked'))
        expect(effects.sort().reverse()).toEqual(expected)
        const trail = await auditTrail(store, { appid: 'app1' })
        const notes = trail.filter((event) => event.kind === 'code.replayed' && event.grantId === grantId)
        expect(notes.map(({ note }) => note).sort()).toEqual(
          Array.from({ length: 8 }, (_, n) => (n < ends ? 'ends the grant' : 'the grant had already ended')),
        )
      }
    },
  },
  {
    title: "a replay after the code's own expiry ends nothing",
    async run(store) {
      await seed(store)
      const { name, accessTokenHash } = await grant(store)
      const now = NOW + CODE_TTL
      expect((await redeem(store, name, {}, now)).result).toEqual({ kind: 'refused', replay: 'too_late' })
      expect(await isGood(store, accessTokenHash, now)).toBe(true)
      expect((await redeem(store, name, {}, now - 1)).result).toEqual({ kind: 'refused', replay: 'revoked_grant' })
    },
  },
  {
    title: 'a replay without a valid secret ends nothing',
    async run(store) {
      await seed(store)
      const { name, accessTokenHash } = await grant(store)
      const now = NOW + GRACE + 1
      expect((await redeem(store, name, { secretId: 'nothing' }, now)).result).toEqual({ kind: 'secret_ended' })
      expect(await isGood(store, accessTokenHash, now)).toBe(true)
    },
  },
  {
    title: 'a replay ends the grant of its own code only',
    async run(store) {
      await seed(store)
      const first = await grant(store)
      const second = await grant(store)
      await redeem(store, first.name, {}, NOW + GRACE)
      expect(await isGood(store, first.accessTokenHash)).toBe(false)
      expect(await isGood(store, second.accessTokenHash)).toBe(true)
    },
  },
  {
    title: 'issuing an existing code reports whether it is live or ended, and does not change it',
    async run(store) {
      await seed(store)
      expect(await issue(store, 'code')).toBe('issued')
      expect(await issue(store, 'code', {}, NOW + MINUTE)).toBe('exists_live')
      expect(await issue(store, 'code', {}, NOW + CODE_TTL - 1)).toBe('exists_live')
      expect(await issue(store, 'code', {}, NOW + CODE_TTL)).toBe('exists_ended')
      await issue(store, 'used')
      await redeem(store, 'used')
      expect(await issue(store, 'used')).toBe('exists_ended')
      expect((await auditKinds(store)).filter((kind) => kind === 'code.issued')).toHaveLength(2)
    },
  },
  {
    title: 'an ended code is neither issued nor redeemed again, even after the clock is set back by a minute',
    async run(store) {
      await seed(store)
      const { grantId } = await grant(store)
      const other = await grant(store)
      const endings: Record<string, () => Promise<unknown>> = {
        'by a revocation': () => store.revokeGrant(grantId, NOW, byUser),
        'by a disconnection': () => store.disconnectApp(other.grantId, 'user_ann', NOW, byUser),
        'by a newer one': () => issue(store, 'newer', { maxLive: 1 }, NOW + 1),
        'with its app': () =>
          disableAndEnable((isDisabled) => store.setAppDisabled('app1', isDisabled, NOW, byOperator)),
        'with its user': () =>
          disableAndEnable((isDisabled) => store.setUserDisabled('user_ann', isDisabled, NOW, byOperator)),
        'by a new password': () => store.setUserPassword('user_ann', userRow('ann').passwordHash, NOW, byOperator),
      }
      for (const [how, end] of Object.entries(endings)) {
        await issue(store, how)
        await end()
        await signIn(store, userRow('ann')) // the last two end the session as well
        await store.removeEnded({ endedBeforeMs: NOW - MINUTE, auditBeforeMs: 0, limit: 100 })
        for (const now of [NOW - MINUTE, NOW - 1, NOW]) {
          expect([how, await issue(store, how, {}, now)]).toEqual([how, 'exists_ended'])
          expect([how, (await redeem(store, how, {}, now)).result]).toEqual([how, refused])
        }
      }
      const { codes } = await store.removeEnded({ endedBeforeMs: NOW, auditBeforeMs: 0, limit: 100 })
      expect(codes).toBe(Object.keys(endings).length + 1) // the newer one was ended with its app
    },
  },
  {
    title: 'of many concurrent issues of one code exactly one creates it',
    async run(store) {
      await seed(store)
      const outcomes = await Promise.all(Array.from({ length: 20 }, () => issue(store, 'code')))
      expect(outcomes.filter((outcome) => outcome === 'issued')).toHaveLength(1)
      expect(outcomes.filter((outcome) => outcome === 'exists_live')).toHaveLength(19)
    },
  },
  {
    title: 'no code is issued for an app or a user that does not exist',
    async run(store) {
      await seed(store)
      expect(await issue(store, 'code', { appid: 'nobody' })).toBe('app_ended')
      expect(await issue(store, 'code', { userId: 'nobody' })).toBe('session_ended')
    },
  },
  {
    title: 'a user keeps only the newest unused codes for an app, up to the cap',
    async run(store) {
      await seed(store)
      await issue(store, 'of bob', { userId: 'user_bob' })
      await issue(store, 'of app2', { appid: 'app2' })
      for (let i = 0; i < 4; i++) await issue(store, `code ${i}`, { maxLive: 2 }, NOW + i)
      const kinds = []
      for (let i = 0; i < 4; i++) kinds.push((await redeem(store, `code ${i}`, {}, NOW + 4)).result.kind)
      expect(kinds).toEqual(['refused', 'refused', 'redeemed', 'redeemed'])
      expect((await redeem(store, 'of bob')).result.kind).toBe('redeemed')
      expect((await redeem(store, 'of app2', { appid: 'app2' })).result.kind).toBe('redeemed')
    },
  },
  {
    title: 'openids are the same for every grant of an app and user, and differ between apps and users',
    async run(store) {
      await seed(store)
      const first = await grant(store)
      const second = await grant(store)
      const app2 = await grant(store, { appid: 'app2' })
      const bob = await grant(store, { username: 'bob' })
      expect(second.openid).toBe(first.openid)
      expect(new Set([first.openid, app2.openid, bob.openid]).size).toBe(3)
      await store.revokeGrant(first.grantId, NOW, byUser)
      expect((await grant(store)).openid).toBe(first.openid)
    },
  },
  {
    title: 'concurrent first exchanges of one user agree on the openid',
    async run(store) {
      await seed(store)
      const granted = await Promise.all(Array.from({ length: 10 }, () => grant(store)))
      expect(new Set(granted.map(({ openid }) => openid)).size).toBe(1)
    },
  },
  {
    title: 'a user keeps only the newest live grants for an app, up to the cap, and older ones are revoked',
    async run(store) {
      await seed(store)
      const other = await grant(store, { appid: 'app2' })
      const granted = []
      for (let i = 0; i < 4; i++) granted.push(await grant(store, {}, { maxGrants: 2 }, NOW + i))
      const good = await Promise.all(granted.map((each) => isGood(store, each.accessTokenHash, NOW + 4)))
      expect(good).toEqual([false, false, true, true])
      expect(await isGood(store, other.accessTokenHash)).toBe(true)
      expect((await auditKinds(store)).filter((kind) => kind === 'grant.revoked')).toHaveLength(2)
    },
  },
  {
    title: 'the oldest grant is the one whose code was exchanged first, whenever that was issued',
    async run(store) {
      await seed(store)
      for (const [at, name] of ['first', 'second'].entries()) await issue(store, name, {}, NOW + at)
      const oldest = await redeem(store, 'second', {}, NOW + 2)
      const next = await redeem(store, 'first', {}, NOW + 3)
      const newest = await grant(store, {}, { maxGrants: 2 }, NOW + 4)
      const all = [newest, next, oldest]
      const good = await Promise.all(all.map((each) => isGood(store, each.accessTokenHash, NOW + 4)))
      expect(good).toEqual([true, true, false])
      const { rows } = await store.listGrants({ userId: 'user_ann' }, { limit: 3, after: undefined })
      expect(rows.map(({ grantId }) => grantId)).toEqual(all.map(({ grantId }) => grantId))
    },
  },
  {
    title: 'a clock that is minutes ahead for a while ends no code',
    async run(store) {
      await seed(store)
      await issue(store, 'good')
      await issue(store, 'ahead', {}, NOW + 10 * MINUTE)
      expect((await redeem(store, 'good', {}, NOW + 1000)).result.kind).toBe('redeemed')
    },
  },
  {
    title: 'used and expired codes do not count towards the cap on unused codes',
    async run(store) {
      await seed(store)
      await issue(store, 'first')
      await issue(store, 'used', {}, NOW + 1)
      await redeem(store, 'used', {}, NOW + 1)
      await issue(store, 'short', { expiresAtMs: NOW + 4, maxLive: 2 }, NOW + 2)
      await issue(store, 'last', { maxLive: 2 }, NOW + 4)
      for (const name of ['first', 'last'])
        expect((await redeem(store, name, {}, NOW + 5)).result.kind).toBe('redeemed')
    },
  },
  {
    title: 'revoked and expired grants do not count towards the cap on grants',
    async run(store) {
      await seed(store)
      const first = await grant(store)
      const revoked = await grant(store, {}, {}, NOW + 1)
      await store.revokeGrant(revoked.grantId, NOW + 1, byUser)
      await grant(store, {}, { refreshTokenExpiresAtMs: NOW + 4, maxGrants: 2 }, NOW + 2)
      const last = await grant(store, {}, { maxGrants: 2 }, NOW + 4)
      for (const { accessTokenHash } of [first, last]) expect(await isGood(store, accessTokenHash, NOW + 5)).toBe(true)
      expect((await auditKinds(store)).filter((kind) => kind === 'grant.revoked')).toHaveLength(1)
    },
  },
]
