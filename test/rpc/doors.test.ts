// The same calls through every door: one behaviour, one vocabulary of failures.
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import http2 from 'node:http2'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Duplex } from 'node:stream'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { type Client, Code, ConnectError, createClient, type Transport } from '@connectrpc/connect'
import { findTrailerError } from '@connectrpc/connect/protocol-grpc'
import { createConnectTransport, createGrpcWebTransport } from '@connectrpc/connect-node'
import * as grpc from '@grpc/grpc-js'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.js'
import { AccountService, ListConnectedAppsRequestSchema } from '../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { type Address, parseAddress } from '../../services/rpc/address.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, createDirectDoor } from '../../services/rpc/client.js'
import { createConnectDoor } from '../../services/rpc/connect-door.js'
import { type Call, Dispatcher, type IncomingCall } from '../../services/rpc/dispatcher.js'
import { createGrpcDoor } from '../../services/rpc/grpc-door.js'
import { identifyLocal, ownName } from '../../services/rpc/identity.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { decodeRequest } from '../../services/rpc/requests.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'
import { reasonIn, ServiceError } from '../../services/rpc/service-error.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const calls: Call[] = []
const unexpected: unknown[] = []
const notNeeded = () => Promise.resolve({})

const dispatcher = new Dispatcher({
  mayCall,
  onCall: () => undefined,
  onUnexpected: (error) => unexpected.push(error),
  maxDeadlineMs: 500,
}).register(AccountService, {
  signIn: () => Promise.reject(new ServiceError(ErrorReason.RATE_LIMITED, 'slow down', { retryAfterSeconds: 7 })),
  beginSignIn: async () => ({}),
  completeSignIn: async () => ({}),
  listSignInMethods: async () => ({}),
  getAccount: notNeeded,
  endSessions: notNeeded,
  changePassword: notNeeded,
  beginLink: async () => ({}),
  unlink: notNeeded,
  endProviderSessions: notNeeded,
  signOut: () => Promise.reject(new Error('canary-secret-text')),
  getSession: async ({ sessionToken }, call) => {
    calls.push(call)
    return { username: sessionToken, nickname: sessionToken === 'unencodable' ? Object.create(null) : '昵称' }
  },
  getAppLogo: async () => ({}),
  listConnectedApps: () => new Promise(() => undefined), // never answers
  disconnectApp: notNeeded,
})

let server: RpcServer
let tcp: Address
let unixPath: string
const umask = process.umask()
const closers: (() => void)[] = []

beforeAll(async () => {
  const common = { dispatcher, tls: undefined, callers: new Map(), maxConnections: 1000 }
  unixPath = path.join(mkdtempSync(path.join(tmpdir(), 'survey-auth-')), 'rpc.sock')
  const local = { ...parseAddress('http://127.0.0.1:1'), port: 0 } as Address
  server = await startRpcServer({ ...common, address: local })
  const onSocket = await startRpcServer({
    ...common,
    address: { kind: 'unix', path: unixPath },
  })
  closers.push(() => void onSocket.drain(100))
  tcp = parseAddress(server.address)
})

afterAll(async () => {
  for (const close of closers) close()
  await server.drain(200)
  rmSync(path.dirname(unixPath), { recursive: true })
})

/** A Connect transport over plain unary grpc-js calls, as an internal service in another language makes them. */
function grpcUnaryTransport(): Transport {
  const client = new grpc.Client(server.address.replace('http://', ''), grpc.credentials.createInsecure())
  closers.push(() => client.close())
  return {
    unary(method, _signal, timeoutMs, headers, input) {
      return new Promise((resolve, reject) => {
        const metadata = new grpc.Metadata()
        for (const [key, value] of new Headers(headers)) metadata.set(key, value)
        client.makeUnaryRequest(
          `/${method.parent.typeName}/${method.name}`,
          (message: never) => Buffer.from(toBinary(method.input, message)),
          (bytes) => fromBinary(method.output, bytes),
          { $typeName: method.input.typeName, ...input } as never,
          metadata,
          { deadline: Date.now() + (timeoutMs ?? 5000) },
          (error, message) => {
            if (error) reject(errorOf(error))
            else
              resolve({
                stream: false,
                service: method.parent,
                method,
                header: new Headers(),
                trailer: new Headers(),
                message,
              } as never)
          },
        )
      })
    },
    stream: () => Promise.reject(new Error('unary only')),
  }
}

function errorOf(error: grpc.ServiceError): ConnectError {
  const bytes = error.metadata.get('grpc-status-details-bin')[0]
  const trailer = new Headers({ 'grpc-status': String(error.code), 'grpc-message': encodeURIComponent(error.details) })
  if (bytes instanceof Buffer) trailer.set('grpc-status-details-bin', bytes.toString('base64'))
  return findTrailerError(trailer) ?? expect.unreachable('no failure')
}

const doors: Record<string, () => Client<typeof AccountService>> = {
  direct: () => clientOf(AccountService, createDirectDoor(dispatcher, 'gateway')),
  'gRPC, unary': () => createClient(AccountService, grpcUnaryTransport()),
  'gRPC, multiplexed over TCP': () => multiplexed(tcp),
  'gRPC, multiplexed over a Unix socket': () => multiplexed({ kind: 'unix', path: unixPath }),
  'Connect over HTTP/1.1, JSON': () => connected({ httpVersion: '1.1', useBinaryFormat: false }),
  'Connect over HTTP/2, JSON': () => connected({ httpVersion: '2', useBinaryFormat: false }),
  'Connect over HTTP/2, binary': () => connected({ httpVersion: '2', useBinaryFormat: true }),
  'gRPC-Web over HTTP/1.1': () => webbed('1.1'),
  'gRPC-Web over HTTP/2': () => webbed('2'),
}

function webbed(httpVersion: '1.1' | '2'): Client<typeof AccountService> {
  return createClient(AccountService, createGrpcWebTransport({ baseUrl: server.address, httpVersion }))
}

function connected(options: { httpVersion: '1.1' | '2'; useBinaryFormat: boolean }): Client<typeof AccountService> {
  return createClient(AccountService, createConnectTransport({ baseUrl: server.address, ...options }))
}

function multiplexed(address: Address): Client<typeof AccountService> {
  const transport = new MultiplexTransport({
    address,
    tls: undefined,
    maxRequestBytes: 65_536,
    maxResponseBytes: 4 << 20,
    defaultTimeoutMs: 5000,
  })
  closers.push(() => transport.close())
  return clientOf(AccountService, transport.invoke)
}

async function failureOf(work: Promise<unknown>): Promise<ConnectError> {
  return ConnectError.from(
    await work.then(
      () => expect.unreachable('it succeeded'),
      (error: unknown) => error,
    ),
  )
}

describe.each(Object.keys(doors))('through the door: %s', (door) => {
  let account: Client<typeof AccountService>
  beforeAll(() => {
    account = (doors[door] as () => Client<typeof AccountService>)()
  })

  test('a call is answered', async () => {
    const answer = await account.getSession({ sessionToken: 'abc' })
    expect(answer).toMatchObject({ username: 'abc', nickname: '昵称', avatar: '' })
  })

  test('the request id and the trace arrive', async () => {
    const requestId = '7d1c6f0e-2b1f-4f7e-9a57-0d8f5d2d8a11'
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    await account.getSession({ sessionToken: 'abc' }, { headers: { 'x-request-id': requestId, traceparent } })
    expect(calls.at(-1)).toMatchObject({ requestId, traceparent })
  })

  test('a call without a request id gets one', async () => {
    await account.getSession({ sessionToken: 'abc' })
    expect(calls.at(-1)?.requestId).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
  })

  const strangeIds = ['seven77', 'x'.repeat(65), 'of two words', '"quoted"', 'a:b:c:d:e']
  // Direct callers are this process itself.
  test.each(door === 'direct' ? [] : strangeIds)('an invalid request id is replaced: %s', async (sent) => {
    await account.getSession({ sessionToken: 'abc' }, { headers: { 'x-request-id': sent } })
    expect(calls.at(-1)?.requestId).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
  })

  test('an expected failure carries its reason and when to retry', async () => {
    const failure = await failureOf(account.signIn({ username: 'u', password: 'p' }))
    expect(failure.code).toBe(Code.ResourceExhausted)
    expect(failure.rawMessage).toBe('slow down')
    expect(failure.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: 'RATE_LIMITED', domain: 'survey-auth' }])
    expect(failure.findDetails(RetryInfoSchema)).toMatchObject([{ retryDelay: { seconds: 7n, nanos: 0 } }])
  })

  test('an unexpected failure does not reveal its text', async () => {
    const failure = await failureOf(account.signOut({ sessionToken: 'x' }))
    expect([failure.code, failure.rawMessage]).toEqual([Code.Internal, 'internal error'])
    expect(JSON.stringify(failure.details)).not.toContain('canary')
    expect(String(unexpected.at(-1))).toContain('canary-secret-text')
  })

  test('an invalid request is refused with the field named', async () => {
    const failure = await failureOf(account.getSession({ sessionToken: '' }))
    expect(failure.code).toBe(Code.InvalidArgument)
    expect(reasonIn(failure)).toBe(ErrorReason.INVALID_ARGUMENT)
    expect(failure.rawMessage).toBe('session_token: at least 1 characters')
    const fieldViolations = [{ field: 'session_token', description: 'at least 1 characters' }]
    expect(failure.findDetails(BadRequestSchema)).toMatchObject([{ fieldViolations }])
  })

  test('a call does not outlive its deadline by much', async () => {
    const startedAt = performance.now()
    const failure = await failureOf(account.listConnectedApps({ sessionToken: 'x' }, { timeoutMs: 100 }))
    expect(failure.code).toBe(Code.DeadlineExceeded)
    expect(performance.now() - startedAt).toBeLessThan(3000)
  })

  test('a call without a deadline, or with one that is too far away, gets the longest', async () => {
    const startedAt = performance.now()
    const options = [{}, { timeoutMs: 120_000 }, { timeoutMs: 99_999_999 }] // gRPC-Web has eight digits for it
    const calls = options.map((each) => failureOf(account.listConnectedApps({ sessionToken: 'x' }, each)))
    const codes = (await Promise.all(calls)).map(({ code }) => code)
    expect(performance.now() - startedAt).toBeGreaterThan(400)
    expect(new Set(codes)).toEqual(new Set([Code.DeadlineExceeded]))
  })

  test('a hundred calls at once are all answered, each with its own answer', async () => {
    const names = Array.from({ length: 100 }, (_, index) => `user-${index}`)
    const answers = await Promise.all(names.map((sessionToken) => account.getSession({ sessionToken })))
    expect(answers.map(({ username }) => username)).toEqual(names)
  })
})

test.each([
  ['as its deadline passes, has passed it', 5, Code.DeadlineExceeded],
  ['long before, has a caller who went away', 400, Code.Canceled],
])('a call aborted by its door %s', async (_, timeoutMs, code) => {
  const aborter = new AbortController()
  const call: IncomingCall = {
    caller: 'gateway',
    callerName: 'DNS:gw.test',
    requestId: 'request',
    traceparent: '',
    signal: aborter.signal,
  }
  const request = create(ListConnectedAppsRequestSchema, { sessionToken: 'x' })
  const failure = failureOf(dispatcher.call(AccountService.method.listConnectedApps, request, call, timeoutMs))
  aborter.abort()
  expect((await failure).code).toBe(code)
})

test('the direct door passes on the caller, the request id, the trace and the timeout', async () => {
  const call = vi.fn<Dispatcher['call']>()
  const request = create(ListConnectedAppsRequestSchema, { sessionToken: 'x' })
  const outgoing = { requestId: 'request', traceparent: 'trace', timeoutMs: 7 }
  await createDirectDoor({ call } as never, 'survey')(AccountService.method.listConnectedApps, request, outgoing)
  const handedOn = {
    caller: 'survey',
    callerName: ownName(),
    requestId: 'request',
    traceparent: 'trace',
    signal: undefined,
  }
  expect(call.mock.calls).toEqual([[AccountService.method.listConnectedApps, request, handedOn, 7]])
})

test('the Unix socket is for its owner only, and the umask of the process is unchanged', () => {
  expect(statSync(unixPath).mode & 0o777).toBe(0o600)
  expect(process.umask()).toBe(umask)
})

test('a server that stops removes its socket, and not that of another process at the same path', async () => {
  const folder = temporaryDirectory()
  const socket = path.join(folder, 'rpc.sock')
  const start = () => {
    const common = { dispatcher, tls: undefined, callers: new Map(), maxConnections: 9 }
    return startRpcServer({ ...common, address: { kind: 'unix', path: socket } })
  }
  const first = await start()
  await expect(start()).rejects.toThrow('in use by a running process')
  rmSync(socket)
  const second = await start()
  await first.drain(100)
  expect(readdirSync(folder)).toEqual(['rpc.sock'])
  await second.drain(100)
  expect(readdirSync(folder)).toEqual([])
})

test('a server closes connections beyond its limit, and says so', async () => {
  const address: Address = { kind: 'plaintext', host: '127.0.0.1', port: 0 }
  const common = { dispatcher, tls: undefined, callers: new Map(), maxConnections: 1 }
  const onTurnedAway = vi.fn()
  const small = await startRpcServer({ ...common, address, onTurnedAway })
  onTestFinished(() => small.drain(100))
  const ask = () => {
    const peer = net.connect(Number(new URL(small.address).port), '127.0.0.1').on('error', () => undefined)
    onTestFinished(() => void peer.destroy())
    peer.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    return Promise.race([once(peer, 'data').then(() => 'served'), once(peer, 'close').then(() => 'closed')])
  }
  expect([await ask(), await ask()]).toEqual(['served', 'closed'])
  expect(onTurnedAway.mock.calls).toEqual([['TOO_MANY', '127.0.0.1']])
})

test.each(['end', 'resetAndDestroy'] as const)(
  'a connection closed by %s before it sends anything affects no other',
  async (how) => {
    const url = server.address
    const peer = net
      .connect(Number(new URL(url).port), '127.0.0.1')
      .on('error', () => undefined)
      .resume()
    await once(peer, 'connect')
    await fetch(url) // so the one before is accepted
    const closed = once(peer, 'close')
    peer[how]()
    await closed
    expect((await fetch(url)).status).toBe(404)
  },
)

test('a call cannot be made by GET, which would put its message in the URL', async () => {
  const before = calls.length
  const message = encodeURIComponent('{"sessionToken":"abc"}')
  const path = `/surveyauth.v1.AccountService/GetSession?connect=v1&encoding=json&message=${message}`
  expect((await fetch(`${server.address}${path}`)).status).toBe(405)
  expect(calls).toHaveLength(before)
})

test.each(['P', 'PO'])('a request whose first bytes are %s is served as HTTP/1.1', async (piece) => {
  const peer = net.connect(Number(new URL(server.address).port), '127.0.0.1')
  onTestFinished(() => void peer.destroy())
  peer.setNoDelay().write(piece)
  await new Promise((resolve) => setTimeout(resolve, 100))
  peer.write(`${'POST / HTTP/1.1'.slice(piece.length)}\r\nHost: a\r\nContent-Length: 0\r\n\r\n`)
  const [answer] = (await once(peer, 'data')) as [Buffer]
  expect(answer.toString()).toContain('HTTP/1.1 404')
})

const GET_SESSION = '/surveyauth.v1.AccountService/GetSession'
const JSON_TYPE = 'application/json'

describe('a request with a host of which no URL can be made ends, and affects no other', () => {
  test.each(['Host: [', 'Host: a:99999', 'Host:'])('over HTTP/1.1: %s', async (host) => {
    const peer = net.connect(Number(new URL(server.address).port), '127.0.0.1')
    peer.write(`POST ${GET_SESSION} HTTP/1.1\r\n${host}\r\nContent-Type: ${JSON_TYPE}\r\nContent-Length: 2\r\n\r\n{}`)
    await once(peer.resume(), 'close')
    expect((await fetch(server.address)).status).toBe(404)
  })

  test.each(['[', 'a:99999'])('over HTTP/2: %s', async (authority) => {
    const session = http2.connect(server.address)
    onTestFinished(() => session.destroy())
    const ask = (host: string) => {
      const headers = { ':method': 'POST', ':path': GET_SESSION, ':authority': host, 'content-type': JSON_TYPE }
      const stream = session.request(headers)
      stream.end('{"sessionToken":"abc"}')
      return once(stream, 'response')
    }
    await expect(ask(authority)).rejects.toThrow('NGHTTP2_INTERNAL_ERROR')
    const [headers] = await ask('a')
    expect(headers[':status']).toBe(200)
  })
})

test.each(['/a/B', GET_SESSION, '/surveyauth.internal.v1.MultiplexService/Multiplex'])(
  'a gRPC call cancelled in the packet that opened it affects nothing else: %s',
  async (path) => {
    const peer = net.connect(Number(new URL(server.address).port), '127.0.0.1')
    onTestFinished(() => void peer.destroy())
    const before = unexpected.length
    const said: number[] = []
    const cancel = Buffer.from([0, 0, 0, 8])
    peer.write(
      Buffer.concat([
        Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
        http2Frame(SETTINGS, 0, 0),
        http2Frame(HEADERS, END_HEADERS, 1, headerBlock({ ':path': path, 'content-type': 'application/grpc' })),
        http2Frame(RST_STREAM, 0, 1, cancel),
        http2Frame(PING, 0, 0, Buffer.from('is there')),
      ]),
    )
    const pong = http2Frame(PING, ACK, 0, Buffer.from('is there'))
    await vi.waitUntil(() => {
      said.push(...(peer.read() ?? []))
      return Buffer.from(said).includes(pong)
    })
    expect(unexpected).toHaveLength(before)
  },
)

const [HEADERS, RST_STREAM, SETTINGS, PING] = [1, 3, 4, 6]
const [ACK, END_HEADERS] = [1, 4]

/** RFC 9113 §4.1. */
function http2Frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.writeUInt8(type, 3)
  head.writeUInt8(flags, 4)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** The header block of a POST: literals without indexing (RFC 7541 §6.2.2), all shorter than 127 bytes. */
function headerBlock(headers: Readonly<Record<string, string>>): Buffer {
  const all = { ':method': 'POST', ':scheme': 'http', ':authority': 'a', ...headers }
  return Buffer.concat(
    Object.entries(all).flatMap(([name, value]) => [
      Buffer.from([0, name.length]),
      Buffer.from(name),
      Buffer.from([value.length]),
      Buffer.from(value),
    ]),
  )
}

describe('an exception inside a door ends only its request, and is reported once', () => {
  const thrown = new Error('by what the door is made of')
  const throwing = () => {
    throw thrown
  }

  async function listening(accept: (connection: Duplex) => void): Promise<string> {
    const listener = net.createServer(accept).listen(0, '127.0.0.1')
    onTestFinished(() => void listener.close())
    await once(listener, 'listening')
    return `http://127.0.0.1:${(listener.address() as net.AddressInfo).port}`
  }

  beforeEach(() => {
    unexpected.length = 0
  })
  afterEach(() => {
    expect(unexpected).toEqual([thrown])
  })

  test('over HTTP/1.1', async () => {
    const door = createConnectDoor({ dispatcher, identify: throwing, reflects: false })
    onTestFinished(() => door.drain(100))
    const url = await listening(door.accept)
    const call = { method: 'POST', headers: { 'content-type': JSON_TYPE }, body: '{}' }
    await expect(fetch(`${url}${GET_SESSION}`, call)).rejects.toThrow('fetch failed')
    expect((await fetch(url)).status).toBe(404)
  })

  test('over HTTP/2', async () => {
    const identify = identifyLocal('unix')
    const door = await createGrpcDoor({ dispatcher, identify, serveOthers: throwing })
    onTestFinished(() => door.drain(100))
    const session = http2.connect(await listening(door.accept))
    onTestFinished(() => session.destroy())
    const stream = session.request({ ':path': '/' })
    await expect(once(stream, 'response')).rejects.toMatchObject({ code: 'ERR_HTTP2_STREAM_ERROR' })
    expect(session.destroyed).toBe(false)
  })
})

const networkDoors = Object.keys(doors).filter((name) => name !== 'direct')

test.each(networkDoors)('a request above the size limit is refused: %s', async (door) => {
  const account = (doors[door] as () => Client<typeof AccountService>)()
  const failure = await failureOf(account.getSession({ sessionToken: 'x'.repeat(70_000) }))
  expect(failure.code).toBe(Code.ResourceExhausted)
})

test.each(networkDoors.filter((name) => !name.includes('multiplexed')))(
  'a call with an Origin header, as web pages send it, is refused: %s',
  async (door) => {
    const account = (doors[door] as () => Client<typeof AccountService>)()
    const call = () => account.getSession({ sessionToken: 'abc' }, { headers: { origin: 'http://rebound.example' } })
    const before = calls.length
    const failure = await failureOf(call())
    expect(failure.code).toBe(Code.PermissionDenied)
    expect(reasonIn(failure)).toBe(ErrorReason.CALLER_NOT_ALLOWED)
    expect(calls).toHaveLength(before)
  },
)

test('what SurveyService takes is more than other services in its process do', async () => {
  const bytes = new Uint8Array(70_000)
  const { signOut } = AccountService.method
  expect(() => decodeRequest(signOut, bytes)).toThrow('the request has 70000 bytes, AccountService takes 65536')
  expect(() => decodeRequest(SurveyService.method.getSurvey, bytes)).toThrow('is not a surveyauth.v1.GetSurvey')
})

test('an answer that cannot be encoded is an unexpected failure over gRPC', async () => {
  unexpected.length = 0
  const account = createClient(AccountService, grpcUnaryTransport())
  const failure = await failureOf(account.getSession({ sessionToken: 'unencodable' }))
  expect([failure.code, failure.rawMessage]).toEqual([Code.Internal, 'internal error'])
  expect(unexpected).toEqual([expect.any(Error)])
})

test("bytes that are not a message are the caller's mistake over gRPC", async () => {
  const client = new grpc.Client(server.address.replace('http://', ''), grpc.credentials.createInsecure())
  closers.push(() => client.close())
  const send = (bytes: Buffer) => bytes
  const error = await new Promise<grpc.ServiceError | null>((resolve) => {
    client.makeUnaryRequest('/surveyauth.v1.AccountService/SignOut', send, send, Buffer.from([7]), resolve)
  })
  expect(error).toMatchObject({
    code: grpc.status.INVALID_ARGUMENT,
    details: 'the request is not a surveyauth.v1.SignOutRequest',
  })
})
