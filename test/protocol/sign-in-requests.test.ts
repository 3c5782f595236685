import { expect, test } from 'vitest'
import {
  judgeBeginning,
  judgeDecision,
  judgeReturn,
  MAX_SIGN_INS,
  type ReturnedSignIn,
} from '../../services/protocol/sign-in-requests.js'

const NOW = 1_767_225_600_000
const MINUTE = 60_000

const pending: ReturnedSignIn = {
  state: 'pending',
  provider: '',
  expiresAtMs: NOW + 1,
  asksToReauthenticate: false,
  subject: '',
  verifierExpiresAtMs: 0,
  linkTo: '',
  mayCreate: true,
}
const accepted: ReturnedSignIn = { ...pending, state: 'accepted', subject: 'ann', verifierExpiresAtMs: NOW + 1 }
const rejected: ReturnedSignIn = { ...pending, state: 'rejected', verifierExpiresAtMs: NOW + 1 }
const fresh: ReturnedSignIn = { ...pending, asksToReauthenticate: true }

test.each([
  ['begun', 0, 0],
  ['begun', MAX_SIGN_INS.inAll - 1, MAX_SIGN_INS.ofSource - 1],
  ['too_many', MAX_SIGN_INS.inAll, 0],
  ['too_many', 0, MAX_SIGN_INS.ofSource],
] as const)('a sign-in is %s where %i are in progress, %i of them of its source', (verdict, inAll, ofSource) => {
  expect(judgeBeginning({ inAll, ofSource })).toBe(verdict)
})

const ann = { provider: '', subject: 'ann', authenticatedAtMs: 0 }
const rejection = { ...ann, subject: '' }

test.each([
  ['decided', 'it is pending', pending, ann, false],
  ['decided', 'the same person is accepted again', accepted, ann, false],
  ['decided', 'it is rejected', pending, rejection, false],
  ['decided', 'it is rejected again', rejected, rejection, false],
  ['not_found', 'there is none', undefined, ann, false],
  ['not_found', 'it goes on elsewhere', { ...pending, provider: 'corp' }, ann, false],
  ['expired', 'it ends now', { ...pending, expiresAtMs: NOW }, ann, false],
  ['expired', 'it was accepted and ends now', { ...accepted, expiresAtMs: NOW }, ann, false],
  ['decided_otherwise', 'the browser has come back', { ...accepted, state: 'done' }, ann, false],
  ['decided_otherwise', 'the browser came back long ago', { ...accepted, state: 'done', expiresAtMs: 0 }, ann, false],
  ['decided_otherwise', 'another person was accepted', accepted, { ...ann, subject: 'bob' }, false],
  ['decided_otherwise', 'it was accepted, and is rejected', accepted, rejection, false],
  ['decided_otherwise', 'it was rejected, and is accepted', rejected, ann, false],
  ['not_fresh', 'nobody says when the person signed in', fresh, ann, false],
  ['not_fresh', 'that was too long ago', fresh, { ...ann, authenticatedAtMs: NOW - 5 * MINUTE - 1 }, false],
  ['decided', 'that was just in time', fresh, { ...ann, authenticatedAtMs: NOW - 5 * MINUTE }, false],
  ['decided', 'it is rejected, and nobody has signed in', fresh, rejection, false],
  ['user_disabled', 'the user is disabled', pending, ann, true],
] as const)('a decision is %s when %s', (verdict, _, signIn, decision, isUserDisabled) => {
  expect(judgeDecision(signIn, decision, isUserDisabled, NOW)).toBe(verdict)
})

const owner = { userId: 'user_ann', isDisabled: false }
const facts = { isSameBrowser: true, owner, isLinkedToHere: false }
const linking = { ...accepted, provider: 'corp', linkTo: 'user_ann' }

test.each([
  ['signed_in', 'the user may sign in', accepted, facts],
  ['created', 'the person is no user yet', accepted, { ...facts, owner: undefined }],
  ['no_account', 'they may not become one', { ...accepted, mayCreate: false }, { ...facts, owner: undefined }],
  ['user_disabled', 'the user is disabled', accepted, { ...facts, owner: { ...owner, isDisabled: true } }],
  ['unknown', 'the verifier is unknown', undefined, facts],
  ['unknown', 'this browser has used it up', { ...accepted, verifierExpiresAtMs: 0 }, facts],
  ['other_browser', 'another browser began', accepted, { ...facts, isSameBrowser: false }],
  [
    'other_browser',
    'another browser began what has expired',
    { ...accepted, expiresAtMs: 0 },
    { ...facts, isSameBrowser: false },
  ],
  ['expired', 'the verifier ends now', { ...accepted, verifierExpiresAtMs: NOW }, facts],
  ['expired', 'the sign-in ends now', { ...accepted, expiresAtMs: NOW }, facts],
  ['rejected', 'it was rejected', rejected, facts],
  ['linked', 'the identity is nobody’s', linking, { ...facts, owner: undefined, isLinkedToHere: true }],
  ['linked', 'the identity is the user’s already', linking, { ...facts, isLinkedToHere: true }],
  [
    'identity_taken',
    'the identity is another user’s',
    { ...linking, linkTo: 'user_bob' },
    { ...facts, isLinkedToHere: true },
  ],
  ['expired', 'the user to link to is no longer signed in there', linking, facts],
] as const)('a return is %s when %s', (verdict, _, signIn, about) => {
  expect(judgeReturn(signIn, about, NOW)).toBe(verdict)
})
