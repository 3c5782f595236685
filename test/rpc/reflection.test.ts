// What tools learn that have no protos: Buf's own, over every protocol and address, and any that asks message by message.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import http2 from 'node:http2'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { fromBinary } from '@bufbuild/protobuf'
import { type FileDescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError, createClient, type Transport } from '@connectrpc/connect'
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node'
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { ServerReflection, type ServerReflectionRequest } from '../../gen/grpc/reflection/v1/reflection_pb.js'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Address } from '../../services/rpc/address.js'
import { mayCall } from '../../services/rpc/callers.js'
import { Dispatcher, type Handlers } from '../../services/rpc/dispatcher.js'
import { parseCallers } from '../../services/rpc/identity.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'
import { createAuthority, materialOf } from './certificates.js'

vi.setConfig({ testTimeout: 60_000 })

const BUF = path.resolve('node_modules/.bin/buf')
const SERVICES = [SignInService, SurveyService, LimitService] as const
const OTHERS = [SignInService, SurveyService]
const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-reflection-'))
const authority = createAuthority()
const stderr = vi.spyOn(console, 'error')

const addresses: Readonly<Record<string, Address>> = {
  unix: { kind: 'unix', path: path.join(folder, 'rpc.sock') },
  loopback: { kind: 'plaintext', host: '127.0.0.1', port: 0 },
  TLS: { kind: 'tls', host: '127.0.0.1', port: 0 },
}
const servers: Record<string, RpcServer> = {}

async function serverAt(address: Address): Promise<RpcServer> {
  const dispatcher = new Dispatcher({ mayCall, onCall: () => undefined, onUnexpected: () => undefined })
  for (const service of SERVICES) {
    const handlers = service.methods.map((method) => [method.localName, () => Promise.resolve({})])
    dispatcher.register(service, Object.fromEntries(handlers) as Handlers<typeof service>)
  }
  const callers = parseCallers('operator=DNS:console.test')
  return startRpcServer({
    dispatcher,
    address,
    tls: materialOf(authority, authority.issue('IP:127.0.0.1')),
    callers,
    maxConnections: 10,
  })
}

beforeAll(async () => {
  for (const [name, address] of Object.entries(addresses)) servers[name] = await serverAt(address)
})
afterEach(() => {
  expect(stderr.mock.calls, 'the library has nothing to tell past our log').toEqual([])
  stderr.mockClear()
})
afterAll(async () => {
  await Promise.all(Object.values(servers).map((server) => server.drain(100)))
  rmSync(folder, { recursive: true, force: true })
})

/** Runs `buf curl` against a server; fails with what it says. */
async function bufCurl(name: string, rpc: string, ...args: string[]): Promise<string> {
  const { address = '' } = servers[name] ?? {}
  const how: Record<string, string[]> = {
    unix: ['--unix-socket', address.replace('unix:', ''), '--http2-prior-knowledge'],
    loopback: ['--http2-prior-knowledge'],
  }
  const base = name === 'unix' ? 'http://localhost' : address
  const { stdout } = await promisify(execFile)(BUF, ['curl', ...(how[name] ?? []), ...args, `${base}${rpc}`])
  return stdout
}

describe.each(['unix', 'loopback'])('buf curl, without protos, at an address of %s', (name) => {
  test.each(['connect', 'grpc', 'grpcweb'])('makes a call by %s', async (protocol) => {
    const data = ['--data', '{"owner_user_id":"u-1","page_size":1}', '--protocol', protocol]
    const answer = await bufCurl(name, '/surveyauth.v1.SurveyService/ExportSurveys', ...data)
    expect(JSON.parse(answer)).toEqual({})
  })

  test.each(['grpc-v1', 'grpc-v1alpha'])('lists by %s what others may call', async (version) => {
    const listed = await bufCurl(name, '', '--list-services', '--reflect-protocol', version)
    expect(listed.trim().split('\n').sort()).toEqual(OTHERS.map(({ typeName }) => typeName).sort())
  })
})

const transports: Readonly<Record<string, () => Transport>> = {
  Connect: () => createConnectTransport({ baseUrl: servers.loopback?.address ?? '', httpVersion: '2' }),
  gRPC: () => createGrpcTransport({ baseUrl: servers.loopback?.address ?? '' }),
  'gRPC-Web': () => createGrpcWebTransport({ baseUrl: servers.loopback?.address ?? '', httpVersion: '2' }),
}

type Question = Partial<ServerReflectionRequest>['messageRequest'] & object

/** Asks one question after the other on one stream, each once the one before is answered. */
function asking(transport: Transport, signal?: AbortSignal) {
  const waiting: Question[] = []
  let wake = () => {}
  async function* questions() {
    for (;;) {
      const next = waiting.shift()
      if (next) yield { messageRequest: next }
      else await new Promise<void>((resolve) => (wake = resolve))
    }
  }
  const options = signal ? { signal } : {}
  const answers = createClient(ServerReflection, transport).serverReflectionInfo(questions(), options)
  const iterator = answers[Symbol.asyncIterator]()
  return async (question: Question) => {
    waiting.push(question)
    wake()
    const { value } = await iterator.next()
    return value.messageResponse
  }
}

async function filesFor(ask: ReturnType<typeof asking>, question: Question): Promise<FileDescriptorProto[]> {
  const answer = await ask(question)
  if (answer.case !== 'fileDescriptorResponse') return expect.unreachable(JSON.stringify(answer))
  return answer.value.fileDescriptorProto.map((bytes: Uint8Array) => fromBinary(FileDescriptorProtoSchema, bytes))
}

describe.each(Object.entries(transports))('reflection over %s', (_, transport) => {
  test('has every file that a service needs, as we have it, by symbol and by name', async () => {
    const over = new AbortController()
    onTestFinished(() => over.abort())
    const ask = asking(transport(), over.signal)
    for (const service of OTHERS) {
      const bySymbol = await filesFor(ask, { case: 'fileContainingSymbol', value: service.typeName })
      const ofMethod = `${service.typeName}.${service.methods[0]?.name}`
      expect(await filesFor(ask, { case: 'fileContainingSymbol', value: ofMethod })).toEqual(bySymbol)
      expect(await filesFor(ask, { case: 'fileByFilename', value: service.file.proto.name })).toEqual(bySymbol)

      expect(bySymbol[0]).toEqual(service.file.proto)
      const names = bySymbol.map(({ name }) => name)
      for (const { dependency } of bySymbol) expect(names).toEqual(expect.arrayContaining(dependency))
    }
    await filesFor(ask, { case: 'fileContainingSymbol', value: 'google.rpc.ErrorInfo' })
    await filesFor(ask, { case: 'fileContainingSymbol', value: 'surveyauth.v1.ErrorReason' })
  })

  test('has nothing of what our own processes say to each other, nor what there is not', async () => {
    const over = new AbortController()
    onTestFinished(() => over.abort())
    const ask = asking(transport(), over.signal)
    const notFound = { case: 'errorResponse', value: expect.objectContaining({ errorCode: Code.NotFound }) }
    const { name } = LimitService.file.proto
    expect(await ask({ case: 'fileContainingSymbol', value: LimitService.typeName })).toEqual(notFound)
    expect(await ask({ case: 'fileByFilename', value: name })).toEqual(notFound)
    expect(await ask({ case: 'fileContainingSymbol', value: '' })).toEqual(notFound)
    const extension = await ask({ case: 'allExtensionNumbersOfType', value: 'google.protobuf.FieldOptions' })
    expect(extension).toMatchObject({ case: 'errorResponse', value: { errorCode: Code.Unimplemented } })
  })

  test('is refused to a web page', async () => {
    const headers = { origin: 'http://rebound.example' }
    async function* question() {
      yield { messageRequest: { case: 'listServices' as const, value: '' } }
    }
    const answers = createClient(ServerReflection, transport()).serverReflectionInfo(question(), { headers })
    const failure = await answers[Symbol.asyncIterator]()
      .next()
      .catch((error: unknown) => ConnectError.from(error))
    expect(failure).toMatchObject({ code: Code.PermissionDenied })
  })
})

test('a caller over TLS is told nothing, whatever its role', async () => {
  const nodeOptions = { ...authority.issue('DNS:console.test'), ca: authority.cert }
  const transport = createGrpcTransport({ baseUrl: servers.TLS?.address ?? '', nodeOptions })
  const failure = await asking(transport)({ case: 'listServices', value: '' }).catch(ConnectError.from)
  expect(failure).toMatchObject({ code: Code.Unimplemented })
})

test('a caller who goes away, at whatever point, leaves nothing behind', async () => {
  const session = http2.connect(servers.loopback?.address ?? '')
  onTestFinished(() => session.destroy())
  const headers = {
    ':method': 'POST',
    ':path': '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    'content-type': 'application/grpc',
    te: 'trailers',
  }
  const listServices = Buffer.from([0, 0, 0, 0, 2, 0x3a, 0])
  for (const when of ['at once', 'after a question', 'after an answer']) {
    const stream = session.request(headers)
    stream.on('error', () => undefined)
    if (when !== 'at once') stream.write(listServices)
    if (when === 'after an answer') await once(stream, 'data')
    stream.close(http2.constants.NGHTTP2_CANCEL)
    await once(stream, 'close')
  }
})

test.each(Object.keys(transports))('a drain ends an idle stream over %s, and is not held by it', async (name) => {
  const server = await serverAt({ kind: 'plaintext', host: '127.0.0.1', port: 0 })
  const { loopback } = servers
  servers.loopback = server
  const ask = asking((transports[name] ?? expect.unreachable)())
  if (loopback) servers.loopback = loopback
  await ask({ case: 'listServices', value: '' })
  const startedAt = performance.now()
  await server.drain(40_000)
  expect(performance.now() - startedAt).toBeLessThan(20_000)
})
