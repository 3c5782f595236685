// A sign-in with a password that another system has hashed.
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { create } from '@bufbuild/protobuf'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { SignInRequest } from '../../gen/surveyauth/v1/account_service_pb.js'
import { ImportOutcome, ImportUsersRequestSchema } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { Call } from '../../services/rpc/dispatcher.js'
import { ServiceError } from '../../services/rpc/service-error.js'
import { signIn } from '../../services/token/account/sign-in.js'
import { createImportMethods } from '../../services/token/admin/imports.js'
import type { TokenDeps } from '../../services/token/deps.js'
import { comparisonsOf, createPasswordHasher, type Hashing } from '../../services/token/password/hasher.js'
import { toStoredHash } from '../../services/token/password/notations.js'
import { createTimeFloor } from '../../services/token/password/time-floor.js'
import { noSignInLimiter } from '../../services/token/sign-in-limiter.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { freezeTime } from '../harness/freeze-time.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { byOperator, NOW, userRow } from '../store/token-store-verbs.js'

const PASSWORD = 'correct horse 电池'
const CALL = { requestId: 'request 1', callerName: 'uid:0', deadlineMs: Number.POSITIVE_INFINITY } as Call

async function withUser(passwordHash: string) {
  const store = openSqliteTokenStore({ file: path.join(temporaryDirectory(), 'token.db') })
  onTestFinished(() => store.close())
  const passwords = createPasswordHasher({ concurrency: 1, queueLimit: 9, cost: { memoryCost: 8, timeCost: 1 } })
  await store.createUser(userRow('ann', { passwordHash: await toStoredHash(passwordHash, passwords.hash) }), byOperator)
  const rules = { sessionTtlSeconds: 60, maxSessionsPerUser: 9 }
  const timeFloor = createTimeFloor(store, passwords)
  const deps = {
    store,
    passwords,
    timeFloor,
    rules,
    signInLimiter: noSignInLimiter,
    signInMethods: { password: true },
    now: () => NOW,
    randomBytes,
  }
  const attempt = (password: string) =>
    signIn(deps as unknown as TokenDeps)(
      { username: 'ann', password, source: '', previousSessionToken: '', browser: '' } as SignInRequest,
      CALL,
    )
  const hashOfAnn = async () => (await store.findUser('ann'))?.passwordHash ?? ''
  return { store, passwords, attempt, hashOfAnn }
}

test.each([
  ['bcrypt', '$2b$04$MTd6izpdlIQgrDX/.ePX4.YCDq/maaKk2T5/HXI4g2q65lU4jmLLK'],
  ['Django', 'pbkdf2_sha256$10$salt.of-Django$kHLFGZkfeQQukTZqciW9BfYBpnnPz1DIhN3weN7Jzjw='],
  ['a fast digest', 'md5$salt.of-Django$f995e06ef466c9ab7dff437f7a906d04'],
])('of %s is replaced by a hash of ours, and the password stays the same', async (_, imported) => {
  const { passwords, attempt, hashOfAnn } = await withUser(imported)
  const before = await hashOfAnn()
  await expect(attempt('a wrong password')).rejects.toMatchObject({ reason: ErrorReason.INVALID_CREDENTIALS })
  expect(await hashOfAnn()).toBe(before)
  expect(await attempt(PASSWORD)).toMatchObject({ sessionToken: expect.stringMatching(/^sase_/) })
  expect(passwords.isOwn(before)).toBe(false)
  expect(passwords.isOwn(await hashOfAnn())).toBe(true)
  const replaced = await hashOfAnn()
  expect(await attempt(PASSWORD)).toMatchObject({ sessionToken: expect.any(String) })
  expect(await hashOfAnn()).toBe(replaced)
})

test('an import is done although too many sign-ins keep its hashes from being measured', async () => {
  const store = openSqliteTokenStore({ file: ':memory:' })
  onTestFinished(() => store.close())
  const passwords = createPasswordHasher({ concurrency: 1, queueLimit: 9, cost: { memoryCost: 8, timeCost: 1 } })
  const measure = vi.fn().mockRejectedValue(new ServiceError(ErrorReason.RATE_LIMITED, 'too many sign-ins at once'))
  const deps = { store, passwords, timeFloor: { measure }, now: () => NOW, randomBytes }
  const { importUsers } = createImportMethods(deps as unknown as TokenDeps)
  const passwordHash = '$2b$04$MTd6izpdlIQgrDX/.ePX4.YCDq/maaKk2T5/HXI4g2q65lU4jmLLK'
  const request = create(ImportUsersRequestSchema, { users: [{ username: 'ann', passwordHash }] })
  expect(await importUsers(request, CALL)).toMatchObject({ results: [{ outcome: ImportOutcome.CREATED }] })
  expect(measure).toHaveBeenCalledOnce()
})

describe('no sign-in is answered earlier than the slowest comparison takes', () => {
  const OWN = '$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
  const BCRYPT = '$2b$12$MTd6izpdlIQgrDX/.ePX4.YCDq/maaKk2T5/HXI4g2q65lU4jmLLK'
  const TIMED = { source: '192.0.2.1', comparisons: 1, dueAt: Number.POSITIVE_INFINITY }
  const SCRYPT = '$scrypt$ln=4,r=8,p=1$1BoDgPBea805x9g7RwhhbA$JEMG/f/hHH7M9muh3IKwIZP+w4aby0cFOTvmoLx1ylM'

  /** A floor over these hashes, comparing with which takes so many ms. */
  function floorOver(hashes: Map<string, number>) {
    freezeTime()
    const compare = vi.fn(async (passwordHash: string | undefined) => {
      vi.advanceTimersByTime(hashes.get(passwordHash ?? '') ?? 0)
      return false
    })
    const passwords = {
      inQueue: <T>(work: (hashing: Hashing) => Promise<T>) => work({ compare, hash: async () => OWN }),
      isOwn: (passwordHash: string) => passwordHash === OWN,
    }
    const findPasswordHash = async (behind: string) => [...hashes.keys()].sort().find((hash) => hash > behind)
    const wait = vi.fn(async (_: number) => undefined)
    const floor = createTimeFloor({ findPasswordHash }, passwords, wait)
    const answeredAfter = (ms: number, password = '') =>
      floor.kept({ ...TIMED, comparisons: comparisonsOf(password) }, async () => vi.advanceTimersByTime(ms))
    return { floor, answeredAfter, compare, wait }
  }

  test.each([
    ['there are only our own', new Map([[OWN, 10]]), []],
    [
      'one is imported',
      new Map([
        [OWN, 10],
        [SCRYPT, 47],
      ]),
      [[58.75]],
    ],
    [
      'the slowest of two decides',
      new Map([
        [BCRYPT, 268],
        [SCRYPT, 47],
      ]),
      [[335]],
    ],
    ['half a second is enough', new Map([[BCRYPT, 2_000]]), [[500]]],
  ])('%s', async (_, hashes, waits) => {
    const { floor, answeredAfter, wait } = floorOver(hashes)
    await floor.measure()
    await answeredAfter(0)
    expect(wait.mock.calls).toEqual(waits)
  })

  test('what took as long already is answered at once, and what took a part of it after the rest', async () => {
    const { floor, answeredAfter, wait } = floorOver(new Map([[BCRYPT, 268]]))
    await floor.measure()
    await answeredAfter(200)
    await answeredAfter(335)
    expect(wait.mock.calls).toEqual([[135]])
  })

  test('a password that is compared as typed and composed has time for both', async () => {
    const { floor, answeredAfter, wait } = floorOver(new Map([[BCRYPT, 268]]))
    await floor.measure()
    for (const password of ['caf\u00e9', 'cafe\u0301']) await answeredAfter(0, password)
    expect(wait.mock.calls).toEqual([[335], [670]])
  })

  test('one that took longer, and all after it, have time for that until it is measured again', async () => {
    const { floor, answeredAfter, wait } = floorOver(new Map([[BCRYPT, 268]]))
    await floor.measure()
    for (const took of [360, 0]) await answeredAfter(took)
    await floor.measure()
    await answeredAfter(0)
    expect(wait.mock.calls).toEqual([[90], [450], [335]])
  })

  test('each kind is measured once, and forgotten when nobody has it any more', async () => {
    const hashes = new Map([[BCRYPT, 268]])
    const { floor, answeredAfter, compare, wait } = floorOver(hashes)
    await floor.measure()
    await floor.measure()
    expect(compare).toHaveBeenCalledTimes(1)
    hashes.clear()
    await floor.measure()
    await answeredAfter(0)
    expect(wait).not.toHaveBeenCalled()
  })

  describe('those of one source are made one after the other', () => {
    /** Sign-ins that begin at once, and which of them have been compared; `next` answers the oldest that waits. */
    async function crowd(hashes = new Map([[BCRYPT, 268]])) {
      const { floor, wait } = floorOver(hashes)
      const waiting: (() => void)[] = []
      wait.mockImplementation(() => new Promise((resolve) => waiting.push(() => resolve(undefined))))
      await floor.measure()
      const compared: string[] = []
      const signIn = (name: string, timed: Partial<typeof TIMED> & { signal?: AbortSignal } = {}) =>
        floor.kept({ ...TIMED, ...timed }, async () => compared.push(name))
      const next = () => turns().then(() => waiting.shift()?.())
      return { signIn, next, compared }
    }
    const turns = () => new Promise((resolve) => setImmediate(resolve))

    test('with the time that each must take, and another source does not wait for them', async () => {
      const { signIn, next, compared } = await crowd()
      const answers = [signIn('ann'), signIn('ben'), signIn('cat', { source: '192.0.2.2' })]
      await turns()
      expect(compared).toEqual(['ann', 'cat'])
      await next()
      await turns()
      expect(compared).toEqual(['ann', 'cat', 'ben'])
      await next()
      await next()
      expect(await Promise.all(answers)).toEqual([1, 3, 2])
    })

    test('unless there are only our own: a crowd is then compared at once', async () => {
      const { signIn, compared } = await crowd(new Map([[OWN, 10]]))
      await Promise.all(Array.from({ length: 50 }, () => signIn('ann')))
      expect(compared).toHaveLength(50)
    })

    test('the ninth at once is told to come again, and every one may who comes after them', async () => {
      const { signIn, next } = await crowd()
      const answers = Array.from({ length: 8 }, () => signIn('ann'))
      await expect(signIn('ann')).rejects.toMatchObject({
        reason: ErrorReason.RATE_LIMITED,
        options: { retryAfterSeconds: 3 },
      })
      for (const answer of answers) {
        await next()
        await answer
      }
      const another = signIn('ann')
      await next()
      expect(await another).toBe(9)
    })

    test.each([
      ['its deadline has passed', { dueAt: 0 }],
      ['its caller went away', { signal: AbortSignal.abort() }],
    ])('one whose turn comes when %s is not compared, and takes no time', async (_, until) => {
      const { signIn, next, compared } = await crowd()
      const answers = [signIn('ann'), signIn('ben', until), signIn('cat')]
      const refused = expect(answers[1]).rejects.toBeInstanceOf(ServiceError)
      await next()
      await next()
      await Promise.all([answers[0], answers[2], refused])
      expect(compared).toEqual(['ann', 'cat'])
    })

    test('one that fails lets the next one begin', async () => {
      const { floor } = floorOver(new Map([[BCRYPT, 268]]))
      await floor.measure()
      const failed = floor.kept(TIMED, () => Promise.reject(new Error('the database is gone')))
      const next = floor.kept(TIMED, async () => 'an answer')
      await expect(failed).rejects.toThrow('the database is gone')
      expect(await next).toBe('an answer')
    })
  })
})
