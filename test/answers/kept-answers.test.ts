// Answers about access tokens that a process caches from a TokenService in another, compared with the service's own.
import { randomBytes } from 'node:crypto'
import { create, type DescMethod } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { endOfTurn } from '../../event-loop/end-of-turn.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { keepingAnswers } from '../../services/answers/kept-answers.js'
import { clientOf, type Invoke, type Outgoing } from '../../services/rpc/client.js'
import { byOperator, byUser, findGrant, mint, NOW } from '../store/token-store-verbs.js'
import {
  endings,
  expectChanged,
  type Granted,
  granted,
  outcomesOf,
  type Service,
  startService,
  untilHeld,
} from './kept-service.js'

const { getAuthorizedUser, revalidateAnswers } = TokenService.method

/** Each call's answer, or why it failed. */
async function answersOf(client: Service['direct'], { presented, token }: Granted): Promise<unknown[]> {
  const calls = [
    client.getAuthorizedUser(presented),
    client.verifyAccessToken(presented),
    client.verifyAccessToken({ ...token, openid: '' }),
    client.getAuthorizedUser({ ...presented, openid: 'another' }),
    client.getAuthorizedUser({ ...presented, appid: 'app2' }),
  ]
  return outcomesOf(calls)
}

test('an answer is asked for once; then one call per turn revalidates all that are used, and counts each', async () => {
  const service = await startService()
  const { keeping, names, calls, onRevalidated } = service
  const [first, second] = [await granted(service.store), await granted(service.store, 'bob')]
  const expected = await Promise.all(
    [first, second].map(({ presented }) => service.direct.getAuthorizedUser(presented)),
  )
  const ask = () => Promise.all([first, second].map(({ presented }) => keeping.getAuthorizedUser(presented)))

  expect(await ask()).toEqual(expected)
  expect(names()).toEqual(['GetAuthorizedUser', 'GetAuthorizedUser'])
  for (let turn = 1; turn <= 3; turn += 1) {
    expect(await ask()).toEqual(expected)
    expect(calls.map(({ validators }) => validators.length)).toEqual([2])
    expect(names()).toEqual(['RevalidateAnswers'])
    expect(onRevalidated.mock.calls).toHaveLength(turn)
  }
  await service.store.revokeGrant(second.grantId, NOW, byOperator)
  await Promise.allSettled([first, second].map(({ presented }) => keeping.getAuthorizedUser(presented)))
  expect(onRevalidated.mock.calls, 'those that hold').toEqual([[2], [2], [2], [1]])
})

test('answers to requests served at the end of a turn are revalidated within it, by one call', async () => {
  const service = await startService()
  const grants = [await granted(service.store), await granted(service.store, 'bob')]
  const ask = async ({ presented }: Granted) => {
    await endOfTurn()
    await Promise.resolve()
    return service.keeping.getAuthorizedUser(presented)
  }
  await Promise.all(grants.map(ask))
  service.names()
  const answered = Promise.all(grants.map(ask))
  let isOver = false
  setImmediate(() => (isOver = true)) // runs right after the end of the turn, which was awaited before
  await answered
  expect(service.names()).toEqual(['RevalidateAnswers'])
  expect(isOver).toBe(false)
})

test('a cached answer is used only for the app, the token, the openid and the method it was given for', async () => {
  const service = await startService()
  const ann = await granted(service.store)
  for (let i = 0; i < 3; i += 1) {
    const said = await answersOf(service.direct, ann)
    expect(await answersOf(service.keeping, ann)).toEqual(said)
    expect(said.slice(3)).toEqual([expect.stringContaining('openid'), expect.stringContaining('access_token')])
  }
})

test.each(endings)('an answer cached for a token is no longer given once $title', async (ending) => {
  const service = await startService()
  await expectChanged(service, ending, [service.direct, service.keeping], answersOf)
})

test.each(endings)(
  'an answer held under a lease for a token is no longer given once $title, however late its holder hears of it',
  async (ending) => {
    const service = await startService()
    const clients = [service.direct, service.leasing] as const
    await expectChanged(service, ending, clients, answersOf, (ask) => untilHeld(service, ask))
  },
)

test('an answer carries its validator only when the caller wants it, also from the cache', async () => {
  const { store, direct, keeping } = await startService()
  const { presented } = await granted(store)
  const { validator } = await direct.verifyAccessToken({ ...presented, wantsValidator: true })
  expect(validator).toHaveLength(56)
  for (let i = 0; i < 2; i += 1) {
    expect((await keeping.verifyAccessToken({ ...presented, wantsValidator: true })).validator).toEqual(
      new Uint8Array(validator),
    )
    expect((await keeping.verifyAccessToken(presented)).validator).toHaveLength(0)
  }
})

test('an answer that has changed is asked for again', async () => {
  const { store, keeping, names } = await startService()
  const { presented, refreshTokenHash } = await granted(store)
  await keeping.verifyAccessToken(presented)
  await mint(store, refreshTokenHash, { overlapMs: 60_000 })
  names()
  expect((await keeping.verifyAccessToken(presented)).expireTime?.seconds).toBe(BigInt((NOW + 60_000) / 1000))
  expect(names()).toEqual(['RevalidateAnswers', 'VerifyAccessToken'])
})

test('when revalidation takes several calls, only the answers that changed are asked for again', async () => {
  const service = await startService()
  const all = await Promise.all(Array.from({ length: 12 }, () => granted(service.store)))
  const ask = () =>
    Promise.allSettled(
      Array.from({ length: 1_200 }, (_, index) =>
        service.keeping.getAuthorizedUser((all[index % all.length] as Granted).presented),
      ),
    )
  await ask()
  await service.store.revokeGrant((all[5] as Granted).grantId, NOW, byUser)
  service.calls.splice(0)

  const settled = await ask()
  expect(settled.flatMap(({ status }, index) => (status === 'rejected' ? [index % all.length] : []))).toEqual(
    Array.from({ length: 100 }, () => 5),
  )
  const asked = service.calls.filter(({ name }) => name === 'RevalidateAnswers')
  expect(asked.map(({ validators }) => validators.length)).toEqual([500, 500, 200])
  expect(service.calls.filter(({ name }) => name === 'GetAuthorizedUser')).toHaveLength(100)
})

test('a revalidated answer counts as a use of its grant', async () => {
  const { store, time, uses, keeping } = await startService()
  const { presented, grantId } = await granted(store)
  await keeping.getAuthorizedUser(presented)
  time.now = NOW + 120_000
  await keeping.getAuthorizedUser(presented)
  await uses.flush()
  expect((await findGrant(store, grantId))?.lastUsedAtMs).toBe(NOW + 120_000)
})

test.each(['01', '03', 'ff'])(
  'a request whose trace is recorded (flags %s) makes its own call each time, without revalidation',
  async (flags) => {
    const { store, keeping, names } = await startService()
    const { presented } = await granted(store)
    const headers = { traceparent: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-${flags}` }
    for (let i = 0; i < 2; i += 1) await keeping.getAuthorizedUser(presented, { headers })
    expect(names()).toEqual(['GetAuthorizedUser', 'GetAuthorizedUser'])
  },
)

test.each(['00', '02', 'fe'])(
  'a request whose trace is not recorded (flags %s) is revalidated, and its traceparent passed on unchanged',
  async (flags) => {
    const { store, keeping, names, calls } = await startService()
    const { presented } = await granted(store)
    const traceparent = `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-${flags}`
    const ask = () => keeping.getAuthorizedUser(presented, { headers: { traceparent } })
    await ask()
    await ask()
    expect(calls.map((call) => call.traceparent)).toEqual([traceparent, traceparent])
    expect(names()).toEqual(['GetAuthorizedUser', 'RevalidateAnswers'])
  },
)

/** A process that keeps the answers of a service which revalidates, or fails, as `revalidate` does. */
function beside(revalidate: () => { changed?: number[] } | Promise<{ changed?: number[] }>, nameLength = 600) {
  const asked: { readonly name: string; readonly call: Outgoing; readonly together: number | undefined }[] = []
  const user = create(getAuthorizedUser.output, {
    openid: 'o',
    nickname: 'A'.repeat(nameLength),
    validator: randomBytes(56),
  })
  const token = clientOf(
    TokenService,
    keepingAnswers(
      (async (method: DescMethod, request: { readonly validators?: readonly unknown[] }, call: Outgoing) => {
        asked.push({ name: method.name, call, together: request.validators?.length })
        return method === revalidateAnswers ? create(method.output, await revalidate()) : user // the same, as of a decoder
      }) as Invoke,
      revalidateAnswers,
    ),
  )
  const askUser = (options = {}, openid = 'o') =>
    token.getAuthorizedUser({ appid: 'a', accessToken: 't', openid }, options)
  const ask = async (options = {}) => (await askUser(options)).openid
  return { ask, askUser, asked, names: () => asked.splice(0).map(({ name }) => name) }
}

test.each([Code.Unimplemented, Code.Internal, Code.ResourceExhausted])(
  'a service that cannot revalidate is asked for the answer itself: code %s',
  async (code) => {
    const { ask, names } = beside(() => Promise.reject(new ConnectError('no', code)))
    await ask()
    expect(await ask()).toBe('o')
    expect(names()).toEqual(['GetAuthorizedUser', 'RevalidateAnswers', 'GetAuthorizedUser'])
  },
)

test.each([Code.Unavailable, Code.DeadlineExceeded])(
  'a service that is unavailable (code %i) is not asked a second time, and the cache is kept until it is back',
  async (code) => {
    let isAway = true
    const { ask, names } = beside(() => (isAway ? Promise.reject(new ConnectError('gone', code)) : {}))
    await ask()
    expect((await Promise.allSettled([ask(), ask()])).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    isAway = false
    expect(await ask()).toBe('o')
    expect(names()).toEqual(['GetAuthorizedUser', 'RevalidateAnswers', 'RevalidateAnswers'])
  },
)

test('the cache is bounded by the memory it takes', async () => {
  const { askUser, names } = beside(() => ({}), 50_000)
  for (let n = 0; n < 700; n += 1) await askUser({}, `o${n}`)
  names()
  await askUser({}, 'o699')
  await askUser({}, 'o0')
  expect(names()).toEqual(['RevalidateAnswers', 'GetAuthorizedUser'])
})

test('a revalidation and the call after it share one deadline, and it carries the request id', async () => {
  const slow = { changed: [0] }
  const { ask, asked } = beside(() => new Promise((resolve) => setTimeout(resolve, 60, slow)))
  const options = { timeoutMs: 1_000, headers: { 'x-request-id': 'of the request' } }
  await ask(options)
  await ask(options)
  const [first, revalidation, second] = asked.map(({ call }) => call)
  expect([first?.timeoutMs, revalidation?.timeoutMs]).toEqual([1_000, 1_000])
  expect(second?.timeoutMs).toBeLessThanOrEqual(945)
  expect(revalidation?.requestId).toBe('of the request')
})

describe('while a revalidation is in flight', () => {
  /** Answer the questions, in order. */
  let answers: ((error?: unknown) => void)[]
  let ask: () => Promise<string>
  let asked: () => unknown[]
  /** Lets everything happen that needs neither an answer nor time. */
  const settled = async () => {
    for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate)
  }
  const askMany = (count: number) => Promise.all(Array.from({ length: count }, () => ask()))

  beforeEach(async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    answers = []
    const service = beside(
      () => new Promise((resolve, reject) => answers.push((error) => (error ? reject(error) : resolve({})))),
    )
    ask = service.ask
    asked = () => service.asked.slice(1).map(({ together }) => together)
    await ask()
  })

  test.each([
    ['its answer', undefined],
    ['its failure', new ConnectError('gone', Code.Unavailable)],
  ])('fewer requests than it covers wait for %s and are revalidated then', async (_, error) => {
    const four = Promise.allSettled([ask(), ask(), ask(), ask()])
    await settled()
    const three = askMany(3)
    await settled()
    expect(asked()).toEqual([4])
    answers[0]?.(error)
    await four
    await settled()
    expect(asked()).toEqual([4, 3])
    answers[1]?.()
    expect(await three).toEqual(['o', 'o', 'o'])
  })

  test('as many requests as it covers do not wait', async () => {
    void askMany(2)
    await settled()
    void ask()
    await settled()
    expect(asked()).toEqual([2])
    void ask()
    await settled()
    expect(asked()).toEqual([2, 2])
    void askMany(3)
    await settled()
    expect(asked(), 'four are not answered').toEqual([2, 2])
    void ask()
    await settled()
    expect(asked()).toEqual([2, 2, 4])
  })

  test('no request waits longer than 1 ms, and each is revalidated once', async () => {
    const one = askMany(4)
    await settled()
    const two = askMany(2)
    await settled()
    vi.advanceTimersByTime(1)
    await settled()
    expect(asked()).toEqual([4, 2])
    for (const answer of answers) answer()
    await Promise.all([one, two])
    vi.advanceTimersByTime(1_000)
    await settled()
    expect(asked(), 'once each').toEqual([4, 2])
    void ask()
    await settled()
    expect(asked()).toEqual([4, 2, 1])
  })
})

test('an answer that is reported as changed but comes back the same is cached again', async () => {
  let hasChanged = false
  const { askUser, names } = beside(() => ({ changed: hasChanged ? [0] : [] }))
  await askUser()
  hasChanged = true
  await askUser()
  hasChanged = false
  names()
  for (let i = 0; i < 2; i += 1) expect((await askUser()).nickname).toHaveLength(600)
  expect(names()).toEqual(['RevalidateAnswers', 'RevalidateAnswers'])
})

test('malformed or mixed-up validators are reported as changed, and do no harm', async () => {
  const { store, direct } = await startService()
  const [ann, bob] = [await granted(store), await granted(store, 'bob')]
  const validatorOf = async ({ presented }: Granted) =>
    Buffer.from((await direct.getAuthorizedUser({ ...presented, wantsValidator: true })).validator)
  const [ofAnn, ofBob] = [await validatorOf(ann), await validatorOf(bob)]
  expect(ofAnn).toHaveLength(56)
  const other = Buffer.from(ofAnn)
  other[0] = (other[0] ?? 0) ^ 1
  const strangers = [
    Buffer.alloc(0),
    ofAnn.subarray(0, 16),
    ofAnn.subarray(0, 48), // the token's, without its place
    Buffer.concat([ofAnn, ofAnn]),
    other,
    Buffer.concat([ofBob.subarray(0, 16), ofAnn.subarray(16)]), // of bob's answer and ann's token
    Buffer.concat([ofAnn.subarray(0, 48), ofBob.subarray(48)]), // of ann's token, with the place of bob's
  ]
  const changed = async (validators: Buffer[]) => (await direct.revalidateAnswers({ validators })).changed
  for (const stranger of strangers) {
    await store.setAppDisabled('app2', true, NOW, byOperator) // after which it has no token in memory
    await store.setAppDisabled('app2', false, NOW, byOperator)
    expect(await changed([stranger])).toEqual([0])
    expect((await direct.getAuthorizedUser(ann.presented)).nickname).toBe('Nick ann')
    expect((await direct.getAuthorizedUser(bob.presented)).nickname).toBe('Nick bob')
    expect(await changed([ofAnn, other, ofBob])).toEqual([1])
  }
  await expect(direct.revalidateAnswers({ validators: Array.from({ length: 501 }, () => ofAnn) })).rejects.toThrow(
    'at most 500 items',
  )
})
