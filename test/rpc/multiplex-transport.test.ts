// What becomes of calls whose stream breaks, at a peer that breaks streams as it is told.
import { create, type DescMethod, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import {
  type MultiplexedCall,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
  MultiplexService,
} from '../../gen/surveyauth/v1/multiplex_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { MAX_CALLS } from '../../services/rpc/call-table.js'
import { clientOf } from '../../services/rpc/client.js'
import { createMultiplexTransport } from '../../services/rpc/multiplex-transport.js'

const { verifyAccessToken, exchangeCode } = TokenService.method
const verification = { appid: 'app_x', accessToken: 'sat_x' }
const exchange = { appid: 'app_x', secret: 'sas_x', code: 'sac_x' }

type Reaction = 'answer' | 'break' | 'babble' | 'leave' | 'wait' | 'silence'

/** A peer that reacts to the n-th stream, and to all after the last, as `reactions` says; `seen` are the calls it got. */
async function startPeer(reactions: readonly Reaction[]) {
  const seen: MultiplexedCall[] = []
  const waiting: (() => void)[] = []
  let streams = 0
  let ended = 0
  const serve = (stream: grpc.ServerDuplexStream<Buffer, Buffer>) => {
    const reaction = reactions[Math.min(streams, reactions.length - 1)]
    streams += 1
    const greet = () => stream.sendMetadata(new grpc.Metadata())
    if (reaction === 'wait') waiting.push(greet)
    else greet()
    stream.on('end', () => {
      ended += 1
      stream.end()
    })
    stream.on('data', (bytes: Buffer) => {
      const { calls } = fromBinary(MultiplexRequestSchema, bytes)
      seen.push(...calls)
      if (reaction === 'break') stream.emit('error', { code: grpc.status.UNAVAILABLE, details: 'broken' })
      else if (reaction !== 'silence') stream.write(answersTo(calls, reaction))
    })
  }
  const server = new grpc.Server()
  const asIs = (bytes: Buffer) => bytes
  const codec = { requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs }
  const path = `/${MultiplexService.typeName}/Multiplex`
  server.addService({ multiplex: { path, requestStream: true, responseStream: true, ...codec } }, { multiplex: serve })
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    )
  })
  const transport = createMultiplexTransport({
    address: { kind: 'plaintext', host: '127.0.0.1', port },
    tls: undefined,
    maxRequestBytes: 65_536,
    maxResponseBytes: 1024,
    defaultTimeoutMs: 20_000,
  })
  onTestFinished(() => {
    transport.close()
    server.forceShutdown()
  })
  const greet = async () => {
    await expect.poll(() => waiting.length).toBe(1)
    waiting[0]?.()
  }
  return { seen, transport, greet, token: clientOf(TokenService, transport.invoke), ended: () => ended }
}

function answersTo(calls: readonly MultiplexedCall[], reaction?: Reaction): Buffer {
  const results = calls.map(({ id, method }) => {
    const { output }: DescMethod = method.endsWith('ExchangeCode') ? exchangeCode : verifyAccessToken
    const value = reaction === 'babble' ? Buffer.from([0xff]) : toBinary(output, create(output, { openid: 'o_x' }))
    return { id, outcome: { case: 'response' as const, value } }
  })
  const response = { results, draining: reaction === 'leave' }
  return Buffer.from(toBinary(MultiplexResponseSchema, create(MultiplexResponseSchema, response)))
}

test('a call that changes nothing goes over the next stream', async () => {
  const { seen, token } = await startPeer(['break', 'answer'])
  const headers = { 'x-request-id': '11111111-1111-4111-8111-111111111111' }
  expect((await token.verifyAccessToken(verification, { headers, timeoutMs: 10_000 })).openid).toBe('o_x')
  expect(seen.map(({ requestId }) => requestId)).toEqual([headers['x-request-id'], headers['x-request-id']])
  const [first, second] = seen.map(({ timeoutMs }) => timeoutMs)
  expect(first).toBeLessThanOrEqual(10_000)
  expect(second, 'what is left of its time').toBeLessThan(first ?? 0)
})

test('an answer that is none fails with its cause, which nobody else has logged', async () => {
  const { token } = await startPeer(['babble'])
  const failure = { code: Code.Internal, cause: expect.any(Error) }
  await expect(token.verifyAccessToken(verification)).rejects.toMatchObject(failure)
})

test('it is sent twice at most: it may be what breaks the peer', async () => {
  const { seen, token } = await startPeer(['break'])
  await expect(token.verifyAccessToken(verification)).rejects.toMatchObject({ code: Code.Unavailable })
  expect(seen).toHaveLength(2)
})

test('a call that may have changed something is sent once', async () => {
  const { seen, token } = await startPeer(['break', 'answer'])
  await expect(token.exchangeCode(exchange)).rejects.toMatchObject({ code: Code.Unavailable })
  await token.verifyAccessToken(verification) // the next stream works
  expect(seen.map(({ method }) => method.split('/').at(-1))).toEqual(['ExchangeCode', 'VerifyAccessToken'])
})

test('closing fails what is to go over the next stream', async () => {
  const { token, transport, seen } = await startPeer(['break', 'answer'])
  const call = token.verifyAccessToken(verification)
  while (seen.length === 0) await new Promise((resolve) => setTimeout(resolve, 1))
  transport.close()
  await expect(call).rejects.toMatchObject({ code: Code.Unavailable })
})

test('its deadline holds while it waits for the next stream', async () => {
  const { token } = await startPeer(['break'])
  const call = token.verifyAccessToken(verification, { timeoutMs: 30 }) // less than the pause before the next stream
  await expect(call).rejects.toMatchObject({ code: Code.DeadlineExceeded })
})

test('a stream that is left ends also when its last call cannot be sent', async () => {
  const { transport, token, ended } = await startPeer(['answer'])
  await token.verifyAccessToken(verification)
  const tooLarge = token.verifyAccessToken({ ...verification, accessToken: 'x'.repeat(70_000) })
  transport.reconnect()
  await expect(tooLarge).rejects.toMatchObject({ code: Code.ResourceExhausted })
  await expect.poll(ended).toBe(1)
})

test('so it does when its last call is not answered in time', async () => {
  const { transport, token, ended, seen } = await startPeer(['silence'])
  const unanswered = token.verifyAccessToken(verification, { timeoutMs: 200 })
  const outcome = expect(unanswered).rejects.toMatchObject({ code: Code.DeadlineExceeded })
  await expect.poll(() => seen.length).toBe(1)
  transport.reconnect()
  await outcome
  await expect.poll(ended, { timeout: 10_000 }).toBe(1)
})

test('a call whose caller went away before fails as every other call does', async () => {
  const { token, seen } = await startPeer(['answer'])
  const gone = token.verifyAccessToken({}, { signal: AbortSignal.abort() })
  await expect(gone).rejects.toMatchObject({ name: 'ConnectError', code: Code.Canceled })
  expect(seen).toEqual([])
})

test('calls go elsewhere when the peer is about to go, and its stream ends', async () => {
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

test('when there is no connection for three seconds, calls fail at once', async () => {
  const { token } = await startPeer(['wait'])
  const first = expect(token.verifyAccessToken(verification, { timeoutMs: 3_500 })).rejects.toMatchObject({
    code: Code.DeadlineExceeded,
  })
  await new Promise((resolve) => setTimeout(resolve, 3_100))
  await expect(token.verifyAccessToken(verification)).rejects.toThrow('no connection to 127.0.0.1:')
  await first
})

test('as many calls wait as there is room for, and one more fails at once', async () => {
  const { token, transport } = await startPeer(['wait'])
  const waiting = Array.from({ length: MAX_CALLS }, () => token.verifyAccessToken(verification))
  const ended = Promise.allSettled(waiting)
  await expect(token.verifyAccessToken(verification)).rejects.toThrow('too many calls are waiting')
  transport.close()
  expect((await ended).every(({ status }) => status === 'rejected')).toBe(true)
})
