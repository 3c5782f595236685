// Users from elsewhere: the platform's own ids, and identities at providers.
import { expect } from 'vitest'
import { placeholderName, type TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { presented } from '../presented.js'
import {
  auditTrail,
  byOperator,
  byUser,
  DAY,
  findGrant,
  grant,
  hashOf,
  isGood,
  NOW,
  saidOf,
  seed,
  startSession,
  userRow,
} from '../token-store-verbs.js'

/** A user without a name and a password. */
function fromElsewhere(externalId: string, userId = `user_${externalId}`) {
  return userRow(placeholderName(userId), { userId, externalId, passwordHash: '' })
}

const corp = (subject: string) => ({ provider: 'corp', subject })

async function deleteUser(store: TokenStore, userId: string): Promise<void> {
  await store.setUserDisabled(userId, true, NOW, byOperator)
  expect(await store.deleteUser(userId, NOW, byOperator)).toBe('deleted')
}

export const identityChecks: readonly Check<TokenStore>[] = [
  {
    title: 'a user without name and password is found by id and external_id, and is listed',
    async run(store) {
      const user = fromElsewhere('4711')
      expect(await store.createUser(user, byOperator)).toBe('created')
      expect(await store.findUserByExternalId('4711')).toEqual(user)
      expect(await store.findUserById(user.userId)).toEqual(user)
      expect((await store.listUsers({ after: undefined, limit: 9 })).rows).toEqual([user])
      for (const other of ['', '471', '47110', '~user_4711']) {
        expect(await store.findUserByExternalId(other), other).toBeUndefined()
      }
      expect((await auditTrail(store)).map(({ note }) => note)).toEqual(['external_id 4711'])
    },
  },
  {
    title: 'any number of users have no external_id, and no two have the same',
    async run(store) {
      await seed(store)
      expect(await store.createUser(fromElsewhere('1'), byOperator)).toBe('created')
      expect(await store.createUser(fromElsewhere('1', 'another'), byOperator)).toBe('external_id_taken')
      expect(await store.findUserById('another')).toBeUndefined()
      expect(await store.updateUser('user_ann', { externalId: '1' }, NOW, byOperator)).toBe('external_id_taken')
      expect(await store.findUserById('user_ann')).toEqual(userRow('ann'))
      const named = { ...userRow('ann'), externalId: 'Ann', nickname: 'A' }
      expect(await store.updateUser('user_ann', { externalId: 'Ann', nickname: 'A' }, NOW, byOperator)).toEqual(named)
      expect(await store.findUserByExternalId('Ann')).toEqual(named)
      expect(await store.findUserByExternalId('ann')).toBeUndefined()
      expect(await store.updateUser('user_ann', { externalId: '' }, NOW, byOperator)).toMatchObject({ externalId: '' })
      expect(await store.updateUser('user_bob', { externalId: 'Ann' }, NOW, byOperator)).toMatchObject({
        externalId: 'Ann',
      })
      const notes = (await auditTrail(store)).filter(({ kind }) => kind === 'user.updated').map(({ note }) => note)
      expect(notes).toEqual(['external_id, nickname', 'external_id', 'external_id'])
    },
  },
  {
    title: 'of many who are given one external_id at once exactly one gets it',
    async run(store) {
      await seed(store)
      const created = Array.from({ length: 10 }, (_, i) => store.createUser(fromElsewhere('1', `u${i}`), byOperator))
      const updated = ['user_ann', 'user_bob'].map(async (userId) => {
        const user = await store.updateUser(userId, { externalId: '1' }, NOW, byOperator)
        return user === 'external_id_taken' ? user : 'created'
      })
      const outcomes = await Promise.all([...created, ...updated])
      expect(outcomes.filter((outcome) => outcome === 'created')).toHaveLength(1)
      expect(outcomes.filter((outcome) => outcome === 'external_id_taken')).toHaveLength(11)
    },
  },
  {
    title: 'tokens and grants tell the external_id of their user, from the moment it changes',
    async run(store) {
      await seed(store)
      const { grantId, accessTokenHash } = await grant(store)
      const told = async () => [
        (await store.findAccessToken(presented(accessTokenHash)))?.externalId,
        (await findGrant(store, grantId))?.externalId,
      ]
      expect(await told()).toEqual(['', ''])
      await store.updateUser('user_ann', { externalId: '4711' }, NOW, byOperator)
      expect(await told()).toEqual(['4711', '4711'])
    },
  },
  {
    title: 'a deleted user keeps external_id and identities from everybody but an operator, and is found by neither',
    async run(store) {
      await store.createUser(fromElsewhere('1'), byOperator)
      await store.linkIdentity(corp('s'), 'user_1', NOW, byOperator)
      await deleteUser(store, 'user_1')
      expect(await store.findUserByExternalId('1')).toBeUndefined()
      expect(await store.listIdentities('user_1')).toMatchObject([corp('s')])
      expect(await store.linkIdentity(corp('other'), 'user_1', NOW, byOperator)).toBe('not_found')

      expect(await store.createUser(fromElsewhere('1', 'user_2'), byOperator)).toBe('created')
      expect(await store.linkIdentity(corp('s'), 'user_2', NOW, byOperator)).toBe('linked')
      expect(await store.listIdentities('user_1')).toEqual([])
      expect(await store.findUserByExternalId('1')).toMatchObject({ userId: 'user_2' })
      await deleteUser(store, 'user_2')
      await seed(store)
      expect(await store.updateUser('user_ann', { externalId: '1' }, NOW, byOperator)).toMatchObject({
        externalId: '1',
      })
    },
  },
  {
    title: 'who may not have the name takes the external_id of no deleted user',
    async run(store) {
      await seed(store)
      await store.createUser(fromElsewhere('1'), byOperator)
      await deleteUser(store, 'user_1')
      const taken = userRow('ann', { userId: 'user_2', externalId: '1' })
      expect(await store.createUser(taken, byOperator)).toBe('username_taken')
      expect(await store.createUser(fromElsewhere('1', 'user_3'), byOperator)).toBe('created')
    },
  },
  {
    title: 'an identity is linked to one user, compared byte for byte, until it is unlinked',
    async run(store) {
      await seed(store)
      const link = (identity: ReturnType<typeof corp>, userId: string, now = NOW) =>
        store.linkIdentity(identity, userId, now, byOperator)
      expect(await link(corp('s'), 'user_ann')).toBe('linked')
      expect(await link(corp('s'), 'user_ann', NOW + 1)).toBe('already_linked')
      expect(await link(corp('s'), 'user_bob')).toBe('taken')
      expect(await link(corp('S'), 'user_bob')).toBe('linked')
      expect(await link({ provider: 'campus', subject: 's' }, 'user_ann', NOW + 2)).toBe('linked')
      expect(await link(corp('t'), 'user_nobody')).toBe('not_found')
      const ofAnn = { userId: 'user_ann', lastUsedAtMs: 0 }
      expect(await store.listIdentities('user_ann')).toEqual([
        { provider: 'campus', subject: 's', createdAtMs: NOW + 2, ...ofAnn },
        { provider: 'corp', subject: 's', createdAtMs: NOW, ...ofAnn },
      ])
      expect(await store.unlinkIdentity(corp('s'), NOW + 3, byOperator)).toBe('user_ann')
      expect(await store.unlinkIdentity(corp('s'), NOW + 3, byOperator)).toBeUndefined()
      expect(await link(corp('s'), 'user_bob', NOW + 4)).toBe('linked')
      const events = (await auditTrail(store)).filter(({ kind }) => kind.startsWith('identity'))
      expect(events.map(({ kind, userId, note }) => [kind, userId, note])).toEqual([
        ['identity.linked', 'user_ann', 'corp s'],
        ['identity.linked', 'user_bob', 'corp S'],
        ['identity.linked', 'user_ann', 'campus s'],
        ['identity.unlinked', 'user_ann', 'corp s'],
        ['identity.linked', 'user_bob', 'corp s'],
      ])
      for (const event of events) expect(event).toMatchObject(saidOf(byOperator))
    },
  },
  {
    title: 'of many who link one identity at once exactly one gets it',
    async run(store) {
      await seed(store)
      const tries = Array.from({ length: 20 }, (_, i) =>
        store.linkIdentity(corp('s'), i % 2 === 0 ? 'user_ann' : 'user_bob', NOW, byOperator),
      )
      const outcomes = await Promise.all(tries)
      expect(outcomes.filter((outcome) => outcome === 'linked')).toHaveLength(1)
      expect(outcomes.filter((outcome) => outcome === 'already_linked')).toHaveLength(9)
      expect(outcomes.filter((outcome) => outcome === 'taken')).toHaveLength(10)
    },
  },
  {
    title: 'all sessions of a user end together, without a grant, a code or anybody else',
    async run(store) {
      await seed(store)
      const { accessTokenHash } = await grant(store)
      await startSession(store, 'second', { expiresAtMs: NOW + DAY })
      await startSession(store, 'bobs', { userId: 'user_bob', passwordHash: userRow('bob').passwordHash })
      expect(await store.endSessions({ userId: 'user_ann' }, NOW, byOperator)).toBe(2)
      expect(await store.endSessions({ userId: 'user_ann' }, NOW, byOperator)).toBe(0)
      expect(await store.endSessions({ userId: 'user_nobody' }, NOW, byOperator)).toBe(0)
      expect(await store.findSession(hashOf('second'))).toBeUndefined()
      expect(await store.findSession(hashOf('bobs'))).toBeDefined()
      expect(await isGood(store, accessTokenHash)).toBe(true)
      const events = (await auditTrail(store)).filter(({ kind }) => kind === 'session.ended')
      expect(events).toMatchObject([{ userId: 'user_ann', note: 'all 2 of them', ...saidOf(byOperator) }])
    },
  },
  {
    title: 'a user ends one session of their own, or all but one, and none of anybody else',
    async run(store) {
      await seed(store)
      for (const name of ['a', 'b', 'c']) await startSession(store, name)
      await startSession(store, 'bobs', { userId: 'user_bob', passwordHash: userRow('bob').passwordHash })
      const ann = { userId: 'user_ann' }
      expect(await store.endSessions({ ...ann, only: hashOf('bobs') }, NOW, byUser)).toBe(0)
      expect(await store.endSessions({ ...ann, only: hashOf('a') }, NOW, byUser)).toBe(1)
      expect(await store.endSessions({ ...ann, only: hashOf('a') }, NOW, byUser)).toBe(0)
      expect(await store.endSessions({ ...ann, allBut: hashOf('b') }, NOW, byUser)).toBe(2)
      expect(await store.endSessions({ ...ann, allBut: hashOf('b') }, NOW, byUser)).toBe(0)
      expect(await store.listSessions('user_ann')).toHaveLength(1)
      expect(await store.findSession(hashOf('b'))).toBeDefined()
      expect(await store.findSession(hashOf('bobs'))).toBeDefined()
      const events = (await auditTrail(store)).filter(({ kind }) => kind === 'session.ended')
      expect(events.map(({ userId, note }) => [userId, note])).toEqual([
        ['user_ann', 'one of them'],
        ['user_ann', 'the other 2 of them'],
      ])
    },
  },
  {
    title: 'a user gives up an identity of their own, but not the last way to sign in, whatever races',
    async run(store) {
      await seed(store)
      await store.createUser(userRow('cy', { passwordHash: '' }), byOperator)
      const unlink = (
        subject: string,
        userId: string,
        ways = { password: true, platform: true, providers: ['corp'] },
      ) => store.unlinkOwnIdentity(corp(subject), userId, ways, NOW, byUser)
      for (const subject of ['a', 'b']) await store.linkIdentity(corp(subject), 'user_cy', NOW, byOperator)
      await store.linkIdentity(corp('s'), 'user_ann', NOW, byOperator)
      expect(await unlink('s', 'user_bob')).toBe('not_found')
      expect(await unlink('s', 'user_ann', { password: false, platform: true, providers: ['corp'] })).toBe('last_way')
      expect(await unlink('s', 'user_ann')).toBe('unlinked')
      expect(await unlink('s', 'user_ann')).toBe('not_found')
      const both = await Promise.all([unlink('a', 'user_cy'), unlink('b', 'user_cy')])
      expect(both.toSorted()).toEqual(['last_way', 'unlinked'])
      expect(await store.listIdentities('user_cy')).toHaveLength(1)
      const events = (await auditTrail(store)).filter(({ kind }) => kind === 'identity.unlinked')
      expect(events).toMatchObject([
        { userId: 'user_ann', note: 'corp s', ...saidOf(byUser) },
        { userId: 'user_cy', ...saidOf(byUser) },
      ])
    },
  },
]
