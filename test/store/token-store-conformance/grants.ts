import { expect } from 'vitest'
import type { TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { presented } from '../presented.js'
import {
  ACCESS_TTL,
  allPages,
  appRow,
  auditKinds,
  auditTrail,
  byApp,
  byOperator,
  byUser,
  CODE_TTL,
  findGrant,
  GRACE,
  grant,
  hashOf,
  isGood,
  issue,
  MINUTE,
  mint,
  NOW,
  REFRESH_TTL,
  redeem,
  secretRow,
  seed,
  sessionOf,
  signIn,
  startSession,
  userRow,
} from '../token-store-verbs.js'

export const grantChecks: readonly Check<TokenStore>[] = [
  {
    title: 'a revocation holds as soon as it is acknowledged',
    async run(store) {
      await seed(store)
      const { grantId, accessTokenHash, refreshTokenHash } = await grant(store)
      const { accessTokenHash: minted } = await mint(store, refreshTokenHash)
      expect(await store.revokeGrant(grantId, NOW + 1, byOperator)).toBe('revoked')
      expect(await isGood(store, accessTokenHash)).toBe(false)
      expect(await isGood(store, minted)).toBe(false)
      expect((await mint(store, refreshTokenHash)).result).toBe('refused')
      expect(await store.revokeGrant(grantId, NOW + 2, byOperator)).toBe('already_revoked')
      expect(await findGrant(store, grantId)).toMatchObject({ revokedAtMs: NOW + 1 })
      expect((await auditKinds(store)).filter((kind) => kind === 'grant.revoked')).toHaveLength(1)
    },
  },
  {
    title: 'a revocation ends the unused codes of its app and user, and no others',
    async run(store) {
      await seed(store)
      const { grantId } = await grant(store)
      const second = await grant(store)
      await issue(store, 'unused')
      await issue(store, 'of bob', { userId: 'user_bob' })
      await issue(store, 'of app2', { appid: 'app2' })
      await store.revokeGrant(grantId, NOW, byUser)
      expect((await redeem(store, 'unused')).result).toEqual({ kind: 'refused', replay: 'none' })
      expect((await redeem(store, 'of bob')).result.kind).toBe('redeemed')
      expect((await redeem(store, 'of app2', { appid: 'app2' })).result.kind).toBe('redeemed')
      expect(await isGood(store, second.accessTokenHash)).toBe(true)
    },
  },
  {
    title: 'revoking a grant again does not end codes issued since it was first revoked',
    async run(store) {
      await seed(store)
      const { grantId } = await grant(store)
      await store.revokeGrant(grantId, NOW, byOperator)
      await issue(store, 'anew')
      expect(await store.revokeGrant(grantId, NOW + 1, byOperator)).toBe('already_revoked')
      expect((await redeem(store, 'anew')).result.kind).toBe('redeemed')
    },
  },
  {
    title: 'an exchange that races a revocation of an older grant either yields good tokens or is refused',
    async run(store) {
      await seed(store)
      for (let round = 0; round < 5; round++) {
        const { grantId } = await grant(store)
        await issue(store, `code ${round}`)
        const [revoked, redeemed] = await Promise.all([
          store.revokeGrant(grantId, NOW, byUser),
          redeem(store, `code ${round}`),
        ])
        expect(revoked).toBe('revoked')
        const isRedeemed = redeemed.result.kind === 'redeemed'
        expect(await isGood(store, redeemed.accessTokenHash)).toBe(isRedeemed)
        expect((await mint(store, redeemed.refreshTokenHash)).result).toBe(isRedeemed ? 'minted' : 'refused')
      }
    },
  },
  {
    title: "a user can disconnect an app only by a grant of their own; another user's is not found",
    async run(store) {
      await seed(store)
      const { grantId, accessTokenHash } = await grant(store)
      expect(await store.disconnectApp(grantId, 'user_bob', NOW, byUser)).toBe('not_found')
      expect(await store.disconnectApp('nothing', 'user_ann', NOW, byUser)).toBe('not_found')
      expect(await store.revokeGrant('nothing', NOW, byUser)).toBe('not_found')
      expect(await isGood(store, accessTokenHash)).toBe(true)
      expect(await store.disconnectApp(grantId, 'user_ann', NOW, byUser)).toBe('revoked')
      expect(await store.disconnectApp(grantId, 'user_bob', NOW, byUser)).toBe('not_found')
    },
  },
  {
    title: "disconnecting an app ends all of the user's grants and unused codes for it, and no others",
    async run(store) {
      await seed(store)
      const revoked = await grant(store)
      await store.revokeGrant(revoked.grantId, NOW, byOperator)
      const ended = [await grant(store), await grant(store), await grant(store)] as const
      const left = [await grant(store, { username: 'bob' }), await grant(store, { appid: 'app2' })]
      await issue(store, 'unused')
      await issue(store, 'of bob', { userId: 'user_bob' })
      expect(await store.disconnectApp(revoked.grantId, 'user_ann', NOW + 1, byUser)).toBe('revoked')
      for (const { grantId, accessTokenHash, refreshTokenHash } of ended) {
        expect(await isGood(store, accessTokenHash)).toBe(false)
        expect((await mint(store, refreshTokenHash)).result).toBe('refused')
        expect(await findGrant(store, grantId)).toMatchObject({ revokedAtMs: NOW + 1 })
      }
      for (const { accessTokenHash } of left) expect(await isGood(store, accessTokenHash)).toBe(true)
      expect((await redeem(store, 'unused')).result).toEqual({ kind: 'refused', replay: 'none' })
      expect((await redeem(store, 'of bob')).result.kind).toBe('redeemed')
      expect(await findGrant(store, revoked.grantId)).toMatchObject({ revokedAtMs: NOW })
      expect((await auditKinds(store)).filter((kind) => kind === 'grant.revoked')).toHaveLength(4)
      await issue(store, 'late')
      expect(await store.disconnectApp(ended[0].grantId, 'user_ann', NOW + 2, byUser)).toBe('already_revoked')
      expect((await redeem(store, 'late')).result).toEqual({ kind: 'refused', replay: 'none' })
    },
  },
  {
    title: 'an exchange that races a disconnection leaves no good token behind',
    async run(store) {
      await seed(store)
      for (let round = 0; round < 5; round++) {
        const { grantId } = await grant(store)
        for (let i = 0; i < 4; i++) await issue(store, `code ${round} ${i}`)
        const [disconnected, ...redeemed] = await Promise.all([
          store.disconnectApp(grantId, 'user_ann', NOW, byUser),
          ...[0, 1, 2, 3].map((i) => redeem(store, `code ${round} ${i}`)),
        ])
        expect(disconnected).toBe('revoked')
        for (const { accessTokenHash, refreshTokenHash } of redeemed) {
          expect(await isGood(store, accessTokenHash)).toBe(false)
          expect((await mint(store, refreshTokenHash)).result).toBe('refused')
        }
      }
    },
  },
  {
    title: 'grants are listed newest first and page without loss, even several of the same millisecond',
    async run(store) {
      await seed(store)
      const made = []
      for (let i = 0; i < 9; i++) made.push(await grant(store, {}, {}, NOW + Math.floor(i / 3)))
      const newestFirst = made
        .map((each, i) => ({ id: each.grantId, at: Math.floor(i / 3) }))
        .sort((a, b) => b.at - a.at || (a.id < b.id ? 1 : -1))
        .map(({ id }) => id)
      for (const limit of [1, 2, 3, 9, 100]) {
        const listed = await allPages((page) => store.listGrants({}, page), limit)
        expect(listed.map((row) => row.grantId)).toEqual(newestFirst)
      }
      expect((await store.listGrants({}, { limit: 9, after: undefined })).next).toBeUndefined()
    },
  },
  {
    title: 'lists of grants can be filtered by user, app and liveness, alone and combined',
    async run(store) {
      await seed(store)
      const annOn1 = await grant(store, { appid: 'app1', username: 'ann' }, {}, NOW)
      const annOn2 = await grant(store, { appid: 'app2', username: 'ann' }, {}, NOW + 1)
      const bobOn1 = await grant(store, { appid: 'app1', username: 'bob' }, {}, NOW + 2)
      const revoked = await grant(store, { appid: 'app1', username: 'ann' }, {}, NOW + 3)
      await store.revokeGrant(revoked.grantId, NOW + 4, byUser)
      const short = { refreshTokenExpiresAtMs: NOW + MINUTE }
      const expiring = await grant(store, { appid: 'app1', username: 'ann' }, short, NOW + 5)
      const list = async (filter: Parameters<TokenStore['listGrants']>[0]) => {
        const rows = await allPages((page) => store.listGrants(filter, page), 2)
        return rows.map((row) => row.grantId)
      }
      const ids = (...grants: { grantId: string }[]) => grants.map((each) => each.grantId)
      const userId = 'user_ann'
      const appid = 'app1'
      expect(await list({})).toEqual(ids(expiring, revoked, bobOn1, annOn2, annOn1))
      expect(await list({ userId })).toEqual(ids(expiring, revoked, annOn2, annOn1))
      expect(await list({ appid })).toEqual(ids(expiring, revoked, bobOn1, annOn1))
      expect(await list({ userId, appid })).toEqual(ids(expiring, revoked, annOn1))
      const end = NOW + 5 + ACCESS_TTL
      expect(await list({ userId, liveAtMs: end - 1 })).toEqual(ids(expiring, annOn2, annOn1))
      expect(await list({ userId, appid, liveAtMs: end })).toEqual(ids(annOn1))
      expect(await list({ userId, liveAtMs: NOW + REFRESH_TTL - 1 })).toEqual(ids(annOn2, annOn1))
      expect(await list({ userId, liveAtMs: NOW + REFRESH_TTL })).toEqual(ids(annOn2))
      expect(await list({ liveAtMs: end + REFRESH_TTL })).toEqual([])
      expect(await list({ userId: 'nobody' })).toEqual([])
    },
  },
  {
    title: 'a grant is live as long as its newest access token, even after its other tokens have ended',
    async run(store) {
      await seed(store)
      const { grantId, refreshTokenHash } = await grant(store)
      const lastDay = NOW + REFRESH_TTL - 1
      await mint(store, refreshTokenHash, {}, lastDay)
      const end = lastDay + ACCESS_TTL
      const liveAt = async (liveAtMs: number) =>
        (await store.listGrants({ userId: 'user_ann', liveAtMs }, { limit: 10, after: undefined })).rows
      expect(await liveAt(end - 1)).toMatchObject([{ grantId, accessExpiresAtMs: end }])
      expect(await liveAt(end)).toEqual([])
    },
  },
  {
    title: 'a last use is recorded only if it is later, and uses of unknown grants and secrets are ignored',
    async run(store) {
      await seed(store)
      const { grantId, accessTokenHash } = await grant(store)
      const record = (atMs: number) =>
        store.recordUses({
          grants: new Map([
            [grantId, atMs],
            ['nothing', atMs],
          ]),
          answers: new Map([
            [grantId, atMs + 1],
            ['nothing', atMs],
          ]),
          secrets: new Map([
            ['secret_app1_default', atMs],
            ['nothing', atMs],
          ]),
        })
      await record(NOW + 5)
      await record(NOW + 3)
      expect(await findGrant(store, grantId)).toMatchObject({ lastUsedAtMs: NOW + 5, answersReadAtMs: NOW + 6 })
      const token = await store.findAccessToken(presented(accessTokenHash))
      expect(token).toMatchObject({ grantLastUsedAtMs: NOW + 5, answersReadAtMs: NOW + 6 })
      expect(await store.listAppSecrets('app1')).toMatchObject([{ lastUsedAtMs: NOW + 5 }])
      await store.recordUses({ answers: new Map(), grants: new Map(), secrets: new Map() })
    },
  },
  {
    title: 'audit events are listed newest first, can be filtered by app and user, and page without loss',
    async run(store) {
      await seed(store)
      await grant(store)
      await grant(store, { appid: 'app2', username: 'ann' })
      await grant(store, { appid: 'app1', username: 'bob' })
      const trail = await auditTrail(store)
      expect(trail.map((event) => event.kind)).toEqual([
        ...['app.created', 'app.created', 'user.created', 'session.started', 'user.created', 'session.started'],
        ...['code.issued', 'code.exchanged', 'code.issued', 'code.exchanged', 'code.issued', 'code.exchanged'],
      ])
      expect(new Set(trail.map((event) => event.eventId)).size).toBe(trail.length)
      const newestFirst = [...trail].reverse()
      for (const limit of [1, 3, 10]) {
        expect(await allPages((page) => store.listAuditEvents({}, page), limit)).toEqual(newestFirst)
      }
      for (const filter of [{ appid: 'app1' }, { userId: 'user_ann' }, { appid: 'app1', userId: 'user_ann' }]) {
        const expected = trail.filter((event) => Object.entries(filter).every(([k, v]) => event[k as 'appid'] === v))
        expect(expected.length).toBeGreaterThan(0)
        expect(await auditTrail(store, filter)).toEqual(expected)
      }
    },
  },
  {
    title: 'the events of an exchange that revokes several grants page without loss',
    async run(store) {
      await seed(store)
      for (let i = 0; i < 3; i++) await grant(store)
      await grant(store, {}, { maxGrants: 1 })
      const trail = await auditTrail(store)
      expect(trail.filter(({ kind }) => kind === 'grant.revoked')).toHaveLength(3)
      expect(await allPages((page) => store.listAuditEvents({}, page), 1)).toEqual(trail.reverse())
    },
  },
  {
    title: 'each event says whom it concerns and why it happened',
    async run(store) {
      const story = async (...steps: readonly (() => Promise<unknown>)[]) => {
        for (const step of steps) await step()
        return (await auditTrail(store)).map((event) => [
          event.kind,
          event.appid,
          event.userId,
          event.grantId,
          event.note,
        ])
      }
      const [ann, app1] = ['user_ann', 'app1']
      const beginnings = await story(() => seed(store))
      expect(beginnings.filter(([, appid, userId]) => [appid, userId].join('') !== '')).toEqual([
        ...['app1', 'app2'].map((appid) => ['app.created', appid, '', '', `App ${appid}`]),
        ...['ann', 'bob'].flatMap((name) => [
          ['user.created', '', `user_${name}`, '', name],
          ['session.started', '', `user_${name}`, '', 'by password'],
        ]),
      ])

      const { redirectUris } = appRow('app1')
      const ofApp = await story(
        () =>
          store.updateApp(
            'app1',
            { name: 'New', redirectUris: [...redirectUris, 'https://new.example/'] },
            NOW,
            byOperator,
          ),
        () => store.addAppSecret(secretRow('app1', 'second'), NOW, byOperator),
        () => store.revokeAppSecret('app1', 'secret_app1_second', NOW, byOperator),
      )
      expect(ofApp.slice(beginnings.length)).toEqual([
        ['app.updated', app1, '', '', 'name, redirect_uris'],
        ['secret.added', app1, '', '', 'secret_app1_second second'],
        ['secret.revoked', app1, '', '', 'secret_app1_second second'],
      ])

      const ofSessions = await story(
        () => store.endSession(sessionOf('user_ann'), NOW, byUser),
        () => startSession(store, 'first'),
        () => startSession(store, 'second', { previousSessionHash: hashOf('first') }),
        () => startSession(store, 'third', { maxLive: 1 }),
        () => store.endSession(hashOf('third'), NOW, byUser),
        () => store.setUserPassword('user_ann', userRow('ann').passwordHash, NOW, byOperator),
        () =>
          store.updateUser(
            'user_ann',
            { nickname: userRow('ann').nickname, avatar: 'https://new.example/' },
            NOW,
            byOperator,
          ),
        () => store.updateUser('user_ann', { nickname: 'New', avatar: '' }, NOW, byOperator),
      )
      expect(ofSessions.slice(ofApp.length)).toEqual([
        ['session.ended', '', ann, '', 'signed out'],
        ['session.started', '', ann, '', 'by password'],
        ['session.ended', '', ann, '', 'signed in again'],
        ['session.started', '', ann, '', 'by password'],
        ['session.ended', '', ann, '', 'too many sessions'],
        ['session.started', '', ann, '', 'by password'],
        ['session.ended', '', ann, '', 'signed out'],
        ['user.password_set', '', ann, '', ''],
        ['user.updated', '', ann, '', 'avatar'],
        ['user.updated', '', ann, '', 'nickname, avatar'],
      ])

      const grantId = (name: string) => ({ grantId: `grant of ${name}` })
      const ofCodes = await story(
        () => signIn(store, userRow('ann')),
        ...['replayed', 'surplus', 'last'].map((name) => () => issue(store, name)),
        () => redeem(store, 'replayed', grantId('replayed')),
        () => redeem(store, 'replayed', {}, NOW + GRACE - 1),
        () => redeem(store, 'replayed', {}, NOW + GRACE),
        () => redeem(store, 'replayed', {}, NOW + GRACE + 1),
        () => redeem(store, 'replayed', {}, NOW + CODE_TTL),
        () => redeem(store, 'surplus', grantId('surplus')),
        () => redeem(store, 'last', { ...grantId('last'), maxGrants: 1 }),
        () => store.revokeGrant('grant of last', NOW, byOperator),
      )
      const [replayed, surplus, last] = ['grant of replayed', 'grant of surplus', 'grant of last']
      // by their order of making: those of later times are sorted behind on PostgreSQL
      expect(ofCodes.slice(ofSessions.length).map(String).sort()).toEqual(
        [
          ['session.started', '', ann, '', 'by password'],
          ...Array.from({ length: 3 }, () => ['code.issued', app1, ann, '', '']),
          ...[replayed, surplus, last].map((id) => ['code.exchanged', app1, ann, id, '']),
          ['code.replayed', app1, ann, replayed, 'within the grace: forgiven'],
          ['code.replayed', app1, ann, replayed, 'ends the grant'],
          ['code.replayed', app1, ann, replayed, 'the grant had already ended'],
          ['grant.revoked', app1, ann, replayed, 'its code was replayed'],
          ['code.replayed', app1, ann, replayed, 'after its expiry: without effect'],
          ['grant.revoked', app1, ann, surplus, 'too many grants of one user to one app'],
          ['grant.revoked', app1, ann, last, ''],
        ]
          .map(String)
          .sort(),
      )
    },
  },
  {
    title: 'an operation that changes nothing leaves no event',
    async run(store) {
      await seed(store)
      const before = await auditKinds(store)
      await redeem(store, 'unknown')
      await mint(store, new Uint8Array(32))
      await store.revokeGrant('nothing', NOW, byApp)
      await store.setUserPassword('user_nobody', 'x', NOW, byOperator)
      await store.updateApp('app1', { name: 'App app1', requiresSecretOnRefresh: false }, NOW, byOperator)
      await store.setAppDisabled('app1', false, NOW, byOperator)
      await store.updateUser('user_ann', { nickname: userRow('ann').nickname }, NOW, byOperator)
      await store.updateUser('user_nobody', { nickname: 'New' }, NOW, byOperator)
      await store.deleteUser('user_nobody', NOW, byOperator)
      await store.deleteUser('user_ann', NOW, byOperator)
      await store.setUserDisabled('user_ann', false, NOW, byOperator)
      await store.disconnectApp('nothing', 'user_ann', NOW, byUser)
      await store.endSession(hashOf('nothing'), NOW, byUser)
      await store.removeEnded({ endedBeforeMs: NOW, auditBeforeMs: 0, limit: 10 })
      expect(await auditKinds(store)).toEqual(before)
    },
  },
]
