import { expect, test } from 'vitest'
import { surplusOf } from '../../services/protocol/surplus.js'

const NOW = 1_767_225_600_000
const LATER = NOW + 60_000

const row = (id: string, beganAtMs: number, expiresAtMs = LATER) => ({ id, beganAtMs, expiresAtMs })

test.each([
  ['none while there is room for one more', [row('a', 1), row('b', 2)], 3, []],
  ['the oldest when there are as many as may be', [row('a', 1), row('b', 2), row('c', 3)], 3, ['a']],
  ['the oldest, whatever their order', [row('c', 3), row('a', 1), row('b', 2)], 2, ['a', 'b']],
  ['all when there may be one', [row('a', 1), row('b', 2)], 1, ['a', 'b']],
  ['as many as make room, of those that began at once', [row('a', 1), row('b', 1), row('c', 1)], 3, ['a']],
  ['none for what expires now or has expired', [row('a', 1), row('b', 2, NOW), row('c', 3, NOW - 1)], 2, []],
  ['one for what expires a ms from now', [row('a', 1, NOW + 1), row('b', 2)], 2, ['a']],
  ['none without any', [], 1, []],
] as const)('surplus is %s', (_, open, max, surplus) => {
  expect(surplusOf(open, max, NOW).map(({ id }) => id)).toEqual(surplus)
})
