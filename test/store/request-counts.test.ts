import { expect, test } from 'vitest'
import { RequestCounts } from '../../services/token/store/sqlite/request-counts.js'

test('when there are too many counts, those whose windows end first are dropped', () => {
  const counts = new RequestCounts()
  const guesses = { key: 'sign-in', windowEndMs: 900_000, requests: 9 }
  counts.add(guesses)
  for (let client = 0; client < 450_000; client++)
    counts.add({ key: `client ${client}`, windowEndMs: 10_000, requests: 1 })
  expect(counts.add({ ...guesses, requests: 0 })).toBe(9)
  expect(counts.add({ key: 'client 0', windowEndMs: 10_000, requests: 0 })).toBe(0)
  expect(counts.add({ key: 'client 449999', windowEndMs: 10_000, requests: 0 })).toBe(1)
})

test('counts that were undone push no others out', () => {
  const counts = new RequestCounts()
  const guesses = { key: 'sign-in', windowEndMs: 900_000, requests: 9 }
  counts.add(guesses)
  for (let client = 0; client < 450_000; client++) {
    const refused = { key: `client ${client}`, windowEndMs: 900_000 }
    counts.add({ ...refused, requests: 1 })
    counts.add({ ...refused, requests: -1 })
  }
  expect(counts.add({ ...guesses, requests: 0 })).toBe(9)
})

test('windows that have ended make room for others', () => {
  const counts = new RequestCounts()
  for (let client = 0; client < 200_000; client++)
    counts.add({ key: `client ${client}`, windowEndMs: 10_000, requests: 1 })
  counts.removeEnded(10_001)
  const totals = ['one', 'another', 'one'].map((key) => counts.add({ key, windowEndMs: 20_000, requests: 1 }))
  expect(totals).toEqual([1, 1, 2])
})
