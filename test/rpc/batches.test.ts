import path from 'node:path'
import { Code } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Address } from '../../services/rpc/address.js'
import { inBatches } from '../../services/rpc/batches.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { startRpcServer } from '../../services/rpc/rpc-server.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

test('every item is in exactly one batch, in order, and only a single oversized item exceeds the limit', () => {
  const sizes = Array.from({ length: 1_000 }, (_, index) => (index === 500 ? 5_000 : index % 50))
  const batches = [...inBatches(sizes, { maxBytes: 1_000, sizeOf: (size) => size })]
  for (const batch of batches) {
    if (batch.reduce((sum, size) => sum + size, 0) > 1_000) expect(batch).toEqual([5_000])
    expect(batch.length).toBeLessThanOrEqual(128)
  }
  expect(batches.flat()).toEqual(sizes)
})

test('among calls sent together, only those fail that are too large or cannot be encoded, or whose answer cannot', async () => {
  const address: Address = { kind: 'unix', path: path.join(temporaryDirectory(), 's') }
  const notNeeded = () => Promise.reject(new Error('not needed'))
  const onUnexpected = vi.fn()
  const dispatcher = new Dispatcher({ mayCall, onCall() {}, onUnexpected, maxDeadlineMs: 5_000 }).register(
    TokenService,
    {
      checkAuthorizationRequest: notNeeded,
      issueCode: notNeeded,
      exchangeCode: async ({ code }) => ({ openid: code, expiresIn: code === 'too much' ? 2 ** 40 : 1 }),
      refreshAccessToken: notNeeded,
      verifyAccessToken: notNeeded,
      getAuthorizedUser: async ({ openid }) => ({ openid, nickname: '昵称'.repeat(2_000) }),
    },
  )
  const common = { dispatcher, address, tls: undefined, callers: new Map(), maxConnections: 10 }
  const server = await startRpcServer(common)
  const transport = new MultiplexTransport({
    address,
    tls: undefined,
    maxRequestBytes: 65_536,
    maxResponseBytes: 1 << 20,
    defaultTimeoutMs: 5_000,
  })
  onTestFinished(async () => {
    transport.close()
    await server.drain(100)
  })
  const token = clientOf(TokenService, transport.invoke)
  const secret = 'sas_x'
  const noText = Object.create(null)
  const exchanges = Array.from({ length: 200 }, (_, index) => `code ${index}`)
  exchanges[50] = 'too much'
  const answers = await Promise.allSettled([
    token.exchangeCode({ appid: 'app_x', secret, code: 'x'.repeat(100_000) }),
    ...exchanges.map((code) => token.exchangeCode({ appid: 'app_x', secret, code })),
    token.exchangeCode({ appid: 'app_x', secret, code: noText as never }),
    ...exchanges.map((openid) => token.getAuthorizedUser({ appid: 'app_x', accessToken: 'sat_x', openid })),
  ])
  const failed = answers.flatMap((answer, index) => (answer.status === 'rejected' ? [[index, answer.reason]] : []))
  expect(failed).toEqual([
    [0, expect.objectContaining({ code: Code.ResourceExhausted })],
    [51, expect.objectContaining({ code: Code.Internal, rawMessage: 'internal error' })],
    [201, expect.objectContaining({ message: expect.stringContaining('ExchangeCodeRequest.code') })],
  ])
  expect(onUnexpected.mock.calls).toEqual([
    [
      expect.any(Error),
      { service: 'surveyauth.v1.TokenService', method: 'ExchangeCode', requestId: expect.any(String) },
    ],
  ])
  const openids = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value.openid] : []))
  expect(openids).toEqual([...exchanges.filter((code) => code !== 'too much'), ...exchanges])
})
