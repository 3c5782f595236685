import { expect } from 'vitest'
import type { TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { presented } from '../presented.js'
import {
  allPages,
  auditKinds,
  auditTrail,
  byOperator,
  byUser,
  DAY,
  GRACE,
  grant,
  hashOf,
  isGood,
  issue,
  mint,
  NOW,
  redeem,
  saidOf,
  seed,
  sessionOf,
  signIn,
  startSession,
  userRow,
} from '../token-store-verbs.js'

export const accountChecks: readonly Check<TokenStore>[] = [
  {
    title: 'a user is found as created, and a username can be taken only once',
    async run(store) {
      const ann = userRow('ann', { nickname: '安 🦊', avatar: '' })
      expect(await store.createUser(ann, byOperator)).toBe('created')
      expect(await store.createUser(userRow('ann', { userId: 'another' }), byOperator)).toBe('username_taken')
      expect(await store.findUser('ann')).toEqual(ann)
      expect(await auditKinds(store)).toEqual(['user.created'])
    },
  },
  {
    title: 'of many concurrent requests for one username exactly one gets it',
    async run(store) {
      const tries = Array.from({ length: 20 }, (_, i) => store.createUser(userRow('ann', { userId: `u${i}` }), byUser))
      const outcomes = await Promise.all(tries)
      expect(outcomes.filter((outcome) => outcome === 'created')).toHaveLength(1)
    },
  },
  {
    title: 'lists of users ascend by username and page without loss',
    async run(store) {
      const names = ['zoe', 'Ann', 'ann', '_', '10', '9']
      for (const name of names) await store.createUser(userRow(name), byOperator)
      for (const limit of [1, 4, 6]) {
        const users = await allPages((page) => store.listUsers(page), limit)
        expect(users.map((user) => user.username)).toEqual([...names].sort())
      }
    },
  },
  {
    title: 'every lookup finds a changed profile from then on; what is not given and other users stay as they were',
    async run(store) {
      await seed(store)
      const token = await grant(store)
      const ofBob = await grant(store, { username: 'bob' })
      const profileOf = async ({ accessTokenHash }: typeof token) => {
        const found = await store.findAccessToken(presented(accessTokenHash))
        return [found?.nickname, found?.avatar]
      }
      const [ann, bob] = [userRow('ann'), userRow('bob')]
      expect(await profileOf(token)).toEqual([ann.nickname, ann.avatar])
      for (const [change, expected] of [
        [{ nickname: '安 🦊' }, ['安 🦊', ann.avatar]],
        [{ avatar: 'https://new.example/' }, ['安 🦊', 'https://new.example/']],
        [{ nickname: '', avatar: '' }, ['', '']],
        [{}, ['', '']],
      ] as const) {
        const [nickname, avatar] = expected
        const changed = { ...ann, nickname, avatar }
        expect(await store.updateUser('user_ann', change, NOW, byOperator)).toEqual(changed)
        expect(await profileOf(token)).toEqual(expected)
        expect(await store.findUser('ann')).toEqual(changed)
      }
      expect(await profileOf(ofBob)).toEqual([bob.nickname, bob.avatar])
      expect(await store.findUser('bob')).toEqual(bob)
      expect(await store.updateUser('user_nobody', { nickname: 'x' }, NOW, byOperator)).toBeUndefined()
    },
  },
  {
    title: "disabling a user ends their sessions and unused codes and refuses their tokens, and nobody else's",
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      await issue(store, 'unused 1')
      await issue(store, 'unused 2', { appid: 'app2' })
      await issue(store, 'of bob', { userId: 'user_bob' })
      await startSession(store, 'session')
      await startSession(store, 'bobs', { userId: 'user_bob', passwordHash: userRow('bob').passwordHash })
      expect(await store.setUserDisabled('user_ann', true, NOW, byOperator)).toMatchObject({ isDisabled: true })
      expect(await isGood(store, accessTokenHash)).toBe(false)
      expect((await mint(store, refreshTokenHash)).result).toBe('refused')
      expect(await store.findSession(hashOf('session'))).toBeUndefined()
      expect(await issue(store, 'another')).toBe('session_ended')
      expect(await startSession(store, 'another')).toBe('refused')
      expect(await store.findUser('bob')).toEqual(userRow('bob'))
      expect(await store.findSession(hashOf('bobs'))).toBeDefined()

      await store.setUserDisabled('user_ann', false, NOW, byOperator)
      expect(await isGood(store, accessTokenHash)).toBe(true)
      expect(await store.findSession(hashOf('session'))).toBeUndefined()
      expect((await redeem(store, 'unused 1')).result.kind).toBe('refused')
      expect((await redeem(store, 'unused 2', { appid: 'app2' })).result.kind).toBe('refused')
      expect((await redeem(store, 'of bob')).result.kind).toBe('redeemed')
      expect(await store.setUserDisabled('user_nobody', true, NOW, byOperator)).toBeUndefined()
      const changes = (await auditKinds(store)).filter((kind) => /^user\.(dis|en)abled$/.test(kind))
      expect(changes).toEqual(['user.disabled', 'user.enabled'])
    },
  },
  {
    title: "a disabled user's code is refused even if the clock was ahead when the user was disabled",
    async run(store) {
      await seed(store)
      await issue(store, 'code')
      await store.setUserDisabled('user_ann', true, NOW + DAY, byOperator)
      expect((await redeem(store, 'code')).result).toEqual({ kind: 'refused', replay: 'none' })
    },
  },
  {
    title: 'a new password ends all sessions and unused codes of its user and no others',
    async run(store) {
      await seed(store)
      const { accessTokenHash } = await grant(store)
      await issue(store, 'unused')
      await issue(store, 'of bob', { userId: 'user_bob' })
      await startSession(store, 'one')
      await startSession(store, 'two')
      await startSession(store, 'bobs', { userId: 'user_bob', passwordHash: userRow('bob').passwordHash })
      expect(await store.setUserPassword('user_ann', 'new', NOW, byOperator)).toBe(true)
      expect(await store.findSession(hashOf('one'))).toBeUndefined()
      expect(await store.findSession(hashOf('two'))).toBeUndefined()
      expect(await store.findSession(hashOf('bobs'))).toBeDefined()
      expect(await store.findUser('ann')).toMatchObject({ passwordHash: 'new' })
      expect(await store.findUser('bob')).toEqual(userRow('bob'))
      expect((await redeem(store, 'unused')).result).toEqual({ kind: 'refused', replay: 'none' })
      expect((await redeem(store, 'of bob')).result.kind).toBe('redeemed')
      expect(await isGood(store, accessTokenHash)).toBe(true)
      expect(await store.setUserPassword('user_nobody', 'new', NOW, byOperator)).toBe(false)
    },
  },
  {
    title: "a deleted user is known only by id, and all their grants are revoked, and nobody else's",
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      await grant(store, { appid: 'app2' })
      const ofBob = await grant(store, { username: 'bob' })
      await issue(store, 'unused')
      expect(await isGood(store, accessTokenHash)).toBe(true)
      expect(await store.deleteUser('user_nobody', NOW, byOperator)).toBe('not_found')
      expect(await store.deleteUser('user_ann', NOW, byOperator)).toBe('not_disabled')
      expect(await store.findUser('ann')).toEqual(userRow('ann'))
      expect(await isGood(store, accessTokenHash)).toBe(true)

      await store.setUserDisabled('user_ann', true, NOW, byOperator)
      expect(await store.deleteUser('user_ann', NOW, byOperator)).toBe('deleted')
      expect(await isGood(store, accessTokenHash)).toBe(false)
      expect((await mint(store, refreshTokenHash)).result).toBe('refused')
      expect((await redeem(store, 'unused')).result.kind).toBe('refused')
      const { rows } = await store.listGrants({ userId: 'user_ann' }, { after: undefined, limit: 9 })
      expect(rows.map(({ revokedAtMs }) => revokedAtMs)).toEqual([NOW, NOW])
      const [remains = ''] = rows.map(({ username }) => username)
      for (const name of ['ann', remains]) {
        expect(await store.findUser(name)).toBeUndefined()
      }
      for (const userId of ['user_ann', 'bob']) {
        expect(await store.findUserById(userId)).toBeUndefined()
        expect(await store.deleteUser(userId, NOW, byOperator)).toBe('not_found')
        expect(await store.setUserDisabled(userId, false, NOW, byOperator)).toBeUndefined()
        expect(await store.setUserPassword(userId, 'new', NOW, byOperator)).toBe(false)
        expect(await store.updateUser(userId, { nickname: 'New' }, NOW, byOperator)).toBeUndefined()
      }
      expect(await store.findUserById('user_bob')).toEqual(userRow('bob'))
      expect((await store.listUsers({ after: undefined, limit: 9 })).rows).toEqual([userRow('bob')])
      for (const [id, isOne] of Object.entries({
        user_ann: true,
        user_bob: true,
        ann: false,
        user_: false,
        '': false,
      })) {
        expect(await store.isUserId(id), id).toBe(isOne)
      }
      expect(await startSession(store, 'session', { userId: 'user_ann', passwordHash: '' })).toBe('refused')
      expect(await issue(store, 'another')).toBe('session_ended')
      expect(await isGood(store, ofBob.accessTokenHash)).toBe(true)
      expect((await mint(store, ofBob.refreshTokenHash)).result).toBe('minted')
      const events = (await auditTrail(store)).filter(({ kind }) => /^user\.del|^grant/.test(kind))
      expect(events.map(({ kind, userId, note }) => [kind, userId, note]).sort()).toEqual([
        ...['app1', 'app2'].map(() => ['grant.revoked', 'user_ann', 'its user was deleted']),
        ['user.deleted', 'user_ann', ''],
      ])
    },
  },
  {
    title: 'the name of a deleted user can be taken by a new user, whom apps know by another openid',
    async run(store) {
      await seed(store)
      const before = await grant(store)
      await store.setUserDisabled('user_ann', true, NOW, byOperator)
      await store.deleteUser('user_ann', NOW, byOperator)
      const anew = userRow('ann', { userId: 'user_ann2', passwordHash: '$argon2id$ann2' })
      expect(await store.createUser(anew, byOperator)).toBe('created')
      await signIn(store, anew)
      await issue(store, 'code', { userId: 'user_ann2' })
      const { result } = await redeem(store, 'code')
      expect(result.kind === 'redeemed' && result.openid).not.toBe(before.openid)
      expect(await isGood(store, before.accessTokenHash)).toBe(false)
      await store.setUserDisabled('user_ann2', true, NOW, byOperator)
      expect(await store.deleteUser('user_ann2', NOW, byOperator)).toBe('deleted')
    },
  },
  {
    title: 'a replay still ends the grant after its user was disabled, enabled and given a new password',
    async run(store) {
      await seed(store)
      const { name } = await grant(store)
      await store.setUserDisabled('user_ann', true, NOW, byOperator)
      await store.setUserDisabled('user_ann', false, NOW, byOperator)
      await store.setUserPassword('user_ann', 'new', NOW, byOperator)
      expect((await redeem(store, name, {}, NOW + GRACE + 1)).result).toEqual({
        kind: 'refused',
        replay: 'revoked_grant',
      })
    },
  },
  {
    title: 'no code that is confirmed while a new password is being set is good afterwards',
    async run(store) {
      await seed(store)
      const names = Array.from({ length: 20 }, (_, i) => `code ${i}`)
      const outcomes = await Promise.all([
        ...names.slice(0, 10).map((name) => issue(store, name)),
        store.setUserPassword('user_ann', 'new', NOW, byOperator),
        ...names.slice(10).map((name) => issue(store, name)),
      ])
      expect(new Set(outcomes)).toContain('session_ended')
      const results = await Promise.all(names.map((name) => redeem(store, name)))
      for (const { result } of results) expect(result).toEqual({ kind: 'refused', replay: 'none' })
      await signIn(store, { userId: 'user_ann', passwordHash: 'new' })
      expect(await issue(store, 'after')).toBe('issued')
    },
  },
  {
    title: 'a code is issued in an open session of the user only, also while the session ends',
    async run(store) {
      await seed(store)
      expect(await issue(store, 'of bob', { sessionHash: sessionOf('user_bob') })).toBe('session_ended')
      const codes = Array.from({ length: 20 }, (_, i) => `code ${i}`)
      const outcomes = await Promise.all([
        ...codes.slice(0, 10).map((name) => issue(store, name)),
        store.endSession(sessionOf('user_ann'), NOW, byUser),
        ...codes.slice(10).map((name) => issue(store, name)),
      ])
      for (const outcome of outcomes) expect([undefined, 'issued', 'session_ended']).toContain(outcome)
      for (const name of codes) expect(await issue(store, name)).toBe('session_ended')
      expect(await issue(store, 'after')).toBe('session_ended')
      await startSession(store, 'another')
      expect(await issue(store, 'after')).toBe('session_ended')
      expect(await issue(store, 'after', { sessionHash: hashOf('another') })).toBe('issued')
    },
  },
  {
    title: 'a session starts only if the password is still the one that was checked',
    async run(store) {
      await seed(store)
      expect(await startSession(store, 'stale', { passwordHash: 'older' })).toBe('refused')
      expect(await startSession(store, 'ghost', { userId: 'nobody' })).toBe('refused')
      expect(await store.findSession(hashOf('stale'))).toBeUndefined()
      expect(await startSession(store, 'good')).toBe('started')
      const { userId, username, nickname, avatar } = userRow('ann')
      expect(await store.findSession(hashOf('good'))).toEqual({
        userId,
        username,
        nickname,
        avatar,
        way: 'password',
        provider: '',
        startedAtMs: NOW,
        lastSeenAtMs: NOW,
        expiresAtMs: NOW + 7 * DAY,
      })
    },
  },
  {
    title: 'the sessions of a user are listed newest first, with their browser, and none of anybody else',
    async run(store) {
      await seed(store)
      await startSession(store, 'newer', { browser: 'Edge, Windows', expiresAtMs: NOW + DAY }, NOW + 1)
      await store.touchSession(sessionOf('user_ann'), NOW + 2)
      const listed = await store.listSessions('user_ann')
      const known = { way: 'password', provider: '' }
      expect(listed.map((session) => ({ ...session, sessionHash: Buffer.from(session.sessionHash) }))).toEqual([
        {
          ...known,
          sessionHash: hashOf('newer'),
          browser: 'Edge, Windows',
          startedAtMs: NOW + 1,
          lastSeenAtMs: NOW + 1,
          expiresAtMs: NOW + DAY,
        },
        {
          ...known,
          sessionHash: sessionOf('user_ann'),
          browser: 'Firefox, Linux',
          startedAtMs: NOW,
          lastSeenAtMs: NOW + 2,
          expiresAtMs: NOW + 1000 * DAY,
        },
      ])
      expect(await store.listSessions('user_nobody')).toEqual([])
    },
  },
  {
    title: 'a user who changes the password keeps this session and the grants, and nothing else',
    async run(store) {
      await seed(store)
      const { accessTokenHash } = await grant(store)
      await startSession(store, 'other')
      await startSession(store, 'bobs', { userId: 'user_bob', passwordHash: userRow('bob').passwordHash })
      await issue(store, 'code')
      const { passwordHash } = userRow('ann')
      const change = { userId: 'user_ann', passwordHash, newPasswordHash: 'new', sessionHash: sessionOf('user_ann') }
      expect(await store.changePassword({ ...change, passwordHash: 'older' }, NOW, byUser)).toBe(false)
      expect(await store.changePassword({ ...change, userId: 'nobody' }, NOW, byUser)).toBe(false)
      expect(await store.findSession(hashOf('other'))).toBeDefined()
      expect(await store.changePassword(change, NOW, byUser)).toBe(true)
      expect(await store.changePassword(change, NOW, byUser)).toBe(false)
      expect(await store.findUser('ann')).toMatchObject({ passwordHash: 'new' })
      expect(await store.findSession(hashOf('other'))).toBeUndefined()
      expect(await store.findSession(hashOf('bobs'))).toBeDefined()
      expect(await store.findSession(sessionOf('user_ann'))).toBeDefined()
      expect(await isGood(store, accessTokenHash)).toBe(true)
      expect((await redeem(store, 'code')).result.kind).toBe('refused')
      const events = (await auditTrail(store)).filter(({ kind }) => kind === 'user.password_set')
      expect(events).toMatchObject([{ userId: 'user_ann', ...saidOf(byUser) }])
      await store.setUserDisabled('user_ann', true, NOW, byOperator)
      expect(await store.changePassword({ ...change, passwordHash: 'new' }, NOW, byUser)).toBe(false)
    },
  },
  {
    title: 'a sign-in ends the session it replaces, and a refused one does not',
    async run(store) {
      await seed(store)
      await startSession(store, 'first')
      const previousSessionHash = hashOf('first')
      await startSession(store, 'wrong', { previousSessionHash, passwordHash: 'older' })
      expect(await store.findSession(previousSessionHash)).toBeDefined()
      await startSession(store, 'second', { previousSessionHash })
      expect(await store.findSession(previousSessionHash)).toBeUndefined()
      expect(await store.findSession(hashOf('second'))).toBeDefined()
      const kinds = (await auditTrail(store)).map((event) => event.kind).filter((kind) => kind.startsWith('session'))
      expect(kinds.slice(2)).toEqual(['session.started', 'session.ended', 'session.started']) // after those of seed
    },
  },
  {
    title: 'a user keeps only the newest sessions, even when many start at once',
    async run(store) {
      await seed(store)
      await startSession(store, 'bobs', { userId: 'user_bob', passwordHash: userRow('bob').passwordHash })
      for (let i = 0; i < 4; i++) {
        await startSession(store, `s${i}`, { maxLive: 2 }, NOW + i)
        await store.touchSession(hashOf('s1'), NOW + 8) // seen last, and not the newest
      }
      const found = await Promise.all([0, 1, 2, 3].map((i) => store.findSession(hashOf(`s${i}`))))
      expect(found.map((session) => session !== undefined)).toEqual([false, false, true, true])
      const names = Array.from({ length: 10 }, (_, i) => `same ${i}`)
      await Promise.all(names.map((name) => startSession(store, name, { maxLive: 3 }, NOW + 9)))
      const live = await Promise.all(names.map((name) => store.findSession(hashOf(name))))
      expect(live.filter((session) => session !== undefined)).toHaveLength(3)
      await startSession(store, 'last', { maxLive: 1 }, NOW + 9)
      expect(await store.findSession(hashOf('last'))).toBeDefined()
      expect(await store.findSession(hashOf('bobs'))).toBeDefined()
    },
  },
  {
    title: 'expired sessions do not count towards the cap on sessions',
    async run(store) {
      await seed(store)
      await startSession(store, 'first')
      await startSession(store, 'short', { expiresAtMs: NOW + 2 }, NOW + 1)
      await startSession(store, 'last', { maxLive: 3 }, NOW + 2)
      expect(await store.findSession(hashOf('first'))).toBeDefined()
      expect(await auditKinds(store)).not.toContain('session.ended')
    },
  },
  {
    title: "a session's last activity only moves forward, and touching or ending an unknown session does nothing",
    async run(store) {
      await seed(store)
      await startSession(store, 'session')
      await startSession(store, 'another')
      await store.touchSession(hashOf('session'), NOW + 5)
      await store.touchSession(hashOf('session'), NOW + 3)
      expect(await store.findSession(hashOf('session'))).toMatchObject({ lastSeenAtMs: NOW + 5 })
      await store.touchSession(hashOf('nothing'), NOW)
      await store.endSession(hashOf('nothing'), NOW, byUser)
      await store.endSession(hashOf('session'), NOW, byUser)
      await store.endSession(hashOf('session'), NOW, byUser)
      expect(await store.findSession(hashOf('session'))).toBeUndefined()
      expect(await store.findSession(hashOf('another'))).toMatchObject({ lastSeenAtMs: NOW })
      expect((await auditKinds(store)).filter((kind) => kind === 'session.ended')).toHaveLength(1)
    },
  },
]
