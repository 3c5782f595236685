import { expect, test } from 'vitest'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'
import { MINUTE, NOW } from './token-store-verbs.js'

type Uses = Parameters<TokenStore['recordUses']>[0]

test('uses that could not be written are written with the next ones, each with its latest time', async () => {
  const written: Uses[] = []
  let isAway = true
  const uses = createUseRecorder({
    async recordUses(taken: Uses) {
      if (isAway) throw new Error('the database is away')
      written.push(taken)
    },
  } as unknown as TokenStore)
  const use = (atMs: number, ids: readonly string[]) => {
    for (const id of ids) {
      uses.grantUsed(`grant ${id}`, atMs, NOW - MINUTE)
      uses.answersRead(`grant ${id}`, atMs, 0)
      uses.secretUsed(`secret ${id}`, atMs, undefined)
    }
  }
  use(NOW, ['before', 'both'])
  const flushed = uses.flush()
  use(NOW + MINUTE, ['both', 'after']) // while the others are written
  await expect(flushed).rejects.toThrow('the database is away')
  isAway = false
  await uses.flush()
  await uses.flush()
  const latest = (of: string) => new Map(['before', 'both', 'after'].map((id) => [`${of} ${id}`, NOW + MINUTE]))
  expect(written).toEqual([
    {
      grants: latest('grant').set('grant before', NOW),
      answers: latest('grant').set('grant before', NOW),
      secrets: latest('secret').set('secret before', NOW),
    },
  ])
})

test('a use is recorded only if the last known one is at least a minute old', () => {
  const uses = createUseRecorder({} as TokenStore)
  const isWritten = (lastUseMs: number | undefined) => uses.secretUsed('secret', NOW, lastUseMs)
  expect([undefined, NOW - MINUTE, NOW - MINUTE + 1, NOW].map(isWritten)).toEqual([true, true, false, false])
})

test('when as many uses are collected as may be, those are still updated, and no others are added', () => {
  const uses = createUseRecorder({} as TokenStore)
  for (let n = 0; n < 100_000; n++) uses.secretUsed(`secret ${n}`, NOW, undefined)
  expect(uses.secretUsed('secret 0', NOW + MINUTE, NOW)).toBe(true)
  expect(uses.secretUsed('another', NOW + MINUTE, NOW)).toBe(false)
})

test('however often writing fails, no more uses are kept than may be collected', async () => {
  const sizes: number[] = []
  let uses = 0
  const collectMany = () => {
    for (let n = 0; n < 100_000; n++) recorder.grantUsed(`grant ${uses++}`, NOW, NOW - MINUTE)
  }
  const recorder = createUseRecorder({
    async recordUses({ grants }: Uses) {
      sizes.push(grants.size)
      collectMany() // while these are written
      throw new Error('the disk is full')
    },
  } as unknown as TokenStore)
  collectMany()
  for (let round = 0; round < 3; round++) await expect(recorder.flush()).rejects.toThrow('the disk is full')
  expect(sizes).toEqual([100_000, 100_000, 100_000])
})

test('a grant in constant use has one use a minute recorded, and the time of a clock that was briefly wrong is corrected', async () => {
  const written: number[] = []
  const uses = createUseRecorder({
    async recordUses({ grants }: Uses) {
      written.push(...grants.values())
    },
  } as unknown as TokenStore)
  const useFor = (seconds: number, from: number) => {
    for (let second = 0; second < seconds; second++) uses.grantUsed('grant', from + second * 1000, NOW)
  }
  useFor(150, NOW)
  await uses.flush()
  useFor(1, NOW + 60 * MINUTE)
  useFor(30, NOW + 3 * MINUTE)
  await uses.flush()
  expect(written).toEqual([NOW + 2 * MINUTE, NOW + 3 * MINUTE])
})
