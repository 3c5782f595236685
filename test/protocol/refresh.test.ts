import { describe, expect, test } from 'vitest'
import type { Authentication } from '../../services/protocol/authentication.js'
import {
  judgeRefresh,
  MAX_LIVE_TOKENS,
  type RefreshedGrant,
  type StoredToken,
  sharingWindowMs,
  type TokenTerms,
} from '../../services/protocol/refresh.js'

const NOW = 1_767_225_600_000
const LIFETIME = 259_200_000
const OVERLAP = 300_000
const WINDOW = 37_500

const hashOfTokenEndingAt = (expiresAtMs: number) => Buffer.from(String(expiresAtMs).padStart(32))
const terms: TokenTerms = { lifetimeMs: LIFETIME, overlapMs: OVERLAP, hashOfTokenEndingAt }
const token = (expiresAtMs: number): StoredToken => ({ hash: hashOfTokenEndingAt(expiresAtMs), expiresAtMs })
const ofExchange: StoredToken = { hash: Buffer.alloc(32, 1), expiresAtMs: NOW + LIFETIME }
const app: Authentication = {
  app: { isDisabled: false, requiresSecretOnRefresh: false },
  secretEndsAtMs: undefined,
}
const grant: RefreshedGrant = { expiresAtMs: NOW + 1, isRevoked: false, isUserLive: true, tokens: [ofExchange] }

describe('a refresh', () => {
  test.each<[string, string, Authentication, RefreshedGrant | undefined]>([
    ['minted', 'everything is good', app, grant],
    ['refused', 'the refresh token is unknown or another app’s', app, undefined],
    ['minted', 'it ends a ms from now', app, grant],
    ['refused', 'it ends now', app, { ...grant, expiresAtMs: NOW }],
    ['refused', 'it ended a ms ago', app, { ...grant, expiresAtMs: NOW - 1 }],
    ['refused', 'the grant is revoked', app, { ...grant, isRevoked: true }],
    ['refused', 'the user is disabled', app, { ...grant, isUserLive: false }],
    ['app_ended', 'the app is unknown', { ...app, app: undefined }, grant],
    ['app_ended', 'the app is disabled', { ...app, app: { isDisabled: true, requiresSecretOnRefresh: false } }, grant],
    ['app_ended', 'the app is told first', { ...app, app: undefined }, undefined],
    ['minted', 'the secret ends a ms from now', { ...app, secretEndsAtMs: NOW + 1 }, grant],
    ['secret_ended', 'the secret ends now', { ...app, secretEndsAtMs: NOW }, grant],
    ['secret_ended', 'the secret is unknown', { ...app, secretEndsAtMs: 0 }, grant],
    [
      'secret_ended',
      'no secret was sent and the app must',
      { ...app, app: { isDisabled: false, requiresSecretOnRefresh: true } },
      grant,
    ],
  ])('is %s when %s', (kind, _, authentication, found) => {
    expect(judgeRefresh(authentication, found, terms, NOW).kind).toBe(kind)
  })

  test.each([
    [WINDOW - 1, 'shared'],
    [WINDOW, 'minted'],
    [WINDOW + 1, 'minted'],
    [1 - WINDOW, 'shared'],
    [-WINDOW, 'minted'],
    [-WINDOW - 1, 'minted'],
  ])('%i ms after the newest token was minted is %s', (after, kind) => {
    const newest = token(NOW + LIFETIME - after)
    const verdict = judgeRefresh(app, { ...grant, tokens: [newest, ofExchange] }, terms, NOW)
    expect(verdict).toMatchObject({ kind, expiresAtMs: kind === 'shared' ? newest.expiresAtMs : NOW + LIFETIME })
  })

  test('shares neither the token of the exchange, nor one that is not the newest, nor one whose end was changed', () => {
    for (const tokens of [
      [ofExchange],
      [ofExchange, token(NOW + LIFETIME)],
      [{ ...token(NOW + LIFETIME), expiresAtMs: NOW + LIFETIME - 1 }],
    ]) {
      expect(judgeRefresh(app, { ...grant, tokens }, terms, NOW).kind).toBe('minted')
    }
  })

  test('ends earlier tokens with the overlap, if they do not end sooner, and drops those that have ended', () => {
    const ends = [NOW + OVERLAP + 1, NOW + OVERLAP, NOW + OVERLAP - 1, NOW + 1, NOW, NOW - 1]
    const tokens = ends.map((expiresAtMs, n) => ({ hash: Buffer.alloc(32, n), expiresAtMs }))
    const verdict = judgeRefresh(app, { ...grant, tokens }, terms, NOW)
    const left = [LIFETIME, OVERLAP, OVERLAP, OVERLAP - 1, 1].map((ms) => NOW + ms)
    expect(verdict.kind === 'minted' && verdict.tokens.map(({ expiresAtMs }) => expiresAtMs)).toEqual(left)
    const none = judgeRefresh(app, { ...grant, tokens }, { ...terms, overlapMs: 0 }, NOW)
    expect(none.kind === 'minted' && none.tokens).toEqual([token(NOW + LIFETIME)])
  })

  test.each([
    ['by the contract', LIFETIME, OVERLAP],
    ['without an overlap', LIFETIME, 0],
    ['with tokens shorter than the overlap', 60_000, OVERLAP],
    ['with tokens of a second', 1_000, 0],
    ['with an overlap as long as the token', OVERLAP, OVERLAP],
  ])(
    '%s: whatever was handed out is good for the overlap or its lifetime but for an eighth, and ten live at most',
    (_, lifetimeMs, overlapMs) => {
      const own = { ...terms, lifetimeMs, overlapMs }
      const window = sharingWindowMs(own)
      expect(window).toBe(Math.min(lifetimeMs, Math.max(overlapMs, 8_000)) / 8)
      let tokens: readonly StoredToken[] = [{ hash: Buffer.alloc(32, 1), expiresAtMs: NOW + lifetimeMs }]
      const handedOut = new Map<number, StoredToken>()
      for (let now = NOW + 1; now < NOW + 40 * window; now += Math.ceil(window / 3)) {
        const verdict = judgeRefresh(app, { ...grant, expiresAtMs: Infinity, tokens }, own, now)
        if (verdict.kind === 'minted') tokens = verdict.tokens
        const [newest] = tokens
        if (newest) handedOut.set(now, newest)
        expect(tokens.length).toBeLessThan(MAX_LIVE_TOKENS)
        for (const [at, { hash }] of handedOut) {
          const end = at + Math.min(overlapMs, (lifetimeMs * 7) / 8)
          if (now < end) expect(tokens.find((one) => one.hash === hash)?.expiresAtMs).toBeGreaterThanOrEqual(end)
        }
      }
    },
  )
})
