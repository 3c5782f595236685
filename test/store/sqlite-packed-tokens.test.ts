import { expect, test } from 'vitest'
import {
  addToken,
  expiriesOf,
  findExpiry,
  packTime,
  packToken,
} from '../../services/token/store/sqlite/packed-tokens.js'
import { ACCESS_TTL, hashOf, NOW, OVERLAP } from './token-store-verbs.js'

/** Tokens called by these names, minted a ms after each other. */
function packed(names: readonly string[], { maxLive = 10 } = {}): Buffer {
  let tokens: Buffer = Buffer.of()
  for (const [at, name] of names.entries()) tokens = add(tokens, name, { maxLive, now: NOW + at })
  return tokens
}

function add(tokens: Buffer, name: string, { overlapMs = OVERLAP, maxLive = 10, now = NOW }): Buffer {
  const minting = {
    refreshTokenHash: hashOf('refresh'),
    appid: 'app1',
    secretId: undefined,
    accessTokenHash: hashOf(name),
    accessTokenExpiresAtMs: now + ACCESS_TTL,
    overlapMs,
    maxLive,
  }
  return addToken(tokens, minting, now)
}

test('the newest token keeps its lifetime; earlier ones end with the overlap, unless they expire sooner', () => {
  const short = packToken(hashOf('short'), NOW + 7)
  const tokens = add(add(short, 'long', {}), 'newest', { now: NOW + 1 })
  expect(expiriesOf(tokens)).toEqual([NOW + 1 + ACCESS_TTL, NOW + 1 + OVERLAP, NOW + 7])
  expect(['newest', 'long', 'short', 'other'].map((name) => findExpiry(tokens, hashOf(name)))).toEqual([
    ...expiriesOf(tokens),
    undefined,
  ])
})

test('a token that ends now is dropped, and without an overlap so are all earlier ones', () => {
  const tokens = packed(['a', 'b', 'c'])
  expect(expiriesOf(add(tokens, 'd', { now: NOW + 2 + OVERLAP }))).toHaveLength(2) // c, which was the newest, and d
  expect(expiriesOf(add(tokens, 'd', { now: NOW + 1 + OVERLAP }))).toHaveLength(3)
  expect(expiriesOf(add(tokens, 'd', { now: NOW + OVERLAP }))).toHaveLength(4)
  expect(expiriesOf(add(tokens, 'd', { overlapMs: 0 }))).toEqual([NOW + ACCESS_TTL])
})

test('only the newest tokens stay, up to the maximum', () => {
  const names = Array.from({ length: 9 }, (_, n) => String(n))
  const tokens = packed(names, { maxLive: 4 })
  expect(names.filter((name) => findExpiry(tokens, hashOf(name)) !== undefined)).toEqual(['5', '6', '7', '8'])
  expect(expiriesOf(add(tokens, 'only', { maxLive: 1 }))).toHaveLength(1)
})

test('a hash of another length is neither packed nor found', () => {
  for (const length of [0, 20, 31, 33]) {
    expect(() => packToken(new Uint8Array(length), NOW)).toThrow(TypeError)
    expect(findExpiry(packed(['a']), new Uint8Array(length))).toBeUndefined()
  }
})

test('packed times sort as the times do, and times before 1970 become 1970', () => {
  const times = [-1, 0, 255, 256, 65_536, NOW, NOW + 1, 2 ** 48 - 1]
  const bytes = times.map(packTime)
  for (const [at, later] of bytes.slice(1).entries()) expect(bytes[at]?.compare(later)).toBe(at === 0 ? 0 : -1)
  expect(packTime(NOW)).toEqual(packToken(hashOf('a'), NOW).subarray(32))
})
