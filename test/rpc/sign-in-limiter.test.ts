import { expect, test } from 'vitest'
import { createSignInLimiter } from '../../services/token/sign-in-limiter.js'

const LIMITS = { perAccountAndSource: 2, perSource: 3, windowSeconds: 60 }

function limiter(options: { failsAt?: (call: number) => boolean; nowMs?: number } = {}) {
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
  const { counted } = createSignInLimiter(LIMITS, store, () => options.nowMs ?? 0)
  return {
    attempt: (answer: () => string | undefined, username = 'ann', source = '192.0.2.1') =>
      counted(username, source, async () => answer()),
    ofSource: () => counts.get('sign-in 192.0.2.1'),
  }
}

const wrong = () => undefined
const right = () => 'session'
const broken = () => {
  throw new Error('the database is away')
}

test('after too many wrong passwords an account, and then its source, is refused even the right one', async () => {
  const { attempt } = limiter()
  for (let i = 0; i < 2; i += 1) expect(await attempt(wrong)).toBeUndefined()
  await expect(attempt(right)).rejects.toThrow('too many failed sign-ins')
  expect(await attempt(wrong, 'ben')).toBeUndefined()
  await expect(attempt(right, 'ben')).rejects.toThrow('too many failed sign-ins')
  await expect(attempt(right, 'cleo')).rejects.toThrow('too many failed sign-ins')
})

test('failures are counted per account and source, even where the two run together to the same text', async () => {
  const { attempt } = limiter()
  for (let i = 0; i < 2; i += 1) await attempt(wrong, 'ann1', '92.0.2.1')
  expect(await attempt(right, 'ann', '192.0.2.1')).toBe('session')
})

test('a right password clears the failures of its account, but not those of its source', async () => {
  const { attempt, ofSource } = limiter()
  await attempt(wrong)
  expect(await attempt(right)).toBe('session')
  expect(ofSource()).toBe(1)
  for (let i = 0; i < 2; i += 1) expect(await attempt(wrong)).toBeUndefined()
})

test.each([
  [0, 60],
  [14_001, 46],
  [59_999, 1],
])('an attempt refused %i ms into the window is told to retry after %i s', async (nowMs, retryAfterSeconds) => {
  const { attempt } = limiter({ nowMs })
  for (let i = 0; i < 2; i += 1) await attempt(wrong)
  await expect(attempt(right)).rejects.toMatchObject({ options: { retryAfterSeconds } })
})

test('no more attempts run at the same time than may fail, and refused ones are not counted', async () => {
  const { attempt, ofSource } = limiter()
  const outcomes = await Promise.allSettled(Array.from({ length: 9 }, () => attempt(right)))
  expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
  expect(ofSource()).toBe(0)
})

test('only wrong passwords are counted, not other failures', async () => {
  const { attempt, ofSource } = limiter()
  for (let i = 0; i < 9; i += 1) await expect(attempt(broken)).rejects.toThrow('the database is away')
  expect(await attempt(right)).toBe('session')
  expect(ofSource()).toBe(0)
})

test('when an attempt fails and its count cannot be undone, the failure of the attempt is reported', async () => {
  const { attempt } = limiter({ failsAt: (call) => call > 1 })
  await expect(attempt(broken)).rejects.toThrow('the database is away')
})

test('a right password is not refused when the failures before it cannot be forgotten', async () => {
  const { attempt } = limiter({ failsAt: (call) => call > 1 })
  expect(await attempt(right)).toBe('session')
})
