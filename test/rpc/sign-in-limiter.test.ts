import { expect, test } from 'vitest'
import { createSignInLimiter } from '../../services/token/sign-in-limiter.js'

const LIMITS = { perAccountAndSource: 2, perSource: 3, windowSeconds: 60 }

function limiter(options: { failsAt?: (call: number) => boolean } = {}) {
  const counts = new Map<string, number>()
  let calls = 0
  const store = {
    async countRequests(added: readonly { readonly key: string; readonly requests: number }[]) {
      calls += 1
      if (options.failsAt?.(calls)) throw new Error('the store is away')
      return added.map(({ key, requests }) => {
        counts.set(key, (counts.get(key) ?? 0) + requests)
        return counts.get(key) ?? 0
      })
    },
  }
  const { counted } = createSignInLimiter(LIMITS, store, () => 0)
  return {
    attempt: (answer: () => string | undefined, username = 'ann') =>
      counted(username, '192.0.2.1', async () => answer()),
    ofSource: () => counts.get('sign-in 192.0.2.1'),
  }
}

const wrong = () => undefined
const right = () => 'session'
const broken = () => {
  throw new Error('the database is away')
}

test('lets so many wrong passwords through and no more, of an account and of a source', async () => {
  const { attempt } = limiter()
  for (let i = 0; i < 2; i += 1) expect(await attempt(wrong)).toBeUndefined()
  await expect(attempt(right)).rejects.toThrow('too many failed sign-ins')
  expect(await attempt(wrong, 'ben')).toBeUndefined()
  await expect(attempt(right, 'ben')).rejects.toThrow('too many failed sign-ins')
  await expect(attempt(right, 'cleo')).rejects.toThrow('too many failed sign-ins')
})

test('refuses more at once than may fail, and counts nothing of them', async () => {
  const { attempt, ofSource } = limiter()
  const outcomes = await Promise.allSettled(Array.from({ length: 9 }, () => attempt(right)))
  expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
  expect(ofSource()).toBe(0)
})

test('counts nothing that was no wrong password', async () => {
  const { attempt, ofSource } = limiter()
  for (let i = 0; i < 9; i += 1) await expect(attempt(broken)).rejects.toThrow('the database is away')
  expect(await attempt(right)).toBe('session')
  expect(ofSource()).toBe(0)
})

test('says what failed when the attempt cannot be taken back either', async () => {
  const { attempt } = limiter({ failsAt: (call) => call > 1 })
  await expect(attempt(broken)).rejects.toThrow('the database is away')
})
