// Over mTLS the certificate says who calls: every role against every method, and every bad certificate.
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import tls from 'node:tls'
import type { DescService } from '@bufbuild/protobuf'
import { type Client, Code, ConnectError, createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { connectTo } from '../../bin/compose/remote.js'
import { readConfig } from '../../bin/config.js'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Address, parseAddress } from '../../services/rpc/address.js'
import { CALLERS, type Caller, mayCall } from '../../services/rpc/callers.js'
import { clientOf } from '../../services/rpc/client.js'
import { Dispatcher, type Handlers } from '../../services/rpc/dispatcher.js'
import { parseCallers } from '../../services/rpc/identity.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import type { LookUp } from '../../services/rpc/places.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'
import { type Authority, createAuthority, materialOf, pemFiles } from './certificates.js'

const services = [TokenService, AccountService, AdminService, SurveyService, LimitService] as const
const roles = CALLERS.filter((caller) => caller !== 'local')
const table = roles.map((role) => `${role}=DNS:${role.replace('_', '-')}.test`).join(';')

let authority: Authority
let server: RpcServer
let address: Address
/** Why TLS rejected callers. */
const turnedAway: string[] = []
const opened: MultiplexTransport[] = []

type Door = <S extends DescService>(service: S) => Client<S>

beforeAll(async () => {
  authority = createAuthority()
  server = await startServer({ onCall: () => undefined })
  address = parseAddress(server.address)
})

interface Differing {
  readonly onCall: () => void
  readonly host?: string
  readonly port?: number
  /** What the server's certificate says. */
  readonly name?: string
  /** RPC_CALLERS */
  readonly known?: string
}

function startServer({ onCall, host = '127.0.0.1', port = 0, name = 'IP:127.0.0.1', known = table }: Differing) {
  const dispatcher = new Dispatcher({ mayCall, onCall, onUnexpected: () => undefined, maxDeadlineMs: 5_000 })
  for (const service of services) {
    const handlers = service.methods.map((method) => [method.localName, () => Promise.resolve({})])
    dispatcher.register(service, Object.fromEntries(handlers) as Handlers<typeof service>)
  }
  return startRpcServer({
    dispatcher,
    address: { kind: 'tls', host, port },
    tls: materialOf(authority, authority.issue(name)),
    callers: parseCallers(known),
    maxConnections: 100,
    onTurnedAway: (why) => turnedAway.push(why),
  })
}

afterAll(async () => {
  for (const transport of opened) transport.close()
  await server.drain(500)
})

function transportAs(material: TlsMaterial, host = '127.0.0.1'): MultiplexTransport {
  const options = {
    address: { ...address, host },
    tls: material,
    maxRequestBytes: 65_536,
    maxResponseBytes: 1 << 20,
    defaultTimeoutMs: 3_000,
  }
  const transport = new MultiplexTransport(options)
  opened.push(transport)
  return transport
}

function grpcAs(material: TlsMaterial, host?: string): Door {
  const { invoke } = transportAs(material, host)
  return (service) => clientOf(service, invoke)
}

function connectAs({ cert, key, ca }: Partial<TlsMaterial>, httpVersion: '1.1' | '2' = '1.1'): Door {
  const baseUrl = server.address
  const transport = createConnectTransport({ baseUrl, httpVersion, nodeOptions: { cert, key, ca } })
  return (service) => createClient(service, transport)
}

async function codeOf(work: Promise<unknown>): Promise<Code | 'ok'> {
  return work.then(
    () => 'ok',
    (error: unknown) => ConnectError.from(error).code,
  )
}

/** Whether the method let the caller in: an empty request may be invalid, but the caller is checked first. */
async function isLetIn(door: Door, service: (typeof services)[number], localName: string): Promise<boolean> {
  const client = door(service) as Client<typeof service> & Record<string, (request: object) => Promise<unknown>>
  const error = await (client[localName] as (request: object) => Promise<unknown>)({}).then(
    () => undefined,
    (thrown: unknown) => ConnectError.from(thrown),
  )
  if (error === undefined || error.code === Code.InvalidArgument) return true
  expect(error.code, `${localName}: ${error.message}`).toBe(Code.PermissionDenied)
  return false
}

const doors = {
  gRPC: (material: TlsMaterial) => grpcAs(material),
  'Connect over HTTP/1.1': (material: TlsMaterial) => connectAs(material),
  'Connect over HTTP/2': (material: TlsMaterial) => connectAs(material, '2'),
} as const

describe.each(Object.keys(doors) as (keyof typeof doors)[])('through %s', (door) => {
  /** Every door learns the name in the same way: one role shows that it does. */
  const shown = door === 'gRPC' ? roles : roles.slice(0, 1)

  test.each(shown)('the certificate of %s may call exactly the methods of its role', async (role: Caller) => {
    const leaf = authority.issue(`DNS:${role.replace('_', '-')}.test`)
    const open = doors[door](materialOf(authority, leaf))
    for (const service of services) {
      for (const method of service.methods) {
        expect([method.name, await isLetIn(open, service, method.localName)]).toEqual([
          method.name,
          mayCall(role, method),
        ])
      }
    }
  })

  test('a certificate of our authority with an unknown name is refused', async () => {
    const open = doors[door](materialOf(authority, authority.issue('DNS:stranger.test')))
    const code = await codeOf(open(AdminService).listApps({}))
    expect(code).toBe(Code.PermissionDenied)
  })

  test('a name that only resembles one in RPC_CALLERS is refused', async () => {
    for (const name of ['DNS:gateway.test.evil', 'DNS:xgateway.test', 'URI:DNS:gateway.test', 'email:gateway.test']) {
      const open = doors[door](materialOf(authority, authority.issue(name)))
      expect(await codeOf(open(AccountService).signOut({ sessionToken: 'x' }))).toBe(Code.PermissionDenied)
    }
  })

  test('an expired certificate and one of another authority do not even connect', async () => {
    const other = createAuthority()
    const bad = [
      materialOf(authority, authority.issue('DNS:operator.test', 0)),
      { ...other.issue('DNS:operator.test'), ca: authority.cert },
    ]
    for (const material of bad) {
      const code = await codeOf(doors[door](material)(AdminService).listApps({}, { timeoutMs: 1_500 }))
      expect([
        Code.Unavailable,
        Code.DeadlineExceeded,
        Code.Aborted,
        Code.Canceled,
        Code.Internal,
        Code.Unknown,
      ]).toContain(code)
    }
    const [expired, foreign] = ['CERT_HAS_EXPIRED', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE']
    await vi.waitFor(() => expect(turnedAway).toEqual(expect.arrayContaining([expired, foreign])))
    turnedAway.length = 0
  })
})

test('without a certificate there is no connection', async () => {
  const code = await codeOf(connectAs({ ca: authority.cert })(AdminService).listApps({}))
  expect(code).not.toBe('ok')
  expect(code).not.toBe(Code.PermissionDenied)
})

test('TLS older than 1.3 is refused and reported; a connection reset during its handshake is not reported', async () => {
  const { port } = address as Extract<Address, { kind: 'tls' }>
  const reset = net.connect(port, '127.0.0.1').on('error', () => undefined)
  reset.write(Buffer.from([22, 3, 1, 2, 0, 1])) // the head of a ClientHello
  await once(reset, 'connect')
  const material = materialOf(authority, authority.issue('DNS:operator.test'))
  const knock = async (maxVersion: 'TLSv1.2' | 'TLSv1.3') => {
    const peer = tls.connect({ ...material, host: '127.0.0.1', port, maxVersion })
    const ended = once(peer, 'secureConnect').then(
      () => 'let in',
      ({ code }) => code,
    )
    onTestFinished(() => void peer.destroy())
    return ended
  }
  expect(await knock('TLSv1.3'), 'the one before is accepted').toBe('let in')
  reset.resetAndDestroy()
  expect(await knock('TLSv1.2')).toBe('ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION')
  await vi.waitFor(() => expect(turnedAway).toContain('ERR_SSL_UNSUPPORTED_PROTOCOL'))
  expect(turnedAway).not.toContain('ECONNRESET')
})

/** What becomes of a connection that shows `material` and offers the session of an earlier one, made as operator. */
async function resumeWith(material: Partial<TlsMaterial>): Promise<{ isReused: boolean; isServed: boolean }> {
  const { port } = address as Extract<Address, { kind: 'tls' }>
  const connect = (options: tls.ConnectionOptions) => {
    const peer = tls.connect({ ca: authority.cert, host: '127.0.0.1', port, ALPNProtocols: ['http/1.1'], ...options })
    onTestFinished(() => void peer.destroy())
    return peer
  }
  const first = connect(authority.issue('DNS:operator.test'))
  let session: Buffer | undefined
  first.on('session', (ticket: Buffer) => {
    session = ticket
  })
  expect(await answerOf(first)).toContain('HTTP/1.1 404')
  const second = connect({ ...material, ...(session && { session }) })
  const answer = await answerOf(second)
  return { isReused: second.isSessionReused() === true, isServed: answer.startsWith('HTTP/1.1 404') }
}

/** The first line of the answer to a request, or why there is none. */
function answerOf(peer: tls.TLSSocket): Promise<string> {
  return new Promise((resolve) => {
    peer.on('error', ({ code }: NodeJS.ErrnoException) => resolve(code ?? ''))
    peer.on('close', () => resolve('closed'))
    peer.on('data', (bytes) => resolve(String(bytes).split('\r\n', 1)[0] ?? ''))
    peer.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  })
}

test.each([
  ['certificates as they were at the start', () => undefined],
  ['certificates that were read again', () => server.reloadTls(materialOf(authority, authority.issue('IP:127.0.0.1')))],
])('no session stands in for a certificate, with %s', async (_, prepare) => {
  prepare()
  const turnedAway = { isReused: false, isServed: false }
  expect(await resumeWith({})).toEqual(turnedAway)
  expect(await resumeWith(authority.issue('DNS:operator.test', 0))).toEqual(turnedAway)
  expect(await resumeWith(authority.issue('DNS:operator.test'))).toEqual({ isReused: false, isServed: true })
})

test('a server whose certificate is not signed by our authority is not used', async () => {
  const operator = authority.issue('DNS:operator.test')
  const distrustful = grpcAs({ ...operator, ca: createAuthority().cert })
  expect(await codeOf(distrustful(AdminService).listApps({}, { timeoutMs: 1_500 }))).not.toBe('ok')
})

test('a server that is not used is reported with the reason', async () => {
  const operator = authority.issue('DNS:operator.test')
  expect(await transportAs(materialOf(authority, operator)).whyNotServing()).toBe('its health check says NOT_SERVING')
  const distrustful = transportAs({ ...operator, ca: createAuthority().cert })
  expect(await distrustful.whyNotServing()).toMatch(/self.signed certificate/)
  const elsewhere = transportAs(materialOf(authority, operator), 'localhost')
  expect(await elsewhere.whyNotServing()).toContain('Host: localhost.')
})

function configAs(name: string) {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-mtls-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  return readConfig(pemFiles(folder, materialOf(authority, authority.issue(name))))
}

function remoteAs(name: string, addresses: readonly Address[], lookUp?: LookUp) {
  return connectTo('token', addresses, configAs(name), 'gateway', lookUp)
}

test.each([
  ['token', 'gateway', 'DNS:gateway.test', undefined],
  ['token', 'survey', 'DNS:survey.test', undefined],
  ['token', 'gateway', 'DNS:stranger.test', 'it does not know this process as gateway: see RPC_CALLERS there'],
  ['token', 'survey', 'DNS:survey-writer.test', 'it does not know this process as survey: see RPC_CALLERS there'],
  ['survey', 'gateway', 'DNS:survey.test', 'it does not know this process as gateway: see RPC_CALLERS there'],
  ['token', 'operator', 'DNS:operator.test', undefined],
  ['token', 'operator', 'DNS:stranger.test', 'it does not know this process as operator: see RPC_CALLERS there'],
] as const)('the %s service that serves is absent to a %s with %s: %s', async (service, caller, name, cause) => {
  server.setServing(true)
  onTestFinished(() => server.setServing(false))
  const remote = connectTo(service, [address], configAs(name), caller)
  onTestFinished(() => remote.close())
  const causes = async () => (await remote.absent()).map((absence) => absence.cause)
  await expect.poll(causes, { timeout: 20_000 }).toEqual(cause === undefined ? [] : [cause])
})

test.each([
  ['any name', 'gateway=DNS:other.test'],
  ['another role', 'survey=DNS:gateway.test'],
])('of several services, one that knows this process by %s is named, and gets no calls', async (_, known) => {
  const calls = [0, 0]
  const servers = [
    await startServer({ onCall: () => (calls[0] = Number(calls[0]) + 1) }),
    await startServer({ onCall: () => (calls[1] = Number(calls[1]) + 1), known }),
  ]
  for (const each of servers) each.setServing(true)
  const remote = remoteAs(
    'DNS:gateway.test',
    servers.map((each) => parseAddress(each.address)),
  )
  onTestFinished(async () => {
    await remote.close()
    await Promise.all(servers.map((each) => each.drain(500)))
  })
  const what = `token service at ${servers[1]?.address}`
  const cause = 'it does not know this process as gateway: see RPC_CALLERS there'
  await expect.poll(() => remote.absent(), { timeout: 20_000 }).toEqual([{ what, cause, isDispensable: true }])
  calls.fill(0)
  const { verifyAccessToken, getAuthorizedUser } = clientOf(TokenService, remote.invoke)
  for (let call = 0; call < 4; call += 1) {
    expect(await codeOf(getAuthorizedUser({ appid: 'app_x', accessToken: 'sat_x', openid: 'o' }))).toBe('ok')
  }
  expect(await codeOf(verifyAccessToken({}))).toBe(Code.PermissionDenied)
  expect(calls).toEqual([5, 0])
})

test('a name with several IP addresses is one process at each, as long as it has them', async () => {
  const calls = { '127.0.0.1': 0, '127.0.0.2': 0, '127.0.0.3': 0 }
  const [first, ...others] = Object.keys(calls) as (keyof typeof calls)[]
  const start = (host: keyof typeof calls, port = 0) =>
    startServer({ host, port, name: 'DNS:token.test', onCall: () => (calls[host] += 1) })
  const servers = [await start(first as keyof typeof calls)]
  const { port } = parseAddress(servers[0]?.address ?? '') as Extract<Address, { kind: 'tls' }>
  for (const host of others) servers.push(await start(host, port))
  for (const each of servers) each.setServing(true)
  let found = ['127.0.0.1', '127.0.0.2']
  const remote = remoteAs('DNS:gateway.test', [{ kind: 'tls', host: 'token.test', port }], async (host) => {
    expect(host).toBe('token.test')
    if (found.length === 0) throw new Error('no such name')
    return [...found.map((address) => ({ address, family: 4 })), { address: '::1', family: 6 }]
  })
  onTestFinished(async () => {
    await remote.close()
    await Promise.all(servers.map((each) => each.drain(500)))
  })
  const answered = async () => {
    const looked = async () => [(await remote.absent()).length, (await remote.absent()).length]
    await expect.poll(looked, { timeout: 20_000 }).toEqual([0, 0])
    for (const host of Object.keys(calls) as (keyof typeof calls)[]) calls[host] = 0
    const { getAuthorizedUser } = clientOf(TokenService, remote.invoke)
    for (let call = 0; call < 4; call += 1)
      await getAuthorizedUser({ appid: 'app_x', accessToken: 'sat_x', openid: 'o' })
    return Object.values(calls)
  }
  expect(await answered()).toEqual([2, 2, 0])
  found = ['127.0.0.2', '127.0.0.3']
  await expect.poll(answered, { timeout: 20_000 }).toEqual([0, 2, 2])
  found = []
  expect(await answered(), 'the name cannot be looked up').toEqual([0, 2, 2])
  found = ['127.0.0.2', '127.0.0.3', '127.0.0.4']
  const what = `token service at https://token.test:${port} (127.0.0.4)`
  await expect.poll(async () => (await remote.absent()).map((absence) => absence.what)).toEqual([what])
})

/** What is at the first of two IP addresses of a name. */
const faults: Readonly<Record<string, (port: number) => Promise<() => unknown>>> = {
  'nobody listens': async () => () => undefined,
  'nobody answers': async (port) => {
    const silent = net.createServer().listen(port, '127.0.0.1')
    await once(silent, 'listening')
    return () => silent.close()
  },
  'it does not serve': async (port) => {
    const other = await startServer({ onCall: () => undefined, port, name: 'DNS:token.test' })
    return () => other.drain(100)
  },
  'it does not know this process': async (port) => {
    const other = await startServer({
      onCall: () => undefined,
      port,
      name: 'DNS:token.test',
      known: 'survey=DNS:s.test',
    })
    other.setServing(true)
    return () => other.drain(100)
  },
}

test.each(Object.entries(faults))(
  'of a name with two IP addresses a command uses the second when at the first %s',
  async (_, make) => {
    let calls = 0
    const second = await startServer({ host: '127.0.0.2', name: 'DNS:token.test', onCall: () => (calls += 1) })
    second.setServing(true)
    const { port } = parseAddress(second.address) as Extract<Address, { kind: 'tls' }>
    const end = await make(port)
    const found = ['127.0.0.1', '127.0.0.2'].map((address) => ({ address, family: 4 }))
    const where: Address = { kind: 'tls', host: 'token.test', port }
    const remote = connectTo('token', [where], configAs('DNS:operator.test'), 'operator', async () => found)
    onTestFinished(async () => void (await Promise.all([remote.close(), second.drain(100), end()])))
    const from = performance.now()
    await remote.choose()
    calls = 0
    const admin = clientOf(AdminService, remote.invoke)
    for (let call = 0; call < 3; call += 1) expect(await codeOf(admin.deleteApp({ appid: 'app_x' }))).toBe('ok')
    expect(calls).toBe(3)
    expect(performance.now() - from).toBeLessThan(3_000)
  },
)

test('a name that gets another address while the certificates cannot be read is followed with those in use', async () => {
  const servers = [await startServer({ name: 'DNS:token.test', onCall: () => undefined })]
  const { port } = parseAddress(servers[0]?.address ?? '') as Extract<Address, { kind: 'tls' }>
  servers.push(await startServer({ host: '127.0.0.2', port, name: 'DNS:token.test', onCall: () => undefined }))
  for (const each of servers) each.setServing(true)
  const config = configAs('DNS:gateway.test')
  let found = ['127.0.0.1']
  const where: Address = { kind: 'tls', host: 'token.test', port }
  const remote = connectTo('token', [where], config, 'gateway', async () =>
    found.map((address) => ({ address, family: 4 })),
  )
  onTestFinished(async () => {
    await remote.close()
    await Promise.all(servers.map((each) => each.drain(500)))
  })
  await remote.absent()
  rmSync(config.rpcTlsCert)
  found = ['127.0.0.1', '127.0.0.2']
  await expect.poll(async () => (await remote.absent()).map(({ what }) => what), { timeout: 20_000 }).toEqual([])
})

test.each([
  ['127.0.0.1', 'IP:127.0.0.1', true],
  ['127.0.0.1', 'IP:127.0.0.2,DNS:localhost,DNS:ip.invalid', false],
  ['localhost', 'DNS:localhost', true],
  ['localhost', 'DNS:ip.invalid,IP:127.0.0.1', false],
])('at %s, a server whose certificate says %s is used: %s', async (host, name, isTalkedTo) => {
  server.reloadTls(materialOf(authority, authority.issue(name)))
  onTestFinished(() => server.reloadTls(materialOf(authority, authority.issue('IP:127.0.0.1'))))
  const admin = grpcAs(materialOf(authority, authority.issue('DNS:operator.test')), host)(AdminService)
  const code = await codeOf(admin.listApps({}, { timeoutMs: 1_500 }))
  expect(code).toBe(isTalkedTo ? 'ok' : Code.DeadlineExceeded)
})

test('new certificates apply to new connections, and open ones stay', async () => {
  const admin = grpcAs(materialOf(authority, authority.issue('DNS:operator.test')))(AdminService)
  expect(await codeOf(admin.listApps({}))).toBe('ok')
  const next = createAuthority()
  server.reloadTls(materialOf(next, next.issue('IP:127.0.0.1')))
  expect(await codeOf(admin.listApps({}))).toBe('ok')
  const late = grpcAs(materialOf(next, next.issue('DNS:operator.test')))
  expect(await codeOf(late(AdminService).listApps({}))).toBe('ok')
  server.reloadTls(materialOf(authority, authority.issue('IP:127.0.0.1')))
})
