import { readdirSync, readFileSync } from 'node:fs'
import { getPriority } from 'node:os'
import { expect, test, vi } from 'vitest'
import type { ServiceError } from '../../services/rpc/service-error.js'
import { createPasswordHasher } from '../../services/token/password/hasher.js'
import { inThread, startHashingThreads } from '../../services/token/password/threads.js'
import { freezeTime } from '../harness/freeze-time.js'

const CHEAP = { memoryCost: 8, timeCost: 1, parallelism: 1 }
const hash = (password: string) => inThread('argon2Hash', password, CHEAP)

test('a hash matches its own password and no other', async () => {
  const [ann, ben] = await Promise.all([hash('of ann'), hash('of ben')])
  expect(await Promise.all([inThread('argon2Verify', ann, 'of ann'), inThread('argon2Verify', ben, 'of ann')])).toEqual(
    [true, false],
  )
})

test('a password is hashed at the cost that OWASP recommends, and to a different hash each time', async () => {
  const { hash } = createPasswordHasher({ concurrency: 1, queueLimit: 1 })
  const hashes = await Promise.all([hash('of ann'), hash('of ann')])
  for (const one of hashes) expect(one).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
  expect(new Set(hashes).size).toBe(2)
})

test('a password of an unknown user does not match', async () => {
  const { inQueue } = createPasswordHasher({ concurrency: 1, queueLimit: 0, cost: CHEAP })
  expect(await inQueue(({ compare }) => compare(undefined, 'no user has this password'))).toBe(false)
})

test('a password matches as it was typed, as other systems have hashed it, and composed, as it is hashed here', async () => {
  const { hash: own, inQueue } = createPasswordHasher({ concurrency: 1, queueLimit: 0, cost: CHEAP })
  const [asTyped, composed] = ['cafe\u0301 noir', 'caf\u00e9 noir']
  const [ofOthers, ours] = [await hash(asTyped), await own(asTyped)]
  const matches = (of: string, password: string) => inQueue(({ compare }) => compare(of, password))
  expect(await matches(ofOthers, asTyped)).toBe(true)
  expect(await matches(ofOthers, composed)).toBe(false)
  expect(await matches(ours, asTyped)).toBe(true)
  expect(await matches(ours, composed)).toBe(true)
})

test('a hash of another cost or algorithm is not one that is made here', async () => {
  const { hash: own, isOwn } = createPasswordHasher({ concurrency: 1, queueLimit: 0, cost: CHEAP })
  expect(isOwn(await own('of ann'))).toBe(true)
  expect(isOwn(await createPasswordHasher({ concurrency: 1, queueLimit: 0 }).hash('of ann'))).toBe(false)
  expect(isOwn('$2b$04$MTd6izpdlIQgrDX/.ePX4.YCDq/maaKk2T5/HXI4g2q65lU4jmLLK')).toBe(false)
})

test('only as many are admitted as may run and wait, and one that fails makes room for the next', async () => {
  const { hash, inQueue } = createPasswordHasher({ concurrency: 2, queueLimit: 1, cost: CHEAP })
  const leave: (() => void)[] = []
  const enter = () => inQueue(() => new Promise<void>((_, reject) => leave.push(() => reject(new Error('gone')))))
  const inside = [enter(), enter(), enter()]
  await expect(enter()).rejects.toThrow('too many sign-ins at once')
  await expect(hash('of ann')).rejects.toThrow('too many sign-ins at once')
  for (const go of leave.splice(0)) go()
  for (const one of inside) await expect(one).rejects.toThrow('gone')
  const next = [enter(), enter(), enter()]
  for (const go of leave) go()
  for (const one of next) await expect(one).rejects.toThrow('gone')
})

test('those who are refused are told to come again one after the other, as fast as passwords are hashed, within 10 s', async () => {
  const { inQueue } = createPasswordHasher({ concurrency: 2, queueLimit: 0, cost: CHEAP })
  const leave: (() => void)[] = []
  const enter = () => inQueue(() => new Promise<void>((resolve) => leave.push(resolve)))
  const waits = async (count: number) => {
    const refused = await Promise.allSettled(Array.from({ length: count }, enter))
    return refused.map((one) => one.status === 'rejected' && (one.reason as ServiceError).options.retryAfterSeconds)
  }
  const hundredEach = (...seconds: readonly number[]) =>
    seconds.flatMap((wait) => Array.from({ length: 100 }, () => wait))
  freezeTime()
  const inside = [enter(), enter()]
  expect(await waits(300)).toEqual(hundredEach(1, 2, 3))
  vi.advanceTimersByTime(2_000)
  expect(await waits(200)).toEqual(hundredEach(2, 3))
  vi.advanceTimersByTime(60_000)
  expect(await waits(1_200)).toEqual(hundredEach(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10))
  for (const go of leave) go()
  await Promise.all(inside)
})

test('a hashing thread goes on working after a failure', async () => {
  for (let i = 0; i < 3; i += 1) await expect(inThread('argon2Verify', 'no hash', 'of ann')).rejects.toThrow()
  expect(await hash('of ann')).toMatch(/^\$argon2id\$/)
})

test.runIf(process.platform === 'linux')('hashing threads give way to the rest of the process', async () => {
  await hash('of ann')
  expect(nicenessOf(String(process.pid))).toBe(getPriority())
  expect(readdirSync('/proc/self/task').map(nicenessOf)).toContain(10)
})

test.runIf(process.platform === 'linux')('an idle hashing thread is reused', async () => {
  await hash('of ann')
  const before = readdirSync('/proc/self/task').length
  for (let i = 0; i < 20; i += 1) await hash('of ann')
  expect(readdirSync('/proc/self/task').length).toBe(before)
})

test.runIf(process.platform === 'linux')(
  'as many hashing threads run as are configured and no more, even as jobs keep arriving',
  async () => {
    const { hash } = createPasswordHasher({ concurrency: 5, queueLimit: 100, cost: CHEAP })
    const before = hashingThreads()
    const person = async () => {
      for (let i = 0; i < 5; i += 1) await hash('of ann')
    }
    await Promise.all(Array.from({ length: 12 }, person))
    expect(hashingThreads()).toBe(Math.max(before, 5))
  },
)

test.runIf(process.platform === 'linux')('threads that were started before there was a password are used', async () => {
  await hash('of ann')
  const count = hashingThreads() + 2
  const before = readdirSync('/proc/self/task').length
  await startHashingThreads(count)
  const started = readdirSync('/proc/self/task').length
  expect(started).toBeGreaterThan(before)
  await Promise.all(Array.from({ length: count }, () => hash('of ann')))
  expect(readdirSync('/proc/self/task').length).toBe(started)
})

function hashingThreads(): number {
  return readdirSync('/proc/self/task').filter((thread) => nicenessOf(thread) === 10).length
}

/** Field 19 of proc_pid_stat(5). */
function nicenessOf(thread: string): number {
  const stat = readFileSync(`/proc/self/task/${thread}/stat`, 'utf8')
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16])
}
