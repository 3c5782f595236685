// Several processes of one service: which of them calls go to, and what becomes of calls when one fails.
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Code } from '@connectrpc/connect'
import { expect, onTestFinished, test } from 'vitest'
import { connectTo } from '../../bin/compose/remote.js'
import { readConfig } from '../../bin/config.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { clientOf } from '../../services/rpc/client.js'
import { Peers } from '../../services/rpc/peers.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { FakePeer } from './fake-peer.js'

const verification = { appid: 'app_x', accessToken: 'sat_x' }
const exchange = { appid: 'app_x', secret: 'sas_x', code: 'sac_x' }
const SOON = { timeout: 10_000, interval: 10 }

/** A connection to both; the second is started only if it is to be. */
async function open({ startsBoth = true } = {}) {
  const folder = temporaryDirectory()
  const paths = [path.join(folder, 'a.sock'), path.join(folder, 'b.sock')] as const
  const [a, b] = [new FakePeer(paths[0], 'a'), new FakePeer(paths[1], 'b')]
  onTestFinished(() => {
    for (const peer of [a, b]) peer.kill()
  })
  await a.start()
  if (startsBoth) await b.start()
  const addresses = paths.map((path) => ({ kind: 'unix', path }) as const)
  const remote = connectTo('token', addresses, readConfig({ DATA_DIR: folder }), 'gateway')
  onTestFinished(() => remote.close())
  const token = clientOf(TokenService, remote.invoke)
  const verify = async () => (await token.verifyAccessToken(verification, { timeoutMs: 10_000 })).openid
  /** Who answers the next calls. */
  const answering = async (calls = 4) => {
    const names: string[] = []
    for (let call = 0; call < calls; call += 1) names.push(await verify())
    return names.sort().join('')
  }
  /** Looks until the remote lacks just what is at these addresses. */
  const looks = (...lacking: readonly FakePeer[]) => {
    const urls = [a, b].map((peer, index) => (lacking.includes(peer) ? [`token service at unix:${paths[index]}`] : []))
    return expect.poll(async () => (await remote.absent()).map(({ what }) => what), SOON).toEqual(urls.flat())
  }
  return { a, b, remote, token, verify, answering, looks, urls: paths.map((path) => `unix:${path}`) }
}

test('calls go to all that serve, in turn', async () => {
  const { looks, answering } = await open()
  await looks()
  expect(await answering(10)).toBe('aaaaabbbbb')
})

test('when one is killed, calls in flight that change nothing go to another, the others fail and are sent only once', async () => {
  const { a, b, token, verify, answering, looks } = await open()
  await looks()
  a.isSilent = true
  const calls = [verify(), verify(), verify(), verify()]
  const exchanges = [token.exchangeCode(exchange), token.exchangeCode(exchange)]
  const outcomes = Promise.allSettled(exchanges)
  await expect.poll(() => a.seen.length).toBe(3)
  a.kill()
  expect(await Promise.all(calls)).toEqual(['b', 'b', 'b', 'b'])
  const [one, other] = await outcomes
  expect([one, other].map((outcome) => outcome?.status).sort()).toEqual(['fulfilled', 'rejected'])
  const rejected = [one, other].find((outcome) => outcome?.status === 'rejected')
  expect(rejected).toMatchObject({ reason: { code: Code.Unavailable } })
  expect([...a.seen, ...b.seen].filter((method) => method === 'ExchangeCode')).toHaveLength(2)
  expect(await answering()).toBe('bbbb')
  await looks(a)
})

test('a call that breaks two processes goes to no third', async () => {
  const { a, b, verify, looks } = await open()
  await looks()
  for (const peer of [a, b]) peer.isSilent = true
  const call = expect(verify()).rejects.toMatchObject({ code: Code.Unavailable })
  const broken = () => [a, b].filter((peer) => peer.seen.length > 0)
  await expect.poll(() => broken().length).toBe(1)
  const [first] = broken()
  first?.kill()
  await expect.poll(() => broken().length).toBe(2)
  for (const peer of [a, b]) peer.kill()
  await first?.start()
  await call
  expect([...a.seen, ...b.seen]).toHaveLength(2)
})

test('one that says NOT_SERVING gets no calls while another serves, and is named; with no other it still gets them', async () => {
  const { a, b, remote, answering, looks, urls } = await open()
  await looks()
  a.isServing = false
  const cause = 'its health check says NOT_SERVING'
  expect(await remote.absent()).toEqual([{ what: `token service at ${urls[0]}`, cause, isDispensable: true }])
  expect(await answering()).toBe('bbbb')
  b.isServing = false
  expect((await remote.absent()).map(({ isDispensable }) => isDispensable)).toEqual([undefined, undefined])
  expect(await answering()).toBe('aabb')
  a.isServing = true
  await looks(b)
  expect(await answering()).toBe('aaaa')
})

test('after one look, as commands take it, the first calls go to one that serves', async () => {
  const { a, b, remote, answering } = await open()
  a.isServing = false
  await remote.choose()
  expect(await answering()).toBe('bbbb')
  expect([a.seen, b.seen.length]).toEqual([[], 4])
})

test('one that says on its stream that it is about to stop is left at once, and its calls in flight are answered', async () => {
  const { a, answering, looks } = await open()
  await looks()
  a.drain()
  await expect.poll(() => answering(), SOON).toBe('bbbb')
  a.kill()
  expect(await answering()).toBe('bbbb')
})

test('one that says nothing for half a second while calls wait gets no more of them', async () => {
  const { a, b, verify, answering, looks } = await open()
  await looks()
  a.isSilent = true
  const waiting = [verify(), verify()]
  await expect.poll(() => a.seen.length).toBe(1)
  await sleep(600)
  expect(await answering()).toBe('bbbb')
  a.kill()
  expect(await Promise.all(waiting)).toEqual(['b', 'b'])
  expect(b.seen).toHaveLength(6)
})

test('one that answers late, and only that it cannot, gets no calls until it says that it serves', async () => {
  const { a, verify, answering, looks } = await open()
  await looks()
  a.failsAfterMs = 700
  const calls = [verify(), verify(), verify(), verify()].map((call) => call.catch(({ code }) => Code[code]))
  expect((await Promise.all(calls)).sort()).toEqual(['Unavailable', 'Unavailable', 'b', 'b'])
  expect(await answering()).toBe('bbbb')
  a.failsAfterMs = undefined
  await looks()
  expect(await answering()).toBe('aabb')
})

test('one that hangs is named, and keeps nobody waiting who looks', async () => {
  const { a, remote, looks } = await open()
  await looks()
  a.hangs = true
  expect(await remote.absent()).toEqual([])
  expect(a.givenUp, 'as was known before').toBe(0)
  await looks(a)
  expect((await remote.absent()).map(({ cause }) => cause)).toEqual([
    'it does not answer health checks: see its /readyz',
  ])
  a.hangs = false
  await looks()
})

test('one that comes back is used again once it says that it serves', async () => {
  const { a, answering, looks } = await open()
  await looks()
  a.kill()
  await looks(a)
  await a.start()
  await looks()
  expect(await answering()).toBe('aabb')
})

test('one that is new gets no calls before it has said that it serves, while another has', async () => {
  const folder = temporaryDirectory()
  const peers = new Peers()
  const add = async (name: string) => {
    const peer = new FakePeer(path.join(folder, name), name)
    onTestFinished(() => peer.kill())
    await peer.start()
    const address = { kind: 'unix', path: path.join(folder, name) } as const
    const sizes = { maxRequestBytes: 1_000, maxResponseBytes: 1_000 }
    const transport = peers.add({ address, tls: undefined, ...sizes, defaultTimeoutMs: 5_000 })
    onTestFinished(() => transport.close())
    return transport
  }
  const { verifyAccessToken } = clientOf(TokenService, peers.invoke)
  const old = await add('a')
  old.open()
  await expect.poll(() => old.isConnected).toBe(true)
  old.isServing = true
  const added = await add('b')
  added.open()
  await expect.poll(() => added.isConnected).toBe(true)
  for (let call = 0; call < 4; call += 1) expect((await verifyAccessToken(verification)).openid).toBe('a')
  added.isServing = true
  expect((await verifyAccessToken(verification)).openid).toBe('b')
})

test('while none can be reached, calls wait, and go to the first that can, whatever the health of the others', async () => {
  const { a, b, answering, looks } = await open({ startsBoth: false })
  a.kill()
  const waiting = answering()
  await looks(a, b)
  await b.start()
  expect(await waiting).toBe('bbbb')
})

test('one that refuses this process is left to others, and calls are told only when all refuse', async () => {
  const { a, b, verify, answering, looks } = await open({ startsBoth: false })
  a.refuses = true
  const waiting = answering()
  await expect.poll(() => b.start(), SOON).toBeUndefined()
  expect(await waiting).toBe('bbbb')
  await looks()
  expect(await answering()).toBe('bbbb')
  b.refuses = true
  b.kill()
  await b.start()
  await expect.poll(() => verify().catch(({ code }) => Code[code]), SOON).toBe('PermissionDenied')
})
