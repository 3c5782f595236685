import { expect } from 'vitest'
import type { TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import { DAY, NOW } from '../token-store-verbs.js'

const MINUTE = 60_000
const END = NOW + MINUTE

export const rateChecks: readonly Check<TokenStore>[] = [
  {
    title: 'requests are counted per key, and the totals come in the order of the keys asked for',
    async run(store) {
      const count = (key: string, requests: number) => ({ key, windowEndMs: END, requests })
      expect(await store.countRequests([count('b', 2), count('a', 1)])).toEqual([2, 1])
      expect(await store.countRequests([count('a', 5), count('b', 0), count('c', 3)])).toEqual([6, 2, 3])
    },
  },
  {
    title: 'requests counted concurrently are all counted',
    async run(store) {
      const one = () => store.countRequests([{ key: 'a', windowEndMs: END, requests: 1 }])
      const totals = (await Promise.all(Array.from({ length: 50 }, one))).flat()
      expect(totals.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, index) => index + 1))
    },
  },
  {
    title: 'windows of one key are counted separately, even beside one from a clock that is ahead',
    async run(store) {
      const count = (windowEndMs: number) => store.countRequests([{ key: 'a', windowEndMs, requests: 3 }])
      await count(END)
      expect(await count(END + DAY)).toEqual([3])
      expect(await count(END)).toEqual([6])
      expect(await count(END + DAY)).toEqual([6])
    },
  },
  {
    title: 'requests can be taken back from a count, which never falls below zero',
    async run(store) {
      const count = (requests: number, windowEndMs = END) => store.countRequests([{ key: 'a', windowEndMs, requests }])
      await count(5)
      expect(await count(-2)).toEqual([3])
      expect(await count(-1, END + MINUTE)).toEqual([0])
      expect(await count(-9)).toEqual([0])
    },
  },
  {
    title: 'a count stops at 2^31 - 1, the most that its answer can hold',
    async run(store) {
      const count = (requests: number) => store.countRequests([{ key: 'a', windowEndMs: END, requests }])
      expect(await count(2 ** 31 - 1)).toEqual([2 ** 31 - 1])
      expect(await count(1)).toEqual([2 ** 31 - 1])
      expect(await count(-1)).toEqual([2 ** 31 - 2])
    },
  },
  {
    title: 'counts of windows that have ended are removed, others are not',
    async run(store) {
      await store.countRequests([
        { key: 'ended', windowEndMs: END, requests: 1 },
        { key: 'open', windowEndMs: END + 1, requests: 1 },
      ])
      const bounds = { endedBeforeMs: END + 1, limit: 2 }
      expect(await store.removeRequestCounts(bounds)).toBe(1)
      expect(await store.removeRequestCounts(bounds)).toBe(0)
      const counts = [
        { key: 'ended', windowEndMs: END, requests: 0 },
        { key: 'open', windowEndMs: END + 1, requests: 0 },
      ]
      expect(await store.countRequests(counts)).toEqual([0, 1])
    },
  },
]
