import { describe, expect, test } from 'vitest'
import type { Authentication } from '../../services/protocol/authentication.js'
import {
  type IssuingFacts,
  isChallengeGood,
  judgeIssuing,
  judgeRedemption,
  replayEffect,
  type StoredCode,
} from '../../services/protocol/codes.js'

const NOW = 1_767_225_600_000
const CALLBACK = 'https://app.example/callback'
const GRACE = 10_000

const app: Authentication = { app: { isDisabled: false, requiresSecretOnRefresh: false }, secretEndsAtMs: Infinity }
const good = { redirectUri: CALLBACK, expiresAtMs: NOW + 1, isEnded: false, isUserLive: true }
const unused = { isUsed: false, codeChallenge: '', ...good } as const
const used = { isUsed: true, usedAtMs: NOW - GRACE, expiresAtMs: NOW + 1 } as const

describe('an exchange', () => {
  test.each<[string, string, Authentication, StoredCode | undefined, string | undefined]>([
    ['redeemed', 'everything is good', app, unused, undefined],
    ['redeemed', 'the redirect_uri is that of the code', app, unused, CALLBACK],
    ['refused', 'the redirect_uri is another', app, unused, `${CALLBACK}/`],
    ['refused', 'the code is unknown or another app’s', app, undefined, undefined],
    ['refused', 'it expires now', app, { ...unused, expiresAtMs: NOW }, undefined],
    ['refused', 'it expired a ms ago', app, { ...unused, expiresAtMs: NOW - 1 }, undefined],
    ['refused', 'it was ended', app, { ...unused, isEnded: true }, undefined],
    ['refused', 'its user is disabled', app, { ...unused, isUserLive: false }, undefined],
    ['app_ended', 'the app is unknown', { ...app, app: undefined }, unused, undefined],
    ['app_ended', 'the app is told first', { ...app, app: undefined }, undefined, undefined],
    ['secret_ended', 'the secret ends now', { ...app, secretEndsAtMs: NOW }, unused, undefined],
    ['secret_ended', 'a replay comes with a wrong secret', { ...app, secretEndsAtMs: 0 }, used, undefined],
    [
      'forgiven',
      'a replay comes a ms before the end of the grace',
      app,
      { ...used, usedAtMs: NOW - GRACE + 1 },
      undefined,
    ],
    ['ends_grant', 'a replay comes at the end of the grace', app, used, undefined],
    ['ends_grant', 'a replay names another redirect_uri', app, used, 'https://other.example'],
    ['too_late', 'a replay comes when the code expires', app, { ...used, expiresAtMs: NOW }, undefined],
    ['too_late', 'a replay comes a ms later', app, { ...used, expiresAtMs: NOW - 1 }, undefined],
  ])('is %s when %s', (verdict, _, authentication, code, redirectUri) => {
    expect(judgeRedemption(authentication, code, { redirectUri, codeChallenge: '', replayGraceMs: GRACE }, NOW)).toBe(
      verdict,
    )
  })

  test.each([
    ['redeemed', 'its verifier is that of the challenge', 'challenge', 'challenge'],
    ['refused', 'its verifier is another', 'challenge', 'another'],
    ['refused', 'it has no verifier, and the code a challenge', 'challenge', ''],
    ['refused', 'it has a verifier, and the code no challenge', '', 'challenge'],
    ['redeemed', 'neither has any', '', ''],
  ])('is %s when %s', (verdict, _, codeChallenge, ofVerifier) => {
    const asked = { redirectUri: undefined, codeChallenge: ofVerifier, replayGraceMs: GRACE }
    expect(judgeRedemption(app, { ...unused, codeChallenge }, asked, NOW)).toBe(verdict)
  })

  test('that is a replay revokes its grant, unless that is revoked already', () => {
    expect(replayEffect('ends_grant', false)).toBe('revoked_grant')
    expect(replayEffect('ends_grant', true)).toBe('already_revoked')
    for (const verdict of ['forgiven', 'too_late'] as const) expect(replayEffect(verdict, false)).toBe(verdict)
  })
})

describe('a code', () => {
  const facts: IssuingFacts = {
    app: { isDisabled: false, redirectUris: ['https://other.example', CALLBACK] },
    isSessionOpen: true,
    existing: undefined,
  }
  test.each<[string, string, Partial<IssuingFacts>]>([
    ['issued', 'everything is good', {}],
    ['app_ended', 'the app is unknown', { app: undefined }],
    ['app_ended', 'the app is disabled', { app: { isDisabled: true, redirectUris: [CALLBACK] } }],
    ['redirect_uri_ended', 'the app has it no more', { app: { isDisabled: false, redirectUris: [] } }],
    ['session_ended', 'the session is over', { isSessionOpen: false }],
    ['session_ended', 'it is over although the form was confirmed before', { isSessionOpen: false, existing: unused }],
    ['exists_live', 'the form was confirmed before', { existing: unused }],
    ['exists_ended', 'its code expires now', { existing: { ...unused, expiresAtMs: NOW } }],
    ['exists_ended', 'its code was ended', { existing: { ...unused, isEnded: true } }],
    ['exists_ended', 'its code was used', { existing: used }],
  ])('is %s when %s', (verdict, _, change) => {
    expect(judgeIssuing({ ...facts, ...change }, CALLBACK, NOW)).toBe(verdict)
  })
})

describe('a code_challenge', () => {
  const challenge = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM' // RFC 7636, appendix B
  test.each([
    ['good', 'it is the S256 of a verifier', challenge, 'S256'],
    ['bad', 'the method is left out, which means plain', challenge, ''],
    ['bad', 'the method is plain', challenge, 'plain'],
    ['bad', 'the method is in lower case', challenge, 's256'],
    ['bad', 'it is a character short', challenge.slice(1), 'S256'],
    ['bad', 'it is a character too long', `${challenge}A`, 'S256'],
    ['bad', 'it is base64', challenge.replace('-', '+'), 'S256'],
    ['bad', 'only the method is there', '', 'S256'],
  ])('is %s when %s', (verdict, _, codeChallenge, codeChallengeMethod) => {
    for (const isRequired of [false, true])
      expect(isChallengeGood({ codeChallenge, codeChallengeMethod }, isRequired)).toBe(verdict === 'good')
  })

  test('may be absent unless the app must send it', () => {
    const absent = { codeChallenge: '', codeChallengeMethod: '' }
    expect([isChallengeGood(absent, false), isChallengeGood(absent, true)]).toEqual([true, false])
  })
})
