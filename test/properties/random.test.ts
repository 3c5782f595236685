import { expect, test } from 'vitest'
import { pooledRandomBytes } from '../../bin/compose/time-and-chance.js'

test('random bytes have the size asked for, and do not repeat', () => {
  const randomBytes = pooledRandomBytes()
  const given = Array.from({ length: 2_000 }, (_, index) => randomBytes(8 + (index % 57)))
  expect(given.map(({ length }) => length)).toEqual(given.map((_, index) => 8 + (index % 57)))
  const starts = new Set(given.map((bytes) => Buffer.from(bytes.subarray(0, 8)).toString('hex')))
  expect(starts.size).toBe(given.length)
  expect(randomBytes(10_000)).toHaveLength(10_000)
  expect(new Set(randomBytes(10_000)).size).toBe(256)
})

test('random bytes share no memory with those given to others', () => {
  const randomBytes = pooledRandomBytes()
  const first = randomBytes(32)
  const copy = Uint8Array.from(first)
  const others = Array.from({ length: 500 }, () => randomBytes(32))
  for (const other of others) other.fill(0)
  expect(first).toEqual(copy)
  expect(first.buffer.byteLength).toBe(32)
})
