import { expect, test } from 'vitest'
import { isGoodFor } from '../../services/protocol/access-token.js'
import { endOfSecret } from '../../services/protocol/authentication.js'
import { judgeSession } from '../../services/protocol/sessions.js'

const NOW = 1_767_225_600_000
const HOUR = 3_600_000

test.each([
  ['ended', 'its end is now', { lastSeenAtMs: NOW, expiresAtMs: NOW }, HOUR],
  ['goes_on', 'its end is a ms from now', { lastSeenAtMs: NOW, expiresAtMs: NOW + 1 }, HOUR],
  ['ended', 'nothing happened for the idle time', { lastSeenAtMs: NOW - HOUR, expiresAtMs: NOW + HOUR }, HOUR],
  [
    'goes_on_and_is_touched',
    'nothing happened for a ms less',
    { lastSeenAtMs: NOW - HOUR + 1, expiresAtMs: NOW + 1 },
    HOUR,
  ],
  ['goes_on', 'the last record is younger than a minute', { lastSeenAtMs: NOW - 59_999, expiresAtMs: NOW + 1 }, HOUR],
  ['goes_on_and_is_touched', 'it is a minute old', { lastSeenAtMs: NOW - 60_000, expiresAtMs: NOW + 1 }, HOUR],
  [
    'goes_on_and_is_touched',
    'it is a quarter of the idle time old',
    { lastSeenAtMs: NOW - 5_000, expiresAtMs: NOW + 1 },
    20_000,
  ],
] as const)('a session %s when %s', (verdict, _, session, idleMs) => {
  expect(judgeSession(session, idleMs, NOW)).toBe(verdict)
})

test.each([
  [true, 'it ends a ms from now', { appid: 'a', expiresAtMs: NOW + 1, isRevoked: false }],
  [false, 'it ends now', { appid: 'a', expiresAtMs: NOW, isRevoked: false }],
  [false, 'it ended a ms ago', { appid: 'a', expiresAtMs: NOW - 1, isRevoked: false }],
  [false, 'it is revoked', { appid: 'a', expiresAtMs: NOW + 1, isRevoked: true }],
  [false, 'it is another app’s', { appid: 'b', expiresAtMs: NOW + 1, isRevoked: false }],
  [false, 'it is unknown', undefined],
] as const)('an access token is good: %s, when %s', (isGood, _, token) => {
  expect(isGoodFor('a', token, NOW)).toBe(isGood)
})

test('a secret ends when it was revoked, expires, or never', () => {
  expect(endOfSecret({ expiresAtMs: NOW + 1, revokedAtMs: NOW })).toBe(0)
  expect(endOfSecret({ expiresAtMs: NOW, revokedAtMs: undefined })).toBe(NOW)
  expect(endOfSecret({ expiresAtMs: undefined, revokedAtMs: undefined })).toBe(Infinity)
})
