// Users as another system knew them, and the hashes of their passwords.
import { expect } from 'vitest'
import type { ImportedUser, ImportRules } from '../../../services/protocol/imported-users.js'
import { behindAll, type TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { auditTrail, byOperator, NOW, seed, startSession, userRow } from '../token-store-verbs.js'

const corp = (subject: string) => ({ provider: 'corp', subject })

function imported(username: string, rest: Partial<ImportedUser> = {}): ImportedUser {
  return { ...userRow(username), externalId: `x-${username}`, identities: [corp(username)], ...rest }
}

const RULES: ImportRules = { onExisting: 'update', replacesPasswords: false, isDryRun: false }

const importInto = (store: TokenStore, users: readonly ImportedUser[], rules: Partial<ImportRules> = {}) =>
  store.importUsers(users, { ...RULES, ...rules }, NOW, byOperator)

const outcomes = async (...call: Parameters<typeof importInto>) =>
  (await importInto(...call)).map((verdict) => (verdict.outcome === 'refused' ? verdict.reason : verdict.outcome))

export const importChecks: readonly Check<TokenStore>[] = [
  {
    title: 'an import makes users as they were, with their identities, and says so in the trail',
    async run(store) {
      const users = [imported('cat', { isDisabled: true, createdAtMs: NOW - 1 }), imported('dan', { identities: [] })]
      expect(await outcomes(store, users)).toEqual(['created', 'created'])
      for (const { identities, ...user } of users) {
        expect(await store.findUserByExternalId(user.externalId)).toEqual(user)
        const links = await store.listIdentities(user.userId)
        expect(links.map(({ provider, subject }) => ({ provider, subject }))).toEqual(identities)
      }
      const kinds = (await auditTrail(store)).map(({ kind }) => kind).sort()
      expect(kinds).toEqual(['identity.linked', 'user.created', 'user.created'])
    },
  },
  {
    title: 'an import that is repeated changes nothing',
    async run(store) {
      const users = ['cat', 'dan'].map((name) => imported(name))
      await importInto(store, users)
      const before = await auditTrail(store)
      const again = users.map((user) => ({ ...user, userId: `${user.userId}_2`, passwordHash: '$argon2id$other' }))
      expect(await outcomes(store, again, { onExisting: 'fail' })).toEqual(['unchanged', 'unchanged'])
      expect(await auditTrail(store)).toEqual(before)
    },
  },
  {
    title: 'an import judges each user by itself and stores all that it takes',
    async run(store) {
      await seed(store)
      await importInto(store, [imported('cat')])
      const users = [
        imported('ann', { userId: 'other' }),
        imported('cat', { userId: 'other', nickname: 'C.', isDisabled: true, identities: [corp('cat'), corp('c2')] }),
        imported('dan', { identities: [corp('cat')] }),
        imported('eve'),
      ]
      expect(await outcomes(store, users)).toEqual(['username_taken', 'updated', 'identity_taken', 'created'])
      const cat = { userId: 'user_cat', nickname: 'C.', isDisabled: true, passwordHash: userRow('cat').passwordHash }
      expect(await store.findUser('cat')).toMatchObject(cat)
      expect(await store.listIdentities('user_cat')).toHaveLength(2)
      expect(await store.findUser('dan')).toBeUndefined()
      expect(await store.findUser('ann')).toMatchObject({ userId: 'user_ann', externalId: '' })
    },
  },
  {
    title: 'a dry run says the same and stores nothing',
    async run(store) {
      await importInto(store, [imported('cat')])
      const before = await auditTrail(store)
      const users = [imported('cat', { nickname: 'C.' }), imported('dan')]
      expect(await outcomes(store, users, { isDryRun: true })).toEqual(['updated', 'created'])
      expect(await store.findUser('cat')).toMatchObject({ nickname: userRow('cat').nickname })
      expect(await store.findUser('dan')).toBeUndefined()
      expect(await auditTrail(store)).toEqual(before)
    },
  },
  {
    title: 'an import that replaces passwords ends the sessions of those users',
    async run(store) {
      await importInto(store, [imported('cat')])
      const { passwordHash } = userRow('cat')
      expect(await startSession(store, 'of cat', { userId: 'user_cat', passwordHash })).toBe('started')
      const users = [imported('cat', { passwordHash: '$argon2id$new' })]
      expect(await outcomes(store, users, { replacesPasswords: true })).toEqual(['updated'])
      expect(await store.endSessions({ userId: 'user_cat' }, NOW, byOperator)).toBe(0)
      expect(await store.findUser('cat')).toMatchObject({ passwordHash: '$argon2id$new' })
    },
  },
  {
    title: 'of imports of one user at once one makes the user',
    async run(store) {
      const calls = Array.from({ length: 8 }, (_, n) => outcomes(store, [imported('cat', { userId: `cat_${n}` })]))
      const all = (await Promise.all(calls)).flat().sort()
      expect(all).toEqual(['created', ...Array.from({ length: 7 }, () => 'unchanged')])
    },
  },
  {
    title: 'an import that does not say nickname and avatar makes a user without, and keeps them in an update',
    async run(store) {
      const unsaid = { nickname: undefined, avatar: undefined }
      expect(await outcomes(store, [imported('cat', unsaid)])).toEqual(['created'])
      expect(await store.findUser('cat')).toMatchObject({ nickname: '', avatar: '' })
      expect(await outcomes(store, [imported('cat', { nickname: 'Cat' })])).toEqual(['updated'])
      expect(await outcomes(store, [imported('cat', unsaid)])).toEqual(['unchanged'])
      const linked = imported('cat', { ...unsaid, identities: [corp('another')] })
      expect(await outcomes(store, [linked])).toEqual(['updated'])
      expect(await store.findUser('cat')).toMatchObject({ nickname: 'Cat', avatar: userRow('cat').avatar })
    },
  },
  {
    title:
      'who was deleted stays so through an import, and a new user with that external_id is one whom an operator makes',
    async run(store) {
      await importInto(store, [imported('cat', { isDisabled: true })])
      expect(await store.deleteUser('user_cat', NOW, byOperator)).toBe('deleted')
      const again = imported('cat', { userId: 'second' })
      expect(await outcomes(store, [again])).toEqual(['deleted'])
      expect(await store.findUserByExternalId('x-cat')).toBeUndefined()
      const made = userRow('cat', { userId: 'second', externalId: again.externalId })
      expect(await store.createUser(made, byOperator)).toBe('created')
      expect(await outcomes(store, [again])).toEqual(['updated'])
      expect(await store.listIdentities('second')).toHaveLength(1)
    },
  },
  {
    title: 'password hashes are found and counted by how they begin',
    async run(store) {
      const hashes = ['$2b$12$a', '$2b$12$b', '$2b$13$a', '$argon2id$z', '']
      await importInto(
        store,
        hashes.map((passwordHash, n) => imported(`u${n}`, { passwordHash })),
      )
      expect(await store.findPasswordHash('')).toBe('$2b$12$a')
      expect(await store.findPasswordHash(behindAll('$2b$12$'))).toBe('$2b$13$a')
      expect(await store.findPasswordHash(behindAll('$argon2id$'))).toBeUndefined()
      expect(await store.countPasswordHashes('$2b$12$')).toBe(2)
      expect(await store.countPasswordHashes('$2b$1$')).toBe(0)
    },
  },
  {
    title: 'a sign-in replaces the hash that was checked, and not one that was set meanwhile',
    async run(store) {
      await importInto(store, [imported('cat', { passwordHash: 'old' })])
      const session = { userId: 'user_cat', passwordHash: 'old', newPasswordHash: 'rehashed' }
      expect(await startSession(store, 's1', session)).toBe('started')
      expect(await store.findUser('cat')).toMatchObject({ passwordHash: 'rehashed' })
      await store.setUserPassword('user_cat', 'of the operator', NOW, byOperator)
      expect(await startSession(store, 's2', { ...session, passwordHash: 'rehashed' })).toBe('refused')
      expect(await store.findUser('cat')).toMatchObject({ passwordHash: 'of the operator' })
    },
  },
]
