// What a door that is drained waits for, and what not.
import { once } from 'node:events'
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { type Address, parseAddress } from '../../services/rpc/address.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { stateOfSocket } from '../../services/rpc/listener.js'
import { createMultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const CALL_MS = 300
const address: Address = { kind: 'plaintext', host: '127.0.0.1', port: 0 }

async function started(more: { readonly address?: Address; readonly connectAddress?: Address } = {}) {
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
      await sleep(CALL_MS)
      ended.push('the call')
      return { username: 'somebody' }
    },
    listConnectedApps: nothing,
    disconnectApp: nothing,
  })
  const limits = { maxRequestBytes: 64 * 1024, maxStreams: 100, maxConnections: 100 }
  const common = { dispatcher, tls: undefined, callers: new Map(), limits, hasReflection: false }
  const server = await startRpcServer({ ...common, address, connectAddress: undefined, ...more })
  return { server, ended, at: parseAddress(server.addresses[0] ?? '') }
}

async function drained(server: RpcServer, graceMs: number): Promise<number> {
  const startedAt = performance.now()
  await server.drain(graceMs)
  return performance.now() - startedAt
}

test('is over when the calls are answered that were under way, not before', async () => {
  const { server, ended, at } = await started()
  const transport = createMultiplexTransport({
    address: at,
    tls: undefined,
    maxRequestBytes: 64 * 1024,
    maxResponseBytes: 64 * 1024,
    defaultTimeoutMs: 5_000,
  })
  onTestFinished(() => transport.close())
  const answer = clientOf(AccountService, transport.invoke).getSession({ sessionToken: 'x' })
  await sleep(CALL_MS / 2)
  expect(await drained(server, 5_000)).toBeLessThan(4_000)
  expect(ended).toEqual(['the call'])
  expect(await answer).toMatchObject({ username: 'somebody' })
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

test('cuts off a caller that does not send its request', async () => {
  const { at } = await started()
  const { host, port } = at as Extract<Address, { kind: 'plaintext' }>
  const caller = net.connect({ host, port }).resume()
  onTestFinished(() => void caller.destroy())
  caller.write('POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ')
  await once(caller, 'close')
}, 30_000)

test('does not wait longer than its grace for a peer that keeps its side open', async () => {
  const { server, at } = await started()
  const { host, port } = at as Extract<Address, { kind: 'plaintext' }>
  const peer = net.connect({ host, port, allowHalfOpen: true }).on('error', () => undefined)
  onTestFinished(() => void peer.destroy())
  peer.write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])]))
  await once(peer, 'data')
  expect(await drained(server, 500)).toBeLessThan(3_000)
})

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
