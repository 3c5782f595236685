// What clients other than grpc-js send to the doors over HTTP/2.
import { once } from 'node:events'
import http2 from 'node:http2'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { MultiplexService } from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import type { Address } from '../../services/rpc/address.js'
import { mayCall } from '../../services/rpc/callers.js'
import { type CallRecord, Dispatcher } from '../../services/rpc/dispatcher.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'

const CALL_MS = 50
const PATH = '/surveyauth.internal.v1.LimitService/CountRequests'
const address: Address = { kind: 'plaintext', host: '127.0.0.1', port: 0 }

let server: RpcServer
/** Keys of the calls that were begun, and how calls ended. */
const begun: (string | undefined)[] = []
const records: CallRecord[] = []

beforeAll(async () => {
  const dispatcher = new Dispatcher({
    mayCall,
    onCall: (record) => records.push(record),
    onUnexpected: () => undefined,
    maxDeadlineMs: 30_000,
  }).register(LimitService, {
    async countRequests({ counts }) {
      begun.push(counts[0]?.key)
      await (counts[0]?.key === FOR_EVER ? new Promise(() => undefined) : sleep(CALL_MS))
      return { totals: [1] }
    },
  })
  server = await startRpcServer({
    dispatcher,
    address,
    tls: undefined,
    callers: new Map(),
    maxConnections: 100,
  })
})
afterAll(() => server.drain(200))

const FOR_EVER = 'f' // the key of a call that is never answered

/** A CountRequestsRequest with one count: a key of one letter, window ending at 1 s after 1970; FRAMED adds gRPC's prefix. */
const requestOf = (key: string) => Buffer.from([0x0a, 7, 0x0a, 1, key.charCodeAt(0), 0x12, 2, 0x08, 1])
const jsonOf = (key: string) => `{"counts":[{"key":"${key}","windowEndTime":"1970-01-01T00:00:01Z"}]}`
const REQUEST = requestOf('k')
const FRAMED = Buffer.concat([Buffer.from([0, 0, 0, 0, REQUEST.length]), REQUEST])

function overHttp2(): http2.ClientHttp2Session {
  const session = http2.connect(server.address)
  onTestFinished(() => session.destroy())
  return session
}

function clientOfGrpc(): grpc.Client {
  const client = new grpc.Client(server.address.replace('http://', ''), grpc.credentials.createInsecure())
  onTestFinished(() => client.close())
  return client
}

/** How a gRPC call with these headers ends. */
async function statusOf(session: http2.ClientHttp2Session, headers: http2.OutgoingHttpHeaders): Promise<unknown> {
  const stream = session.request({
    ':method': 'POST',
    ':path': PATH,
    'content-type': 'application/grpc',
    te: 'trailers',
    ...headers,
  })
  stream.end(FRAMED).resume()
  const heard: http2.IncomingHttpHeaders[] = []
  stream.on('response', (head) => heard.push(head)).on('trailers', (trailers) => heard.push(trailers))
  await once(stream, 'close')
  return heard.map((each) => each['grpc-status']).find((status) => status !== undefined)
}

test('a web page may not open a stream of calls', async () => {
  const headers = { ':path': '/surveyauth.internal.v1.MultiplexService/Multiplex', origin: 'http://rebound.example' }
  expect(await statusOf(overHttp2(), headers)).toBe(String(grpc.status.PERMISSION_DENIED))
})

/** How a call ends when its deadline passes and the client itself does not enforce it. */
const endOfLate: Record<string, () => Promise<unknown>> = {
  gRPC: () => statusOf(overHttp2(), { 'grpc-timeout': '20m' }),
  async Connect() {
    const headers = { 'content-type': 'application/json', 'connect-timeout-ms': '20' }
    const answer = await fetch(`${server.address}${PATH}`, { method: 'POST', headers, body: jsonOf('k') })
    return ((await answer.json()) as { code?: string }).code
  },
}

test.each([
  ['gRPC', String(grpc.status.DEADLINE_EXCEEDED)],
  ['Connect', 'deadline_exceeded'],
])('a call whose time runs out before its answer is reported and recorded so, through %s', async (door, end) => {
  records.length = 0
  expect(await endOfLate[door]?.()).toBe(end)
  await expect.poll(() => records.map(({ code }) => code)).toEqual([Code.DeadlineExceeded])
})

test('headers of up to 16 KiB are accepted over HTTP/2, as its SETTINGS say', async () => {
  const session = overHttp2()
  const [settings] = (await once(session, 'remoteSettings')) as [http2.Settings]
  expect(settings).toMatchObject({ maxHeaderListSize: 16 * 1024, maxConcurrentStreams: 100 })
  const answerWith = (bytes: number) => {
    const headers = {
      ':method': 'POST',
      ':path': PATH,
      'content-type': 'application/json',
      'x-much': 'm'.repeat(bytes),
    }
    const stream = session.request(headers).end(jsonOf('k'))
    return once(stream.resume(), 'response').then(
      ([head]) => (head as http2.IncomingHttpHeaders)[':status'],
      (error: Error) => error.message,
    )
  }
  expect(await answerWith(15 * 1024)).toBe(200)
  expect(await answerWith(16 * 1024)).toContain('NGHTTP2_ENHANCE_YOUR_CALM')
  expect(await answerWith(0)).toBe(200)
})

test.each([
  ['is none', [0x0a, 200], 'INVALID_ARGUMENT', 'not a surveyauth.internal.v1.MultiplexRequest'],
  ['carries 1,001 calls', Array(1_001).fill([0x0a, 0]).flat(), 'INVALID_ARGUMENT', '1000 calls at most'],
  ['is larger than a request', Array(64 * 1024 + 1).fill(0), 'RESOURCE_EXHAUSTED', 'larger than max'],
] as const)('a message to multiplex that %s ends the stream with the reason', async (_, message, code, why) => {
  const client = clientOfGrpc()
  const asIs = (bytes: Buffer) => bytes
  const stream = client.makeBidiStreamRequest('/surveyauth.internal.v1.MultiplexService/Multiplex', asIs, asIs)
  const end = new Promise<grpc.StatusObject>((resolve) => stream.once('status', resolve))
  stream.on('error', () => undefined).resume()
  stream.write(Buffer.from(message))
  const status = await end
  expect(grpc.status[status.code]).toBe(code)
  expect(status.details).toContain(why)
})

test('the health of each service is that of the server, and an unknown service has none', async () => {
  const client = clientOfGrpc()
  const healthOf = (service: string) =>
    new Promise((resolve) => {
      const request = Buffer.from([0x0a, service.length, ...Buffer.from(service)])
      const asIs = (bytes: Buffer) => bytes
      client.makeUnaryRequest('/grpc.health.v1.Health/Check', asIs, asIs, request, (error, answer) =>
        resolve(error ? grpc.status[error.code] : answer?.[1]),
      )
    })
  const [SERVING, NOT_SERVING] = [1, 2]
  for (const [isServing, health] of [
    [true, SERVING],
    [false, NOT_SERVING],
  ] as const) {
    server.setServing(isServing)
    for (const service of ['', LimitService.typeName, MultiplexService.typeName]) {
      expect(await healthOf(service)).toBe(health)
    }
  }
  expect(await healthOf('surveyauth.v1.NoService')).toBe('NOT_FOUND')
})

/** Begins a call that is not answered; returns a function with which its caller goes away. */
const begin: Record<string, () => () => void> = {
  gRPC() {
    const asIs = (bytes: Buffer) => bytes
    const call = clientOfGrpc().makeUnaryRequest(PATH, asIs, asIs, requestOf(FOR_EVER), () => undefined)
    return () => call.cancel()
  },
  'Connect over HTTP/1.1'() {
    const gone = new AbortController()
    const [method, headers, body] = ['POST', { 'content-type': 'application/json' }, jsonOf(FOR_EVER)]
    fetch(`${server.address}${PATH}`, { method, headers, body, signal: gone.signal }).catch(() => undefined)
    return () => gone.abort()
  },
  'Connect over HTTP/2'() {
    const headers = { ':method': 'POST', ':path': PATH, 'content-type': 'application/json' }
    const stream = overHttp2().request(headers).end(jsonOf(FOR_EVER))
    return () => stream.close(http2.constants.NGHTTP2_CANCEL)
  },
}

test.each(Object.keys(begin))('a call ends when its caller goes away, through %s', async (door) => {
  begun.length = 0
  records.length = 0
  const goAway = begin[door]?.()
  await expect.poll(() => begun, { timeout: 20_000 }).toEqual([FOR_EVER])
  goAway?.()
  await expect.poll(() => records.map(({ code }) => code), { timeout: 20_000 }).toEqual([Code.Canceled])
})

test('HTTP/1.1 callers are told that idle connections stay for a minute; compressed requests are refused', async () => {
  const send = (headers: Record<string, string>, body: string | Uint8Array<ArrayBuffer>) =>
    fetch(`${server.address}${PATH}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    })
  const answer = await send({}, jsonOf('k'))
  expect(await answer.json()).toEqual({ totals: [1] })
  expect(answer.headers.get('keep-alive')).toBe('timeout=65')
  const refused = await send({ 'content-encoding': 'gzip' }, gzipSync(jsonOf('k')))
  expect(await refused.json()).toMatchObject({ code: 'unimplemented' })
})

test('a health watcher is told of changes only', async () => {
  const client = clientOfGrpc()
  const bytes = (message: Buffer) => message
  const watch = client.makeServerStreamRequest('/grpc.health.v1.Health/Watch', bytes, bytes, Buffer.alloc(0))
  const heard: (number | undefined)[] = []
  watch.on('error', () => undefined).on('data', (status: Buffer) => heard.push(status[1]))
  onTestFinished(() => watch.cancel())
  await expect.poll(() => heard.length).toBe(1)
  for (const isServing of [true, true, false, false, true]) server.setServing(isServing)
  await expect.poll(() => heard.length).toBeGreaterThanOrEqual(4)
  const [SERVING, NOT_SERVING] = [1, 2]
  expect(heard).toEqual([NOT_SERVING, SERVING, NOT_SERVING, SERVING])
})

test.each(['application/grpc-web-text', 'application/grpcx'])(
  '%s is not served, nor is gRPC over HTTP/1.1',
  async (type) => {
    const stream = overHttp2().request({ ':method': 'POST', ':path': PATH, 'content-type': type })
    const [head] = (await once(stream.end(FRAMED).resume(), 'response')) as [http2.IncomingHttpHeaders]
    expect(head[':status']).toBe(415)
    for (const contentType of [type, 'application/grpc']) {
      const headers = { 'content-type': contentType }
      const answer = await fetch(`${server.address}${PATH}`, { method: 'POST', headers, body: FRAMED })
      expect(answer.status).toBe(415)
    }
  },
)
