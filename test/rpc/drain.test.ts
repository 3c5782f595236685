// What a door that is drained waits for, and what not.
import { once } from 'node:events'
import http2 from 'node:http2'
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import tls from 'node:tls'
import { fromBinary } from '@bufbuild/protobuf'
import { createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { MultiplexResponseSchema } from '../../gen/surveyauth/v1/multiplex_service_pb.js'
import { type Address, parseAddress } from '../../services/rpc/address.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { parseCallers } from '../../services/rpc/identity.js'
import { stateOfSocket, type TlsMaterial } from '../../services/rpc/listener.js'
import { createMultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { createAuthority, materialOf } from './certificates.js'

const CALL_MS = 300
const address: Address = { kind: 'plaintext', host: '127.0.0.1', port: 0 }

interface More {
  readonly address?: Address
  readonly connectAddress?: Address
  readonly tls?: TlsMaterial
  readonly hasReflection?: boolean
}

async function started(more: More = {}) {
  const begun: string[] = []
  const ended: string[] = []
  const nothing = () => Promise.resolve({})
  const dispatcher = new Dispatcher({
    mayCall,
    onCall: () => undefined,
    onUnexpected: () => undefined,
    maxDeadlineMs: 5_000,
  }).register(AccountService, {
    signIn: nothing,
    signOut: nothing,
    async getSession() {
      begun.push('the call')
      await sleep(CALL_MS)
      ended.push('the call')
      return { username: 'somebody' }
    },
    listConnectedApps: nothing,
    disconnectApp: nothing,
  })
  const limits = { maxRequestBytes: 64 * 1024, maxStreams: 100, maxConnections: 100 }
  const common = {
    dispatcher,
    tls: undefined,
    callers: parseCallers('gateway=DNS:gateway.test'),
    limits,
    hasReflection: false,
  }
  const server = await startRpcServer({ ...common, address, connectAddress: undefined, ...more })
  return { server, begun, ended, at: parseAddress(server.addresses[0] ?? '') }
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

async function drained(server: RpcServer, graceMs: number): Promise<number> {
  const startedAt = performance.now()
  await server.drain(graceMs)
  return performance.now() - startedAt
}

test.each([
  ['plaintext', address],
  ['TLS', tlsAddress],
])('is over when the calls are answered that were under way, not before, over %s', async (_, address) => {
  const material = materialOfServer()
  const { server, begun, ended, at } = await started({ address, tls: material })
  const transport = createMultiplexTransport({
    address: at,
    tls: () => material,
    maxRequestBytes: 64 * 1024,
    maxResponseBytes: 64 * 1024,
    defaultTimeoutMs: 5_000,
  })
  onTestFinished(() => transport.close())
  const answer = clientOf(AccountService, transport.invoke).getSession({ sessionToken: 'x' })
  await expect.poll(() => begun, { interval: 10, timeout: 5_000 }).toEqual(['the call'])
  expect(await drained(server, 5_000)).toBeLessThan(4_000)
  expect(ended).toEqual(['the call'])
  expect(await answer).toMatchObject({ username: 'somebody' })
})

test.each([
  ['HTTP/1.1', 0, '1.1'],
  ['HTTP/2', 0, '2'],
  ['HTTP/2, where Connect is alone,', 1, '2'],
] as const)('is not over before a call over Connect and %s is answered', async (_, door, httpVersion) => {
  const { server, begun, ended } = await started({ connectAddress: address })
  const transport = createConnectTransport({ baseUrl: server.addresses[door] ?? '', httpVersion })
  const answer = createClient(AccountService, transport).getSession({ sessionToken: 'x' })
  await expect.poll(() => begun, { interval: 10, timeout: 5_000 }).toEqual(['the call'])
  expect(await drained(server, 5_000)).toBeLessThan(4_000)
  expect(ended).toEqual(['the call'])
  expect(await answer).toMatchObject({ username: 'somebody' })
})

test('tells who has a stream of calls to move on', async () => {
  const { server, at } = await started()
  const stream = grpcClient(at).makeBidiStreamRequest('/surveyauth.v1.MultiplexService/Multiplex', bytes, bytes)
  const end = endOf(stream)
  await once(stream, 'metadata')
  const heard = once(stream, 'data')
  const drain = drained(server, 5_000)
  const [message] = (await heard) as [Buffer]
  expect(fromBinary(MultiplexResponseSchema, message)).toMatchObject({ draining: true, results: [] })
  stream.end()
  expect(await drain).toBeLessThan(4_000)
  expect(await end).toBe(grpc.status.OK)
})

test('does not wait for callers that keep a connection open for their next request', async () => {
  const { server, at } = await started()
  const url = `http://127.0.0.1:${(at as Extract<Address, { kind: 'plaintext' }>).port}`
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(`${url}/surveyauth.v1.AccountService/SignOut`, {
    method: 'POST',
    headers,
    body: '{"sessionToken":"x"}',
  })
  expect(await answer.text()).toBe('{}')
  expect(await drained(server, 5_000)).toBeLessThan(1_000)
})

test('does not wait for who watches the health, and tells the end of it before', async () => {
  const { server, at } = await started()
  server.setServing(true)
  const watch = grpcClient(at).makeServerStreamRequest('/grpc.health.v1.Health/Watch', bytes, bytes, Buffer.alloc(0))
  const heard: Buffer[] = []
  const end = endOf(watch.on('data', (status: Buffer) => heard.push(status)))
  await expect.poll(() => heard).toEqual([SERVING])
  expect(await drained(server, 5_000)).toBeLessThan(1_000)
  expect(await end).toBe(grpc.status.UNAVAILABLE)
  expect(heard).toEqual([SERVING, NOT_SERVING])
})

test('an answer about the health that its caller has not read yet when it begins is read as it was', async () => {
  const { server } = await started()
  server.setServing(true)
  const session = http2.connect(server.addresses[0] ?? '', { settings: { initialWindowSize: 0 } })
  onTestFinished(() => session.destroy())
  const path = '/grpc.health.v1.Health/Check'
  const call = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' })
  const answered = once(call, 'response')
  const end = once(call, 'trailers')
  call.end(Buffer.alloc(5)).resume() // an empty HealthCheckRequest
  await answered
  const drain = drained(server, 5_000)
  session.settings({ initialWindowSize: 65_535 })
  const [trailers] = (await end) as [http2.IncomingHttpHeaders]
  expect(trailers['grpc-status']).toBe('0')
  expect(await drain).toBeLessThan(4_000)
})

test('who keeps asking what is served may stop while it is told that this ends', async () => {
  const { server } = await started({ hasReflection: true })
  const session = http2.connect(server.addresses[0] ?? '', { settings: { initialWindowSize: 0 } })
  onTestFinished(() => session.destroy())
  const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
  const call = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' })
  const [answered, end] = [once(call, 'response'), once(call, 'trailers')]
  call.resume().write(Buffer.from([0, 0, 0, 0, 2, 0x3a, 0])) // list_services, in its frame
  await answered
  const drain = drained(server, 5_000)
  call.end()
  await sleep(CALL_MS)
  session.settings({ initialWindowSize: 65_535 })
  const [trailers] = (await end) as [http2.IncomingHttpHeaders]
  expect(trailers['grpc-status']).toBe('14')
  expect(await drain).toBeLessThan(4_000)
})

test.each(['asked', 'not asked yet'])('does not wait for who keeps asking what is served, and has %s', async (what) => {
  const { server, at } = await started({ hasReflection: true })
  const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
  const stream = grpcClient(at).makeBidiStreamRequest(path, bytes, bytes)
  const end = endOf(stream)
  stream.resume()
  if (what === 'asked') {
    stream.write(Buffer.from([0x3a, 0])) // list_services
    await once(stream, 'data')
  }
  await sleep(CALL_MS)
  expect(await drained(server, 5_000)).toBeLessThan(1_000)
  expect(await end).toBe(grpc.status.UNAVAILABLE)
})

test('cuts off callers that say nothing, or do not send their request', async () => {
  const { at } = await started()
  const said = ['', 'POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ', `${half}Content-Type: application/json\r\n\r\n{`]
  const callers = said.map((text) => {
    const caller = connectedTo(at)
    if (text !== '') caller.write(text)
    return once(caller, 'close')
  })
  await Promise.all(callers)
}, 30_000)

test('cuts off a caller that does not finish its TLS handshake', async () => {
  const { at } = await started({ address: tlsAddress, tls: materialOfServer() })
  await once(connectedTo(at), 'close')
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

test.each(Object.keys(silent))('closes a connection at once that has said nothing, %s', async (which) => {
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
  expect(await drained(server, 5_000)).toBeLessThan(1_000)
  expect(await Promise.race([closed.then(() => 'closed'), sleep(1_000)])).toBe('closed')
})

/** What a caller over HTTP/2 sends first (RFC 9113 §3.4): the preface and an empty SETTINGS. */
const OPENING = Buffer.concat([
  Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
])

test.each(['gRPC', 'Connect'])(
  'does not wait for an idle peer that keeps its side open, at the %s door',
  async (door) => {
    const { server } = await started({ connectAddress: address })
    const peer = connectedTo(parseAddress(server.addresses[door === 'gRPC' ? 0 : 1] ?? ''), true)
    peer.write(OPENING)
    await once(peer, 'data')
    expect(await drained(server, 5_000)).toBeLessThan(1_000)
  },
)

/** HEADERS of a call over Connect whose body is still to come (RFC 7541, its names and first values from appendix A). */
function halfACall(): Buffer {
  const [path, type] = ['/surveyauth.v1.AccountService/GetSession', 'application/json']
  const literal = (name: readonly number[], value: string) => [...name, value.length, ...Buffer.from(value)]
  const block = [0x83, 0x86, ...literal([0x04], path), ...literal([0x0f, 0x10], type)]
  return Buffer.from([0, 0, block.length, 1, 4, 0, 0, 0, 1, ...block])
}

test('a caller over HTTP/2 that is gone without a word is let go at the Connect door, and not waited for', async () => {
  const [ending, running] = await Promise.all([1, 2].map(() => started({ connectAddress: address })))
  const calling = (server: RpcServer | undefined) => {
    const peer = connectedTo(parseAddress(server?.addresses[1] ?? ''), true)
    peer.write(Buffer.concat([OPENING, halfACall()]))
    return once(peer, 'end')
  }
  const letGo = [calling(ending?.server), calling(running?.server)]
  await sleep(CALL_MS)
  expect(await drained(ending?.server as RpcServer, 30_000)).toBeLessThan(20_000)
  await Promise.all(letGo)
}, 60_000)

const half = 'POST /surveyauth.v1.AccountService/GetSession HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n'

/** Each begins a request that does not end. */
const unending: Record<string, (server: RpcServer) => Promise<unknown>> = {
  gRPC: ({ addresses }) => beginOverHttp2(addresses[0], 'application/grpc'),
  'Connect over HTTP/2': ({ addresses }) => beginOverHttp2(addresses[1], 'application/json'),
  'Connect over HTTP/1.1': ({ addresses }) =>
    new Promise((resolve) => {
      connectedTo(parseAddress(addresses[0] ?? '')).write(`${half}Content-Type: application/json\r\n\r\n{`, resolve)
    }),
}

async function beginOverHttp2(url = '', type: string): Promise<void> {
  const session = http2.connect(url).on('error', () => undefined)
  onTestFinished(() => session.destroy())
  const path = '/surveyauth.v1.AccountService/GetSession'
  session.request({ ':method': 'POST', ':path': path, 'content-type': type }).on('error', () => undefined)
  await once(session, 'remoteSettings')
}

test.each(Object.keys(unending))(
  'does not wait longer than its grace for a request that does not end, through %s',
  async (door) => {
    const { server } = await started({ connectAddress: address })
    await unending[door]?.(server)
    await sleep(CALL_MS)
    const tookMs = await drained(server, 500)
    expect(tookMs).toBeGreaterThan(400)
    expect(tookMs).toBeLessThan(3_000)
  },
)

test('a server that cannot have one of its addresses gives up the other', async () => {
  const other = net.createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  onTestFinished(() => void other.close())
  const taken: Address = { ...address, port: (other.address() as net.AddressInfo).port }
  const path = `${temporaryDirectory()}/rpc.sock`
  await expect(started({ address: { kind: 'unix', path }, connectAddress: taken })).rejects.toThrow('EADDRINUSE')
  await sleep(CALL_MS)
  expect(await stateOfSocket(path)).toBe('none')
})
