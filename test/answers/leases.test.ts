// Leases on answers: what they save, who waits for them, and what happens when a lease's holder or granter is gone.
import { setTimeout as sleep } from 'node:timers/promises'
import { create } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { HoldLeaseRequestSchema, HoldLeaseResponseSchema } from '../../gen/surveyauth/v1/lease_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { HeldLease } from '../../services/answers/held-lease.js'
import { keepingAnswers } from '../../services/answers/kept-answers.js'
import { LEASE_MS, type LeaseGuard, Leases, RENEWED_AFTER_MS } from '../../services/answers/leases.js'
import { Changes, STRIPES, stripeOf } from '../../services/answers/stripes.js'
import { clientOf, type Invoke } from '../../services/rpc/client.js'
import { freezeTime } from '../harness/freeze-time.js'
import { byOperator, findGrant, GRACE, mint, NOW, redeem } from '../store/token-store-verbs.js'
import { type Granted, granted, type Service, startService, untilHeld } from './kept-service.js'

/** A user whose answers are held under a lease. */
async function held(service: Service, username = 'ann') {
  const who = await granted(service.store, username)
  const ask = () => service.leasing.getAuthorizedUser(who.presented)
  await untilHeld(service, ask)
  service.hears.afterMs = 0
  service.names()
  return { ...who, ask }
}

/** Keeps asking, so that the lease is renewed. */
async function askFor(ms: number, ask: () => Promise<unknown>): Promise<void> {
  for (let left = ms; left > 0; left -= 20) {
    await ask()
    await sleep(20)
  }
}

test('an answer held under a lease is given without asking the service, and counts as a verified token', async () => {
  const service = await startService()
  const { ask, presented } = await held(service)
  freezeTime()
  const said = await service.direct.getAuthorizedUser(presented)
  service.onHeld.mockClear()
  for (let i = 0; i < 100; i += 1) expect(await ask()).toEqual(said)
  expect(service.names()).toEqual([])
  expect(service.onHeld).toHaveBeenCalledTimes(100)
})

test('changes to another grant leave an answer held; one that affects all answers has it revalidated', async () => {
  const service = await startService()
  const { ask } = await held(service)
  freezeTime()
  const bob = await granted(service.store, 'bob')
  for (let i = 0; i < 5; i += 1) {
    await mint(service.store, bob.refreshTokenHash)
    await ask()
  }
  expect(service.names()).toEqual([])
  await service.store.setUserDisabled('bob', true, NOW, byOperator)
  await ask()
  expect(service.names()).toEqual(['RevalidateAnswers'])
  const asked = async () => {
    await ask()
    return service.names()
  }
  await expect.poll(asked).toEqual([])
})

test('a held answer in use is revalidated every 20 s in the background, which is a use of its grant', async () => {
  const service = await startService()
  const { ask, grantId } = await held(service)
  freezeTime()
  const lastUse = async () => {
    await service.uses.flush()
    return (await findGrant(service.store, grantId))?.lastUsedAtMs
  }
  service.time.now = NOW + 19_999
  await askFor(1_100, ask)
  expect(service.names()).toEqual([])
  service.onHeld.mockClear()
  service.onRevalidated.mockClear()
  service.time.now = NOW + 70_000
  for (let i = 0; i < 50; i += 1) await ask()
  await expect.poll(() => service.calls.map(({ validators }) => validators.length), { timeout: 5_000 }).toEqual([1])
  expect(service.onHeld, 'and one is counted by the service').toHaveBeenCalledTimes(49)
  expect(service.onRevalidated.mock.calls).toEqual([[1]])
  expect(service.names()).toEqual(['RevalidateAnswers'])
  expect(await lastUse()).toBe(NOW + 70_000)
  service.time.now = NOW + 140_000
  await ask()
  await expect.poll(lastUse, { timeout: 5_000 }).toBe(NOW + 140_000)
})

test('a held answer that was last revalidated two minutes ago is revalidated before it is given', async () => {
  const service = await startService()
  const { ask } = await held(service)
  freezeTime()
  service.time.now = NOW + 119_000
  await ask()
  expect(service.names()).toEqual([])
  service.time.now = NOW + 120_000
  await ask()
  expect(service.names()).toEqual(['RevalidateAnswers'])
})

test('a held answer that a background revalidation found changed is asked for again', async () => {
  const service = await startService()
  const { ask, refreshTokenHash } = await held(service)
  freezeTime()
  await mint(service.store, refreshTokenHash, { overlapMs: 600_000 }) // ends nothing that is held
  service.time.now = NOW + 30_000
  await ask()
  await expect.poll(() => service.calls.map(({ name }) => name), { timeout: 5_000 }).toEqual(['RevalidateAnswers'])
  await sleep(10)
  await ask()
  expect(service.names()).toEqual(['RevalidateAnswers', 'GetAuthorizedUser'])
})

test('a held answer stays held when its background revalidation fails', async () => {
  const service = await startService()
  const { presented } = await granted(service.store)
  let isAway = false
  const invoke = ((method, request, call) =>
    isAway && method.name === 'RevalidateAnswers'
      ? Promise.reject(new ConnectError('away', Code.Unavailable))
      : service.invoke(method, request, call)) as Invoke
  const onHeld = vi.fn()
  const now = () => service.time.now
  const leases = [new HeldLease(invoke, 1)]
  const client = clientOf(
    TokenService,
    keepingAnswers(invoke, TokenService.method.revalidateAnswers, { leases, now, onHeld }),
  )
  const ask = () => client.getAuthorizedUser(presented)
  await untilHeld({ ...service, onHeld } as Service, ask)
  freezeTime()
  isAway = true
  service.time.now = NOW + 30_000
  await askFor(1_100, ask)
  onHeld.mockClear()
  await ask()
  expect(onHeld).toHaveBeenCalledTimes(1)
})

test('an answer is held no longer than its token lives', async () => {
  const service = await startService()
  const { ask, refreshTokenHash } = await held(service)
  await mint(service.store, refreshTokenHash, { overlapMs: 5_000 })
  await untilHeld(service, ask)
  service.time.now = NOW + 4_999
  await ask()
  service.time.now = NOW + 5_000
  await expect(ask()).rejects.toThrow('access_token')
})

test('a write that changes no cached answer waits for no holder', async () => {
  const service = await startService()
  await held(service)
  service.hears.afterMs = 10_000
  freezeTime()
  await granted(service.store, 'bob')
})

/** A write that ends an answer. */
const change = ({ store }: Service, nickname: string) => store.updateUser('ann', { nickname }, NOW, byOperator)

test('a write waits for a silent holder until its lease has expired, and does not wait for it again', async () => {
  const service = await startService()
  const { ask } = await held(service)
  service.hears.afterMs = 10_000
  freezeTime()
  const told = vi.fn()
  const first = change(service, 'one').then(told)
  await sleep(50)
  expect(told).not.toHaveBeenCalled()
  vi.advanceTimersByTime(LEASE_MS)
  await first
  expect(service.lease.inForce()).toBeUndefined()
  await change(service, 'two')
  expect((await ask()).nickname).toBe('two')
})

test('a lease that is no longer wanted is given up before it expires, and no write waits for it', async () => {
  const service = await startService()
  const hold = vi.spyOn(service.leases, 'hold')
  await held(service)
  await expect.poll(() => hold.mock.lastCall?.[0].givesUp, { timeout: 5_000 }).toBe(true)
  freezeTime()
  expect(service.lease.inForce()).toBeUndefined()
  service.hears.afterMs = 10_000
  await change(service, 'one')
})

test('a refresh waits for no holder, and causes no call, while tokens outlive the time they are held', async () => {
  const service = await startService()
  const { ask, refreshTokenHash } = await held(service)
  service.hears.afterMs = 10_000
  freezeTime()
  for (let i = 0; i < 9; i += 1) {
    await mint(service.store, refreshTokenHash, { overlapMs: 130_000, maxLive: 10 })
    await ask()
  }
  expect(service.names()).toEqual([])
  service.time.now = NOW + 130_000
  await expect(ask()).rejects.toThrow('access_token')
})

test('a refresh that pushes out a token waits until no holder accepts it any more', async () => {
  const service = await startService()
  const { ask, refreshTokenHash } = await held(service)
  await mint(service.store, refreshTokenHash, { maxLive: 2 })
  await untilHeld(service, ask)
  await mint(service.store, refreshTokenHash, { maxLive: 2 })
  await expect(ask()).rejects.toThrow('access_token')
})

test('a lease runs from when it was requested, however long the answer took', async () => {
  freezeTime()
  const answer = create(HoldLeaseResponseSchema, { run: 'a run', state: 1n, leaseMs: 100 })
  const invoke = vi.fn(() => new Promise(() => undefined))
  invoke.mockImplementationOnce(async () => {
    vi.advanceTimersByTime(60)
    return answer
  })
  const lease = new HeldLease(invoke as unknown as Invoke, 1)
  lease.want()
  await sleep(1)
  const run = lease.inForce()
  vi.advanceTimersByTime(39)
  expect(run?.isInForce).toBe(true)
  vi.advanceTimersByTime(1)
  expect(run?.isInForce).toBe(false)
})

test('after a service was restarted, no answer of its predecessor is given without asking', async () => {
  const first = await startService()
  const second = await startService()
  let service = first
  const invoke = (async (method, request, call) => {
    return service.invoke(method, request, call)
  }) as Invoke
  const lease = new HeldLease(invoke, 1)
  const onHeld = vi.fn()
  const client = clientOf(
    TokenService,
    keepingAnswers(invoke, TokenService.method.revalidateAnswers, { leases: [lease], now: () => NOW, onHeld }),
  )
  const { presented } = await granted(first.store)
  const ask = () => client.getAuthorizedUser(presented)
  await untilHeld({ ...first, onHeld } as Service, ask)
  service = second // which knows nothing of the token
  await vi.waitFor(() => expect(lease.inForce()?.run).toBe(second.leases.run))
  await expect(ask()).rejects.toThrow('access_token')
})

/** A guard that lets this process grant leases, unless told otherwise. */
function guarded(guard: Partial<LeaseGuard> = {}) {
  const leases = new Leases()
  const database = leases.cover({ take: () => true, strangersMs: () => 0, look() {}, ...guard })
  const hold = (holder: string, known: { run?: string; state?: bigint } = {}) =>
    leases.hold(create(HoldLeaseRequestSchema, { holder, ...known }))
  return { leases, database, hold }
}

test('no lease is granted when no database takes part, when another process may grant, or when the database fails', async () => {
  const none = new Leases()
  expect(await none.hold(create(HoldLeaseRequestSchema, { holder: 'a' }))).not.toHaveProperty('leaseMs')
  const away = () => {
    throw new Error('away')
  }
  for (const guard of [{ take: () => false }, { look: away }]) {
    const { hold, database } = guarded(guard)
    expect(await hold('a')).not.toHaveProperty('leaseMs')
    database.altersAll()
    expect(database.committed()).toBeUndefined()
  }
})

test('a lease that was not granted is not requested again at once', async () => {
  const invoke = vi.fn(async () => create(HoldLeaseResponseSchema, {}))
  const lease = new HeldLease(invoke as unknown as Invoke, 1)
  for (let i = 0; i < 50; i += 1) {
    lease.want()
    await sleep(1)
  }
  expect(invoke).toHaveBeenCalledTimes(1)
  expect(lease.inForce()).toBeUndefined()
})

test.each([
  ['an earlier version', 'unimplemented'],
  ['one that is away', 'unavailable'],
])('when the service is %s, no lease is held and nothing fails', async (_, why) => {
  const lease = new HeldLease((() => Promise.reject(new Error(why))) as unknown as Invoke, 1)
  lease.want()
  await sleep(5)
  expect(lease.inForce()).toBeUndefined()
})

test('a lease is kept while it is wanted, however often something changes', async () => {
  let state = 0
  const invoke = async () => {
    state += 1
    await sleep(1)
    return create(HoldLeaseResponseSchema, { run: 'a run', state: BigInt(state), leaseMs: 100 })
  }
  const lease = new HeldLease(invoke as unknown as Invoke)
  for (let i = 0; i < 16; i += 1) lease.want()
  await sleep(5)
  for (let i = 0; i < 200; i += 1) {
    expect(lease.inForce()).toBeDefined()
    lease.want()
    await sleep(8)
  }
  expect(state).toBeGreaterThan(400)
  await vi.waitFor(() => expect(lease.inForce()).toBeUndefined(), 3_000)
  const last = state
  await sleep(20)
  expect(state).toBe(last)
})

test('a lease is requested only when it is wanted often enough within a moment', async () => {
  const invoke = vi.fn(() => new Promise(() => undefined))
  const lease = new HeldLease(invoke as unknown as Invoke)
  for (let i = 0; i < 15; i += 1) lease.want()
  await sleep(120)
  for (let i = 0; i < 15; i += 1) lease.want()
  expect(invoke).not.toHaveBeenCalled()
  lease.want()
  expect(invoke).toHaveBeenCalledTimes(1)
})

test('a holder is told at once which stripes changed; one without a known state is told that all did', async () => {
  const { leases, database, hold } = guarded()
  const first = await hold('a')
  expect(first).toMatchObject({ run: leases.run, state: 0n, hasAllChanged: true, leaseMs: LEASE_MS })
  const known = { run: leases.run, state: 0n }
  const next = hold('a', known)
  database.alters(7)
  database.alters(9)
  void database.committed()
  expect(await next).toMatchObject({ state: 1n, hasAllChanged: false, changedStripes: [7, 9] })
  expect(await hold('b', known), 'one that knew').toMatchObject({ hasAllChanged: false, changedStripes: [7, 9] })
  expect(await hold('c', { run: 'another', state: 5n })).toMatchObject({ hasAllChanged: true })
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const renewed = vi.fn()
  void hold('a', { run: leases.run, state: 1n }).then(renewed)
  await vi.advanceTimersByTimeAsync(RENEWED_AFTER_MS - 1)
  expect(renewed).not.toHaveBeenCalled()
  await vi.advanceTimersByTimeAsync(1)
  expect(renewed).toHaveBeenCalled()
})

test('a lease that was given up is no longer waited for, even by writes already waiting', async () => {
  freezeTime()
  const { leases, database, hold } = guarded()
  const givesUp = () => leases.hold(create(HoldLeaseRequestSchema, { holder: 'a', givesUp: true }))
  await hold('a')
  database.altersAll()
  const waiting = database.committed()
  expect(waiting).toBeInstanceOf(Promise)
  expect(await givesUp()).not.toHaveProperty('leaseMs')
  await waiting
  await hold('a')
  await givesUp()
  database.altersAll()
  expect(database.committed()).toBeUndefined()
})

test('the wait for a commit ends once every holder has acknowledged it', async () => {
  freezeTime()
  const { leases, database, hold } = guarded()
  const known = (state: bigint) => ({ run: leases.run, state })
  await Promise.all(['a', 'b'].map((holder) => hold(holder)))
  const said: string[] = []
  database.alters(1)
  void database.committed()?.then(() => said.push('first'))
  database.altersAll()
  void database.committed()?.then(() => said.push('second'))
  void hold('a', known(2n))
  await sleep(1)
  expect(said).toEqual([])
  void hold('b', known(1n))
  await sleep(1)
  expect(said).toEqual(['first'])
  void hold('b', known(2n))
  await sleep(1)
  expect(said).toEqual(['first', 'second'])
  expect(database.committed(), 'nothing was altered since').toBeUndefined()
})

test('a returning holder is waited for only once it has a lease again', async () => {
  const { leases, database, hold } = guarded()
  const back = hold('a', { run: leases.run, state: 0n })
  database.alters(1)
  expect(database.committed(), 'it has no lease yet').toBeUndefined()
  expect(await back).toMatchObject({ changedStripes: [1], leaseMs: LEASE_MS })
  database.alters(2)
  expect(database.committed()).toBeInstanceOf(Promise)
})

test('a first lease that is granted while a write waits for another holder holds up only the next write', async () => {
  freezeTime()
  const { leases, database, hold } = guarded()
  await hold('a')
  database.alters(1)
  const first = database.committed()
  expect(first).toBeInstanceOf(Promise)
  expect(await hold('b')).toHaveProperty('leaseMs')
  void hold('a', { run: leases.run, state: 1n })
  await first // b was told by its first answer
  database.alters(2)
  expect(database.committed()).toBeInstanceOf(Promise)
})

test('a holder that calls on without acknowledging a change is waited for as long as one lease lasts', async () => {
  freezeTime()
  const { leases, database, hold } = guarded()
  await hold('a')
  database.alters(1)
  const told = vi.fn()
  const waiting = database.committed()?.then(told)
  vi.advanceTimersByTime(LEASE_MS - 1)
  expect(await hold('a', { run: leases.run, state: 0n })).toHaveProperty('leaseMs')
  await sleep(LEASE_MS + 20) // the timer has checked by then
  expect(told).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  await waiting
  expect(told).toHaveBeenCalled()
})

test.each([
  ['revokes a grant', (service: Service, { grantId }: Granted) => service.store.revokeGrant(grantId, NOW, byOperator)],
  [
    'disconnects an app',
    (service: Service, { grantId }: Granted) => service.store.disconnectApp(grantId, 'user_ann', NOW, byOperator),
  ],
  ['replays a code', (service: Service, { name }: Granted) => redeem(service.store, name, {}, NOW + GRACE)],
  ['disables an app', (service: Service) => service.store.setAppDisabled('app1', true, NOW, byOperator)],
  ['disables a user', (service: Service) => service.store.setUserDisabled('ann', true, NOW, byOperator)],
  ['changes a profile', (service: Service) => service.store.updateUser('ann', { nickname: 'other' }, NOW, byOperator)],
])('a caller who %s again is answered no sooner than the one who did it first', async (_, end) => {
  const service = await startService()
  const who = await held(service)
  service.hears.afterMs = 10_000
  const ended: string[] = []
  const first = end(service, who).then(() => ended.push('first'))
  await sleep(20)
  const second = end(service, who).then(() => ended.push('second'))
  await Promise.all([first, second])
  expect(ended).toEqual(['first', 'second'])
})

test('a commit is waited for until leases that another process may have granted have expired', async () => {
  freezeTime()
  const { database } = guarded({ strangersMs: () => 60 })
  database.altersAll()
  const told = vi.fn()
  const waiting = database.committed()?.then(told)
  vi.advanceTimersByTime(59)
  await sleep(80) // the timer has checked by then
  expect(told).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  await waiting
  expect(told).toHaveBeenCalled()
})

test('when a holder calls again, its earlier call is answered and only the new one waits', async () => {
  const { leases, hold } = guarded()
  await hold('a')
  const known = { run: leases.run, state: 0n }
  const first = hold('a', known)
  const answered = vi.fn()
  const second = hold('a', known).then(answered)
  await first
  expect(answered).not.toHaveBeenCalled()
  await second
})

test('at most 1,000 holders have a lease at a time', async () => {
  freezeTime()
  const { hold } = guarded()
  for (let i = 0; i < 1_000; i += 1) expect(await hold(`${i}`)).toHaveProperty('leaseMs')
  expect(await hold('one more')).not.toHaveProperty('leaseMs')
  expect(await hold('7')).toHaveProperty('leaseMs')
  vi.advanceTimersByTime(LEASE_MS)
  expect(await hold('one more'), 'the others are gone').toHaveProperty('leaseMs')
})

test('a change is found by its stripe and number; one of an unknown stripe counts for all', () => {
  const changes = new Changes(10)
  expect(changes.isSame(3, 9)).toBe(false)
  expect(changes.isSame(3, 10)).toBe(true)
  changes.add(3, 11)
  expect([changes.isSame(3, 10), changes.isSame(3, 11), changes.isSame(4, 10)]).toEqual([false, true, true])
  expect([changes.after(9), changes.after(10), changes.after(11)]).toEqual([undefined, [3], []])
  changes.add(STRIPES, 12) // of a later version
  expect([changes.isSame(4, 11), changes.isSame(4, 12)]).toEqual([false, true])
  expect(changes.isSame(STRIPES, 12)).toBe(false)
  expect(changes.isSame(4, Number.NaN)).toBe(false)
})

test('ids are spread over the stripes', () => {
  const used = new Set(Array.from({ length: 20_000 }, (_, n) => stripeOf(`grant_${n.toString(36)}x`)))
  expect(used.size).toBeGreaterThan(STRIPES * 0.9)
  expect(Math.max(...used)).toBeLessThan(STRIPES)
  expect(Math.min(...used)).toBeGreaterThanOrEqual(0)
})
