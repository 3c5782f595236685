// What happens to calls whose stream breaks, at a peer that breaks streams on command.
import { execFileSync } from 'node:child_process'
import { getEventListeners, once } from 'node:events'
import net from 'node:net'
import { networkInterfaces } from 'node:os'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { create, type DescMethod, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test, vi } from 'vitest'
import {
  type MultiplexedCall,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
  MultiplexService,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { clientOf } from '../../services/rpc/client.js'
import { MAX_CALLS, MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { freezeTime } from '../harness/freeze-time.js'
import { BUILD } from '../harness/spawn.js'

const { verifyAccessToken, exchangeCode } = TokenService.method
const verification = { appid: 'app_x', accessToken: 'sat_x' }
const exchange = { appid: 'app_x', secret: 'sas_x', code: 'sac_x' }

type Reaction =
  | 'answer'
  | 'break'
  | 'babble'
  | 'leave'
  | 'wait'
  | 'silence'
  | 'late'
  | 'refuse'
  | 'reject'
  | 'large'
  | 'strange'
const LATE_MS = 200
const LARGE = 'o'.repeat(5 * 1024 * 1024) // grpc-js takes 4 MiB unless told otherwise
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'))
const STATUS = {
  refuse: grpc.status.UNAUTHENTICATED,
  reject: grpc.status.UNIMPLEMENTED,
  break: grpc.status.UNAVAILABLE,
}

/** A peer that treats the n-th stream as the n-th reaction says, later ones as the last; `seen` are the calls it got, `givenUp` those it need not run. */
async function startPeer(reactions: readonly Reaction[], host = '127.0.0.1') {
  const seen: MultiplexedCall[] = []
  const givenUp: number[] = []
  /** How many calls each message had. */
  const sizes: number[] = []
  const waiting: (() => void)[] = []
  let streams = 0
  let ended = 0
  const serve = (stream: grpc.ServerDuplexStream<Buffer, Buffer>) => {
    const reaction = reactions[Math.min(streams, reactions.length - 1)]
    streams += 1
    const greet = () => stream.sendMetadata(new grpc.Metadata())
    const fail = (code: grpc.status) => stream.emit('error', { code, details: reaction })
    if (reaction === 'refuse' || reaction === 'reject') {
      fail(STATUS[reaction])
      return
    }
    if (reaction === 'wait') waiting.push(greet)
    else greet()
    stream.on('end', () => {
      ended += 1
      stream.end()
    })
    stream.on('data', (bytes: Buffer) => {
      const { calls, givenUp: ids } = fromBinary(MultiplexRequestSchema, bytes)
      givenUp.push(...ids)
      seen.push(...calls)
      sizes.push(calls.length)
      if (reaction === 'break') fail(STATUS.break)
      else if (reaction === 'late') setTimeout(() => stream.write(answersTo(calls)), LATE_MS)
      else if (reaction !== 'silence') stream.write(answersTo(calls, reaction))
    })
  }
  const server = new grpc.Server()
  const asIs = (bytes: Buffer) => bytes
  const codec = { requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs }
  const path = `/${MultiplexService.typeName}/Multiplex`
  server.addService({ multiplex: { path, requestStream: true, responseStream: true, ...codec } }, { multiplex: serve })
  const unary = { requestStream: false, responseStream: false, ...codec }
  server.addService({ check: { path: '/grpc.health.v1.Health/Check', ...unary } }, { check: () => undefined })
  const injector = server.createConnectionInjector(grpc.ServerCredentials.createInsecure())
  const sockets = net.createServer((socket) => injector.injectConnection(socket)).listen(0, host)
  await once(sockets, 'listening')
  const { port } = sockets.address() as net.AddressInfo
  const transport = new MultiplexTransport({
    address: { kind: 'plaintext', host, port },
    tls: undefined,
    maxRequestBytes: 65_536,
    maxResponseBytes: 6 * 1024 * 1024,
    defaultTimeoutMs: 20_000,
  })
  onTestFinished(() => {
    transport.close()
    sockets.close()
    server.forceShutdown()
  })
  const greet = async () => {
    await expect.poll(() => waiting.length).toBe(1)
    waiting[0]?.()
  }
  const connections = () => new Promise<number>((resolve) => sockets.getConnections((_, count) => resolve(count)))
  const token = clientOf(TokenService, transport.invoke)
  return { seen, givenUp, sizes, transport, greet, token, connections, ended: () => ended, streams: () => streams }
}

function answersTo(calls: readonly MultiplexedCall[], reaction?: Reaction): Buffer {
  const results = calls.map(({ id, method }) => {
    const { output }: DescMethod = method.endsWith('ExchangeCode') ? exchangeCode : verifyAccessToken
    const openid = reaction === 'large' ? LARGE : 'o_x'
    const value = reaction === 'babble' ? Buffer.from([0xff]) : toBinary(output, create(output, { openid }))
    if (reaction === 'strange')
      return { id, outcome: { case: 'failure' as const, value: { code: 99, message: 'odd' } } }
    return { id, outcome: { case: 'response' as const, value } }
  })
  const response = { results, draining: reaction === 'leave' }
  return Buffer.from(toBinary(MultiplexResponseSchema, create(MultiplexResponseSchema, response)))
}

test('a call that changes nothing is sent again over the next stream', async () => {
  const { seen, token } = await startPeer(['break', 'answer'])
  const headers = { 'x-request-id': '11111111-1111-4111-8111-111111111111' }
  expect((await token.verifyAccessToken(verification, { headers, timeoutMs: 10_000 })).openid).toBe('o_x')
  expect(seen.map(({ requestId }) => requestId)).toEqual([headers['x-request-id'], headers['x-request-id']])
  const [first, second] = seen.map(({ timeoutMs }) => timeoutMs)
  expect(first).toBeLessThanOrEqual(10_000)
  expect(second, 'what is left of its time').toBeLessThan(first ?? 0)
})

test('an answer may be as large as this side accepts', async () => {
  const { token } = await startPeer(['large'])
  expect((await token.verifyAccessToken(verification)).openid).toBe(LARGE)
})

test('an answer that cannot be decoded fails with its cause', async () => {
  const { token } = await startPeer(['babble'])
  const failure = { code: Code.Internal, cause: expect.any(Error) }
  await expect(token.verifyAccessToken(verification)).rejects.toMatchObject(failure)
})

test('a call is sent at most twice: it may be what breaks the peer', async () => {
  const { seen, token } = await startPeer(['break'])
  await expect(token.verifyAccessToken(verification)).rejects.toMatchObject({ code: Code.Unavailable })
  expect(seen).toHaveLength(2)
})

test('a call that may have changed something is sent only once', async () => {
  const { seen, token } = await startPeer(['break', 'answer'])
  await expect(token.exchangeCode(exchange)).rejects.toMatchObject({ code: Code.Unavailable })
  await token.verifyAccessToken(verification) // the next stream works
  expect(seen.map(({ method }) => method.split('/').at(-1))).toEqual(['ExchangeCode', 'VerifyAccessToken'])
})

test('calls made within two turns travel together, and no call waits for an answer', async () => {
  const { sizes, token } = await startPeer(['late'])
  await token.verifyAccessToken(verification)
  const calls = [token.exchangeCode(exchange)]
  await nextTurn()
  calls.push(token.exchangeCode(exchange))
  await expect.poll(() => sizes).toEqual([1, 2])
  calls.push(token.exchangeCode(exchange))
  await expect.poll(() => sizes, { timeout: LATE_MS / 2 }).toEqual([1, 2, 1])
  await Promise.all(calls)
})

test('closing fails calls that wait for the next stream', async () => {
  const { token, transport, seen } = await startPeer(['break', 'answer'])
  const call = token.verifyAccessToken(verification)
  while (seen.length === 0) await new Promise((resolve) => setTimeout(resolve, 1))
  transport.close()
  await expect(call).rejects.toMatchObject({ code: Code.Unavailable })
})

test('closing fails calls in flight, also those on replaced streams', async () => {
  const { token, transport, seen, connections } = await startPeer(['silence'])
  const fails = () =>
    expect(token.verifyAccessToken(verification)).rejects.toMatchObject({
      code: Code.Unavailable,
      message: expect.stringContaining('lost'),
    })
  const first = fails()
  await expect.poll(() => seen.length).toBe(1)
  transport.reconnect()
  const second = fails()
  await expect.poll(() => seen.length).toBe(2)
  transport.close()
  await Promise.all([first, second])
  await expect(token.verifyAccessToken(verification)).rejects.toThrow('the connection is closed')
  await expect.poll(connections, { timeout: 10_000 }).toBe(0)
})

test('when a peer ends every stream, only a few new ones a second are opened', async () => {
  const { token, streams } = await startPeer(['reject'])
  await expect(token.verifyAccessToken(verification, { timeoutMs: 500 })).rejects.toMatchObject({
    code: Code.DeadlineExceeded,
  })
  expect(streams()).toBeLessThan(15)
})

test('a call sent with less than a millisecond left is sent with a timeout of 1 ms, not without one', async () => {
  freezeTime()
  const { token, seen } = await startPeer(['answer'])
  await token.verifyAccessToken(verification)
  const late = token.verifyAccessToken(verification, { timeoutMs: 5.5 })
  vi.advanceTimersByTime(5)
  await Promise.allSettled([late])
  await expect.poll(() => seen.length).toBe(2)
  expect(seen[1]?.timeoutMs).toBe(1)
})

test('a call whose time runs out before it could be sent is not sent', async () => {
  freezeTime()
  const { token, seen } = await startPeer(['answer'])
  await token.verifyAccessToken(verification)
  const late = token.exchangeCode(exchange, { timeoutMs: 5 })
  vi.advanceTimersByTime(10)
  await expect(late).rejects.toMatchObject({ code: Code.DeadlineExceeded })
  await token.verifyAccessToken(verification)
  expect(seen.map(({ method }) => method.split('/').at(-1))).toEqual(['VerifyAccessToken', 'VerifyAccessToken'])
})

test('the deadline of a call holds while it waits for the next stream', async () => {
  const { token } = await startPeer(['break'])
  const call = token.verifyAccessToken(verification, { timeoutMs: 30 }) // less than the pause before the next stream
  await expect(call).rejects.toMatchObject({ code: Code.DeadlineExceeded })
})

test('a replaced stream ends even when its last call cannot be sent', async () => {
  const { transport, token, ended } = await startPeer(['answer'])
  await token.verifyAccessToken(verification)
  const tooLarge = token.verifyAccessToken({ ...verification, accessToken: 'x'.repeat(70_000) })
  transport.reconnect()
  await expect(tooLarge).rejects.toMatchObject({ code: Code.ResourceExhausted })
  await expect.poll(ended).toBe(1)
})

test('a replaced stream ends even when its last call is not answered in time', async () => {
  const { transport, token, ended, seen } = await startPeer(['silence'])
  const unanswered = token.verifyAccessToken(verification, { timeoutMs: 200 })
  const outcome = expect(unanswered).rejects.toMatchObject({ code: Code.DeadlineExceeded })
  await expect.poll(() => seen.length).toBe(1)
  transport.reconnect()
  await outcome
  await expect.poll(ended, { timeout: 10_000 }).toBe(1)
})

test('calls made before a reconnect are answered over the old connection, which then ends', async () => {
  const { transport, token, connections, streams } = await startPeer(['late', 'answer'])
  const sent = token.verifyAccessToken(verification)
  await expect.poll(streams).toBe(1)
  await new Promise((resolve) => setTimeout(resolve, LATE_MS / 4))
  const queued = token.verifyAccessToken(verification)
  transport.reconnect()
  expect((await token.verifyAccessToken(verification)).openid).toBe('o_x')
  expect([(await sent).openid, (await queued).openid, streams()]).toEqual(['o_x', 'o_x', 2])
  await expect.poll(connections, { timeout: 10_000 }).toBe(1)
  expect((await token.verifyAccessToken(verification)).openid).toBe('o_x')
  expect(streams()).toBe(2)
})

test('a late answer is dropped, and the stream goes on', async () => {
  const { token, streams } = await startPeer(['late'])
  const late = token.verifyAccessToken(verification, { timeoutMs: LATE_MS / 2 })
  await expect(late).rejects.toMatchObject({ code: Code.DeadlineExceeded })
  expect((await token.verifyAccessToken(verification)).openid).toBe('o_x')
  expect(streams()).toBe(1)
})

test('when the peer is about to stop, calls go elsewhere and its stream ends', async () => {
  const { token, ended } = await startPeer(['leave', 'answer'])
  for (let i = 0; i < 2; i += 1) expect((await token.verifyAccessToken(verification)).openid).toBe('o_x')
  await expect.poll(ended, { timeout: 10_000 }).toBe(1)
  expect((await token.verifyAccessToken(verification)).openid).toBe('o_x')
  expect(ended()).toBe(1)
})

test('a call that was given up before it could be sent is not sent', async () => {
  const { token, seen, greet } = await startPeer(['wait'])
  const late = token.exchangeCode(exchange, { timeoutMs: 20 })
  await expect(late).rejects.toMatchObject({ code: Code.DeadlineExceeded })
  const other = token.verifyAccessToken(verification)
  await greet()
  expect((await other).openid).toBe('o_x')
  expect(seen.map(({ method }) => method.split('/').at(-1))).toEqual(['VerifyAccessToken'])
})

test('a call whose caller goes away fails at once; it is not sent, or the peer learns of it', async () => {
  const { token, seen, givenUp } = await startPeer(['silence'])
  const fails = (signal: AbortSignal) =>
    expect(token.exchangeCode(exchange, { signal })).rejects.toMatchObject({ code: Code.Canceled })
  const [first, second] = [new AbortController(), new AbortController()]
  const unsent = fails(first.signal)
  first.abort()
  await unsent
  await fails(first.signal)
  const sent = fails(second.signal)
  await expect.poll(() => seen.length).toBe(1)
  second.abort()
  await sent
  await expect.poll(() => givenUp).toEqual([seen[0]?.id])
})

test('a call that was answered no longer listens for its caller to go away', async () => {
  const { token } = await startPeer(['answer'])
  const { signal } = new AbortController()
  await token.exchangeCode(exchange, { signal })
  expect(getEventListeners(signal, 'abort')).toEqual([])
})

test('after three seconds without a connection, calls fail at once', async () => {
  const { token } = await startPeer(['wait'])
  const first = expect(token.verifyAccessToken(verification, { timeoutMs: 3_500 })).rejects.toMatchObject({
    code: Code.DeadlineExceeded,
  })
  await new Promise((resolve) => setTimeout(resolve, 3_100))
  await expect(token.verifyAccessToken(verification)).rejects.toThrow('no connection to 127.0.0.1:')
  await first
})

test.each([
  ['refuses every caller', 'refuse', ' refuses: refuse', Code.Unauthenticated],
  ['ends every stream before it has begun', 'reject', 'no connection to', Code.Unavailable],
] as const)('callers of a peer that %s are told so, however long it lasts', async (_, reaction, text, code) => {
  freezeTime()
  const { token, streams } = await startPeer([reaction])
  const fails = async () => {
    const call = token.verifyAccessToken(verification)
    await expect(call).rejects.toMatchObject({ code, message: expect.stringContaining(text) })
  }
  const first = fails()
  await expect.poll(streams).toBeGreaterThan(reaction === 'reject' ? 2 : 0)
  vi.advanceTimersByTime(3_100)
  await first
  await fails()
})

test('as many calls wait as there is room for, and one more fails at once', async () => {
  const { token, transport } = await startPeer(['wait'])
  const waiting = Array.from({ length: MAX_CALLS }, () => token.verifyAccessToken(verification))
  const ended = Promise.allSettled(waiting)
  await expect(token.verifyAccessToken(verification)).rejects.toThrow('too many calls are waiting')
  transport.close()
  expect((await ended).every(({ status }) => status === 'rejected')).toBe(true)
})

test('as many calls as may wait are all answered over the next stream', async () => {
  const { token } = await startPeer(['reject', 'answer'])
  const answers = await Promise.all(Array.from({ length: MAX_CALLS }, () => token.verifyAccessToken(verification)))
  expect(answers.every(({ openid }) => openid === 'o_x')).toBe(true)
})

test.runIf(hasIpv6)('an IPv6 address works', async () => {
  const { token } = await startPeer(['answer'], '::1')
  expect((await token.verifyAccessToken(verification)).openid).toBe('o_x')
})

test('a connection is not replaced for its age', async () => {
  freezeTime()
  const { token, streams } = await startPeer(['answer'])
  for (let calls = 0; calls < 3; calls += 1) {
    expect((await token.verifyAccessToken(verification)).openid).toBe('o_x')
    vi.advanceTimersByTime(3_600_000)
  }
  expect(streams()).toBe(1)
})

test('a peer that answers no health checks is not waited for, and a replaced connection is closed', async () => {
  const { transport, connections } = await startPeer(['answer'])
  expect(await transport.whyNotServing()).toBe('it does not answer health checks: see its /readyz')
  expect(await connections()).toBe(1)
  transport.reconnect()
  await expect.poll(connections, { timeout: 10_000 }).toBe(0)
})

test('a failure with an unknown code is reported as unknown', async () => {
  const { token } = await startPeer(['strange'])
  await expect(token.verifyAccessToken(verification)).rejects.toMatchObject({ code: Code.Unknown, rawMessage: 'odd' })
})

test('no memory is kept for calls that were answered or failed, nor for streams that ended', () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const script = `
    const dist = '${new URL('../../dist/', import.meta.url).href}'
    const { MultiplexTransport } = await import(dist + 'services/rpc/multiplex-transport.js')
    const { clientOf } = await import(dist + 'services/rpc/client.js')
    const { TokenService } = await import(dist + 'gen/surveyauth/v1/token_service_pb.js')
    const { startRpcServer } = await import(dist + 'services/rpc/rpc-server.js')
    const { Dispatcher } = await import(dist + 'services/rpc/dispatcher.js')
    const handlers = TokenService.methods.map(({ localName }) => [localName, async () => ({ openid: 'o' })])
    const dispatcher = new Dispatcher({ mayCall: () => true, onCall() {}, onUnexpected() {}, maxDeadlineMs: 60_000 })
    dispatcher.register(TokenService, Object.fromEntries(handlers))
    const { address: url } = await startRpcServer({
      dispatcher, address: { kind: 'plaintext', host: '127.0.0.1', port: 0 }, tls: undefined,
      callers: new Map(), maxConnections: 1_000,
    })
    const address = { kind: 'plaintext', host: '127.0.0.1', port: Number(new URL(url).port) }
    const transport = new MultiplexTransport({
      address, tls: undefined, maxRequestBytes: 300, maxResponseBytes: 1_000, defaultTimeoutMs: 60_000,
    })
    const token = clientOf(TokenService, transport.invoke)
    const ask = (length) => token.verifyAccessToken({ appid: 'a', accessToken: 'x'.repeat(length) }).catch(() => undefined)
    const askAll = (length) => Promise.all(Array.from({ length: 1_000 }, () => ask(length)))
    const keptMB = async () => {
      for (let n = 0; n < 3; n++) await new Promise((resolve) => setTimeout(resolve, 20)).then(gc)
      return process.memoryUsage().heapUsed / 1e6
    }
    async function grownMB(work) {
      await work()
      const before = await keptMB()
      let grown = Infinity // newer Nodes hold hundreds of streams for a while before they give any back
      for (let stretch = 0; stretch < 40 && grown > 8; stretch++) {
        for (let n = 0; n < 20; n++) await work()
        grown = Math.min(grown, (await keptMB()) - before)
      }
      return grown
    }
    const grown = [await grownMB(() => askAll(10)), await grownMB(() => askAll(500))]
    grown.push(await grownMB(async () => {
      for (let n = 0; n < 2; n++) {
        await ask(10)
        transport.reconnect()
      }
    }))
    console.log(JSON.stringify(grown))
    process.exit()`
  const told = execFileSync(process.execPath, ['--expose-gc', '--input-type=module', '--eval', script])
  for (const grownMB of JSON.parse(String(told))) expect(grownMB).toBeLessThan(8) // 20,000 calls, or 40 streams of 0.26 MB
})
