import { expect, test } from 'vitest'
import {
  expiriesOf,
  findExpiry,
  packTime,
  packTokens,
  unpackTokens,
} from '../../services/token/store/sqlite/grant-row.js'
import { hashOf, NOW } from './token-store-verbs.js'

const tokens = ['newest', 'second', 'first'].map((name, at) => ({ hash: hashOf(name), expiresAtMs: NOW + 3 - at }))

test('tokens come out as they were put in, and each is found by its hash', () => {
  const packed = packTokens(tokens)
  expect(unpackTokens(packed)).toEqual(tokens)
  expect(expiriesOf(packed)).toEqual([NOW + 3, NOW + 2, NOW + 1])
  for (const { hash, expiresAtMs } of tokens) expect(findExpiry(packed, hash)).toBe(expiresAtMs)
  expect(findExpiry(packed, hashOf('other'))).toBeUndefined()
  expect(unpackTokens(packTokens([]))).toEqual([])
})

test('a hash of another length is neither packed nor found', () => {
  for (const length of [0, 20, 31, 33]) {
    expect(() => packTokens([{ hash: new Uint8Array(length), expiresAtMs: NOW }])).toThrow(TypeError)
    expect(findExpiry(packTokens(tokens), new Uint8Array(length))).toBeUndefined()
  }
})

test('packed times sort as the times do, and times before 1970 become 1970', () => {
  const times = [-1, 0, 255, 256, 65_536, NOW, NOW + 1, 2 ** 48 - 1]
  const bytes = times.map(packTime)
  for (const [at, later] of bytes.slice(1).entries()) expect(bytes[at]?.compare(later)).toBe(at === 0 ? 0 : -1)
  expect(packTime(NOW)).toEqual(packTokens([{ hash: hashOf('a'), expiresAtMs: NOW }]).subarray(32))
})
