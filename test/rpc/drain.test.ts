// What a draining door waits for, and what it does not.
import { once } from 'node:events'
import http2 from 'node:http2'
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import tls from 'node:tls'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import { MultiplexResponseSchema } from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import {
  AccountService,
  GetSessionRequestSchema,
  GetSessionResponseSchema,
} from '../../gen/surveyauth/v1/account_service_pb.js'
import { type Address, parseAddress } from '../../services/rpc/address.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { parseCallers } from '../../services/rpc/identity.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { createAuthority, materialOf } from './certificates.js'

const CALL_MS = 300
/** A drain that waits for something takes this long; one that does not, less than SOON_MS, however busy the machine. */
const [GRACE_MS, SOON_MS] = [40_000, 25_000]
const address: Address = { kind: 'plaintext', host: '127.0.0.1', port: 0 }

interface More {
  readonly address?: Address
  readonly tls?: TlsMaterial
}

async function started(more: More = {}) {
  const begun: string[] = []
  const ended: string[] = []
  const nothing = () => Promise.resolve({})
  const dispatcher = new Dispatcher({
    mayCall,
    onCall: () => undefined,
    onUnexpected: () => undefined,
    maxDeadlineMs: 20_000,
  }).register(AccountService, {
    signIn: nothing,
    beginSignIn: async () => ({}),
    completeSignIn: async () => ({}),
    listSignInMethods: async () => ({}),
    signOut: nothing,
    getAccount: nothing,
    endSessions: nothing,
    changePassword: nothing,
    beginLink: async () => ({}),
    unlink: nothing,
    endProviderSessions: nothing,
    async getSession({ sessionToken }) {
      begun.push('the call')
      await sleep(Number(sessionToken) || CALL_MS)
      ended.push('the call')
      return { username: 'somebody' }
    },
    listConnectedApps: nothing,
    getAppLogo: nothing,
    disconnectApp: nothing,
  })
  const common = {
    dispatcher,
    tls: undefined,
    callers: parseCallers('gateway=DNS:gateway.test'),
    maxConnections: 100,
  }
  const server = await startRpcServer({ ...common, address, ...more })
  return { server, begun, ended, at: parseAddress(server.address) }
}

const tlsAddress: Address = { ...address, kind: 'tls' }

function materialOfServer(): TlsMaterial {
  const authority = createAuthority()
  return materialOf(authority, authority.issue('IP:127.0.0.1,DNS:gateway.test'))
}

function connectedTo(at: Address, allowHalfOpen = false): net.Socket {
  const peer = net.connect({
    allowHalfOpen,
    ...(at.kind === 'unix' ? { path: at.path } : { host: at.host, port: at.port }),
  })
  return watched(peer)
}

function securedTo(at: Address, material: TlsMaterial): net.Socket {
  const { host, port } = at as Extract<Address, { kind: 'tls' }>
  return watched(tls.connect({ ...material, host, port }))
}

function watched(peer: net.Socket): net.Socket {
  onTestFinished(() => void peer.destroy())
  return peer.on('error', () => undefined).resume()
}

const bytes = (message: Buffer) => message

function grpcClient(at: Address): grpc.Client {
  const { host, port } = at as Extract<Address, { kind: 'plaintext' }>
  const client = new grpc.Client(`${host}:${port}`, grpc.credentials.createInsecure())
  onTestFinished(() => client.close())
  return client
}

function endOf(stream: NodeJS.ReadableStream): Promise<grpc.status> {
  stream.on('error', () => undefined)
  return new Promise((resolve) => stream.once('status', ({ code }: grpc.StatusObject) => resolve(code)))
}

/** `HealthCheckResponse` of grpc.health.v1. */
const [SERVING, NOT_SERVING] = [Buffer.from([8, 1]), Buffer.from([8, 2])]

function transportTo(at: Address, tls?: TlsMaterial): MultiplexTransport {
  const transport = new MultiplexTransport({
    address: at,
    tls,
    maxRequestBytes: 64 * 1024,
    maxResponseBytes: 64 * 1024,
    defaultTimeoutMs: 10_000,
  })
  onTestFinished(() => transport.close())
  return transport
}

async function drained(server: RpcServer, graceMs = GRACE_MS): Promise<number> {
  const startedAt = performance.now()
  await server.drain(graceMs)
  return performance.now() - startedAt
}

test.each([
  ['plaintext', address],
  ['TLS', tlsAddress],
])('a drain ends once the calls in flight are answered, and not before, over %s', async (_, address) => {
  const material = materialOfServer()
  const { server, begun, ended, at } = await started({ address, tls: material })
  const transport = transportTo(at, material)
  const answer = clientOf(AccountService, transport.invoke).getSession({ sessionToken: 'x' })
  await expect.poll(() => begun, { interval: 10, timeout: 5_000 }).toEqual(['the call'])
  expect(await drained(server)).toBeLessThan(SOON_MS)
  expect(ended).toEqual(['the call'])
  expect(await answer).toMatchObject({ username: 'somebody' })
})

/** Longer than either side waits for the other's pong. */
const LONG_MS = { multiplexed: 2_500, unary: 6_000 }

test.each(['multiplexed', 'unary'] as const)('a drain waits for a gRPC call that takes seconds, %s', async (how) => {
  const { server, begun, ended, at } = await started()
  const sessionToken = String(LONG_MS[how])
  const answers = {
    async multiplexed() {
      const { username } = await clientOf(AccountService, transportTo(at).invoke).getSession({ sessionToken })
      return username
    },
    async unary() {
      const request = toBinary(GetSessionRequestSchema, create(GetSessionRequestSchema, { sessionToken }))
      const path = '/surveyauth.v1.AccountService/GetSession'
      const answer = await new Promise<Buffer>((resolve, reject) => {
        grpcClient(at).makeUnaryRequest(path, bytes, bytes, Buffer.from(request), (error, answer) => {
          if (answer) resolve(answer)
          else reject(error)
        })
      })
      return fromBinary(GetSessionResponseSchema, answer).username
    },
  }
  const answer = answers[how]()
  await expect.poll(() => begun, { interval: 10, timeout: 5_000 }).toEqual(['the call'])
  const drain = drained(server)
  expect(await answer).toBe('somebody')
  expect(await drain).toBeLessThan(SOON_MS)
  expect(ended).toEqual(['the call'])
})

function overHttp2(server: RpcServer) {
  const session = http2.connect(server.address)
  onTestFinished(() => session.destroy())
  const request = () =>
    session.request({
      ':method': 'POST',
      ':path': '/surveyauth.internal.v1.MultiplexService/Multiplex',
      'content-type': 'application/grpc',
      te: 'trailers',
    })
  return { session, request }
}

test('a drain does not wait for a stream of calls that is reset meanwhile', async () => {
  const { server } = await started()
  const { request } = overHttp2(server)
  const stream = request().on('error', () => undefined)
  await once(stream, 'response')
  const drain = drained(server)
  await once(stream, 'data')
  stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR)
  expect(await drain).toBeLessThan(SOON_MS)
})

test('a caller whose server is replaced reconnects over TLS', async () => {
  const material = materialOfServer()
  const first = await started({ address: tlsAddress, tls: material })
  const transport = transportTo(first.at, material)
  const ask = () => clientOf(AccountService, transport.invoke).getSession({ sessionToken: 'x' })
  await ask()
  await first.server.drain(GRACE_MS)
  const second = await started({ address: first.at, tls: material })
  expect(await ask()).toMatchObject({ username: 'somebody' })
  expect(second.ended).toEqual(['the call'])
})

test('a caller that opens another stream of calls during a drain is told to reconnect', async () => {
  const { server } = await started()
  const { session, request } = overHttp2(server)
  const first = request()
  await once(first, 'response')
  const drain = drained(server)
  await once(first, 'data')
  const goAway = once(session, 'goaway')
  const second = request().on('error', () => undefined)
  await new Promise((resolve) => second.once('close', resolve))
  expect(second.rstCode).toBe(http2.constants.NGHTTP2_REFUSED_STREAM)
  const [reason] = await goAway
  expect(reason).toBe(http2.constants.NGHTTP2_NO_ERROR)
  first.end()
  expect(await drain).toBeLessThan(SOON_MS)
})

test.each(['1.1', '2'] as const)(
  'a drain waits until a call over Connect and HTTP/%s is answered',
  async (httpVersion) => {
    const { server, begun, ended } = await started()
    const transport = createConnectTransport({ baseUrl: server.address, httpVersion })
    const answer = createClient(AccountService, transport).getSession({ sessionToken: 'x' })
    await expect.poll(() => begun, { interval: 10, timeout: 5_000 }).toEqual(['the call'])
    expect(await drained(server)).toBeLessThan(SOON_MS)
    expect(ended).toEqual(['the call'])
    expect(await answer).toMatchObject({ username: 'somebody' })
  },
)

test('a drain tells callers with an open stream to move on', async () => {
  const { server, at } = await started()
  const stream = grpcClient(at).makeBidiStreamRequest(
    '/surveyauth.internal.v1.MultiplexService/Multiplex',
    bytes,
    bytes,
  )
  const end = endOf(stream)
  await once(stream, 'metadata')
  const heard = once(stream, 'data')
  const drain = drained(server)
  const [message] = (await heard) as [Buffer]
  expect(fromBinary(MultiplexResponseSchema, message)).toMatchObject({ draining: true, results: [] })
  stream.end()
  expect(await drain).toBeLessThan(SOON_MS)
  expect(await end).toBe(grpc.status.OK)
})

test('a drain does not wait for idle keep-alive connections', async () => {
  const { server, at } = await started()
  const url = `http://127.0.0.1:${(at as Extract<Address, { kind: 'plaintext' }>).port}`
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(`${url}/surveyauth.v1.AccountService/SignOut`, {
    method: 'POST',
    headers,
    body: '{"sessionToken":"x"}',
  })
  expect(await answer.text()).toBe('{}')
  expect(await drained(server)).toBeLessThan(SOON_MS)
})

test('a drain does not wait for health watchers, and tells them first that the server stops serving', async () => {
  const { server, at } = await started()
  server.setServing(true)
  const watch = grpcClient(at).makeServerStreamRequest('/grpc.health.v1.Health/Watch', bytes, bytes, Buffer.alloc(0))
  const heard: Buffer[] = []
  const end = endOf(watch.on('data', (status: Buffer) => heard.push(status)))
  await expect.poll(() => heard).toEqual([SERVING])
  expect(await drained(server)).toBeLessThan(SOON_MS)
  expect(await end).toBe(grpc.status.UNAVAILABLE)
  expect(heard).toEqual([SERVING, NOT_SERVING])
})

test('a health check whose answer is unread when a drain begins still ends with OK', async () => {
  const { server } = await started()
  server.setServing(true)
  const session = http2.connect(server.address, { settings: { initialWindowSize: 0 } })
  onTestFinished(() => session.destroy())
  const path = '/grpc.health.v1.Health/Check'
  const call = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' })
  const answered = once(call, 'response')
  const end = once(call, 'trailers')
  call.end(Buffer.alloc(5)).resume() // an empty HealthCheckRequest
  await answered
  const drain = drained(server)
  session.settings({ initialWindowSize: 65_535 })
  const [trailers] = (await end) as [http2.IncomingHttpHeaders]
  expect(trailers['grpc-status']).toBe('0')
  expect(await drain).toBeLessThan(SOON_MS)
})

test('callers that say nothing, do not send their whole request or do not finish their TLS handshake are cut off', async () => {
  const [{ at }, secured] = [await started(), await started({ address: tlsAddress, tls: materialOfServer() })]
  const said = ['', 'POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ', `${half}Content-Type: application/json\r\n\r\n{`]
  const callers = said.map((text) => {
    const caller = connectedTo(at)
    if (text !== '') caller.write(text)
    return once(caller, 'close')
  })
  await Promise.all([...callers, once(connectedTo(secured.at), 'close')])
}, 30_000)

/** Connections that have not begun a request. */
const silent: Record<string, (at: Address, material: TlsMaterial) => net.Socket> = {
  'on a Unix socket': (at) => connectedTo(at),
  'on loopback': (at) => connectedTo(at),
  'before its TLS handshake': (at) => connectedTo(at),
  'in the middle of its TLS handshake'(at) {
    const peer = connectedTo(at)
    peer.write(Buffer.from([22, 3, 1, 2, 0, 1])) // the head of a ClientHello
    return peer
  },
  'after its TLS handshake': securedTo,
}

test.each(Object.keys(silent))('a drain closes a silent connection at once, %s', async (which) => {
  const material = materialOfServer()
  const path = `${temporaryDirectory()}/rpc.sock`
  const { server, at } = await started(
    which.includes('TLS')
      ? { address: tlsAddress, tls: material }
      : { address: which.includes('Unix') ? { kind: 'unix', path } : address },
  )
  const peer = silent[which]?.(at, material) as net.Socket
  await once(peer, peer instanceof tls.TLSSocket ? 'secureConnect' : 'connect')
  await sleep(CALL_MS)
  const closed = once(peer, 'close')
  expect(await drained(server)).toBeLessThan(SOON_MS)
  expect(await Promise.race([closed.then(() => 'closed'), sleep(SOON_MS)])).toBe('closed')
})

/** What a caller over HTTP/2 sends first (RFC 9113 §3.4): the preface and an empty SETTINGS. */
const OPENING = Buffer.concat([
  Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
])

test('a drain does not wait for an idle HTTP/2 peer that keeps its side open', async () => {
  const { server, at } = await started()
  const peer = connectedTo(at, true)
  peer.write(OPENING)
  await once(peer, 'data')
  expect(await drained(server)).toBeLessThan(SOON_MS)
})

/** HEADERS of a call over Connect whose body is still to come (RFC 7541, its names and first values from appendix A). */
function halfACall(): Buffer {
  const [path, type] = ['/surveyauth.v1.AccountService/GetSession', 'application/json']
  const literal = (name: readonly number[], value: string) => [...name, value.length, ...Buffer.from(value)]
  const block = [0x83, 0x86, ...literal([0x04], path), ...literal([0x0f, 0x10], type)]
  return Buffer.from([0, 0, block.length, 1, 4, 0, 0, 0, 1, ...block])
}

test('an HTTP/2 caller that vanished silently is dropped, and a drain does not wait for it', async () => {
  const [ending, running] = [await started(), await started()]
  const letGo = [ending, running].map(({ at }) => {
    const peer = connectedTo(at, true)
    peer.write(Buffer.concat([OPENING, halfACall()]))
    return once(peer, 'end')
  })
  await sleep(CALL_MS)
  expect(await drained(ending.server)).toBeLessThan(SOON_MS)
  await Promise.all(letGo)
}, 60_000)

const half = 'POST /surveyauth.v1.AccountService/GetSession HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n'

/** Each begins a request that does not end. */
const unending: Record<string, (server: RpcServer) => Promise<unknown>> = {
  gRPC: ({ address }) => beginOverHttp2(address, 'application/grpc'),
  'Connect over HTTP/2': ({ address }) => beginOverHttp2(address, 'application/json'),
  'Connect over HTTP/1.1': ({ address }) =>
    new Promise((resolve) => {
      connectedTo(parseAddress(address)).write(`${half}Content-Type: application/json\r\n\r\n{`, resolve)
    }),
}

async function beginOverHttp2(url: string, type: string): Promise<void> {
  const session = http2.connect(url).on('error', () => undefined)
  onTestFinished(() => session.destroy())
  const path = '/surveyauth.v1.AccountService/GetSession'
  session.request({ ':method': 'POST', ':path': path, 'content-type': type }).on('error', () => undefined)
  await once(session, 'remoteSettings')
}

test.each(Object.keys(unending))(
  'a drain waits no longer than its grace for a request that does not end, through %s',
  async (door) => {
    const { server } = await started()
    await unending[door]?.(server)
    await sleep(CALL_MS)
    const tookMs = await drained(server, 500)
    expect(tookMs).toBeGreaterThan(400)
    expect(tookMs).toBeLessThan(SOON_MS)
  },
)
