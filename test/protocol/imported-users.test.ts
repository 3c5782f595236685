import { expect, test } from 'vitest'
import {
  type ImportedUser,
  type ImportFacts,
  type ImportRules,
  judgeImport,
} from '../../services/protocol/imported-users.js'

const ANN: ImportedUser = {
  userId: 'new',
  username: 'ann',
  externalId: '1',
  nickname: 'Ann',
  avatar: '',
  passwordHash: 'hash',
  isDisabled: false,
  createdAtMs: 1,
  identities: [{ provider: 'corp', subject: 's' }],
}
const stored = (rest: Partial<ImportedUser> = {}) => ({ ...ANN, userId: 'old', ...rest })
const NOBODY: ImportFacts = { wasDeleted: false, ofExternalId: undefined, ofUsername: undefined, owners: [undefined] }
const known = (rest: Partial<ImportedUser> = {}, owner: string | undefined = 'old'): ImportFacts => ({
  wasDeleted: false,
  ofExternalId: stored(rest),
  ofUsername: stored(rest),
  owners: [owner],
})
const UPDATE: ImportRules = { onExisting: 'update', replacesPasswords: false, isDryRun: false }
const judge = (user: Partial<ImportedUser>, facts: ImportFacts, rules: Partial<ImportRules> = {}) =>
  judgeImport({ ...ANN, ...user }, facts, { ...UPDATE, ...rules })
const refused = (reason: string) => ({ outcome: 'refused', reason })

test('nobody with the external_id and the name: created', () => {
  expect(judge({}, NOBODY, { onExisting: 'fail' })).toEqual({ outcome: 'created' })
})

test.each([
  ['the user was deleted here', {}, { ...NOBODY, wasDeleted: true }, 'deleted'],
  [
    'the name is of a user with another external_id',
    {},
    { ...NOBODY, ofUsername: stored({ externalId: '2' }) },
    'username_taken',
  ],
  [
    'the name is of a user without an external_id',
    {},
    { ...NOBODY, ofUsername: stored({ externalId: '' }) },
    'username_taken',
  ],
  ['the external_id is of a user with another name', {}, known({ username: 'ben' }), 'other_username'],
  ["an identity is another user's", {}, known({}, 'other'), 'identity_taken'],
  ["an identity of a new user is another user's", {}, { ...NOBODY, owners: ['other'] }, 'identity_taken'],
] as const)('refused whatever the rules: %s', (_, user, facts, reason) => {
  for (const onExisting of ['fail', 'skip', 'update'] as const) {
    expect(judge(user, facts, { onExisting })).toEqual(refused(reason))
  }
})

test('nothing differs: unchanged whatever the rules, also when the password does', () => {
  for (const onExisting of ['fail', 'skip', 'update'] as const) {
    expect(judge({}, known({ passwordHash: 'of today' }), { onExisting })).toEqual({
      outcome: 'unchanged',
      userId: 'old',
    })
  }
})

test('something differs: refused, skipped or updated, as the rules say', () => {
  const facts = known({ nickname: 'A.' })
  expect(judge({}, facts, { onExisting: 'fail' })).toEqual(refused('exists'))
  expect(judge({}, facts, { onExisting: 'skip' })).toEqual({ outcome: 'skipped', userId: 'old' })
  expect(judge({}, facts)).toMatchObject({ outcome: 'updated', userId: 'old', profile: { nickname: 'Ann' } })
})

test('an update changes what differs and nothing else', () => {
  const nothing = {
    outcome: 'updated',
    userId: 'old',
    profile: {},
    isDisabled: false,
    passwordHash: undefined,
    link: [],
  }
  expect(judge({ avatar: 'a' }, known())).toEqual({ ...nothing, profile: { avatar: 'a' } })
  expect(judge({}, { ...known(), owners: [undefined] })).toEqual({ ...nothing, link: ANN.identities })
  expect(judge({ isDisabled: true }, known())).toEqual({ ...nothing, isDisabled: true })
})

test('what is not said of a user is kept, and what is said to be none is emptied', () => {
  const facts = known({ nickname: 'A.', avatar: 'a' })
  const unsaid = { nickname: undefined, avatar: undefined }
  expect(judge(unsaid, facts, { onExisting: 'fail' })).toEqual({ outcome: 'unchanged', userId: 'old' })
  const emptied = { nickname: '', avatar: '' }
  expect(judge(emptied, facts)).toMatchObject({ outcome: 'updated', profile: emptied })
})

test('who is disabled here stays disabled', () => {
  expect(judge({ isDisabled: false }, known({ isDisabled: true }))).toEqual({ outcome: 'unchanged', userId: 'old' })
})

test('a password is replaced only when that is asked for, and only by another one', () => {
  const facts = known({ passwordHash: 'of today' })
  expect(judge({}, facts, { replacesPasswords: true })).toMatchObject({ outcome: 'updated', passwordHash: 'hash' })
  expect(judge({ passwordHash: '' }, facts, { replacesPasswords: true })).toMatchObject({ outcome: 'unchanged' })
  expect(judge({}, known(), { replacesPasswords: true })).toMatchObject({ outcome: 'unchanged' })
})

test('without an external_id the name is the key, and without a name any name is right', () => {
  expect(judge({ externalId: '' }, known())).toMatchObject({ outcome: 'unchanged' })
  expect(judge({ externalId: '' }, { ...NOBODY, ofUsername: undefined })).toEqual({ outcome: 'created' })
  const nameless = { username: '~new' }
  expect(judge(nameless, { ...known({ username: 'ben' }), ofUsername: undefined })).toMatchObject({
    outcome: 'unchanged',
  })
})
