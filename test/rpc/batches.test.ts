import path from 'node:path'
import { create, type DescMessage, ScalarType, toBinary } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import {
  MultiplexedCallSchema,
  MultiplexedResultSchema,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { groupBy } from '../../services/collections/group-by.js'
import type { Address } from '../../services/rpc/address.js'
import { holding, inBatches } from '../../services/rpc/batches.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { startRpcServer } from '../../services/rpc/rpc-server.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const methods = [TokenService, AccountService, AdminService, LimitService, SurveyService].flatMap(
  (service) =>
    service.methods as readonly { readonly name: string; readonly input: DescMessage; readonly output: DescMessage }[],
)

const LISTS: Partial<Record<ScalarType, readonly unknown[]>> = {
  [ScalarType.STRING]: ['一', 'two'],
  [ScalarType.BYTES]: [Uint8Array.of(1, 200), Uint8Array.of()],
  [ScalarType.UINT32]: [0, 300],
  [ScalarType.INT32]: [-1, 300],
  [ScalarType.INT64]: [1n, 2n ** 40n],
  [ScalarType.UINT64]: [0n, 2n ** 40n],
}

/** A message of this type whose texts, bytes and lists are not empty. */
function sample(desc: DescMessage, depth = 3) {
  const message = create(desc) as unknown as Record<string, unknown>
  for (const field of desc.fields) {
    if (field.oneof) continue
    if (field.fieldKind === 'message' && depth > 0) message[field.localName] = sample(field.message, depth - 1)
    if (field.fieldKind === 'list' && field.listKind === 'message' && depth > 0) {
      message[field.localName] = [sample(field.message, depth - 1), sample(field.message, 0)]
    }
    if (field.fieldKind === 'list' && field.listKind === 'scalar') message[field.localName] = LISTS[field.scalar]
    if (message[field.localName] instanceof Uint8Array) message[field.localName] = Uint8Array.of(1, 200, 3)
    if (typeof message[field.localName] === 'string') message[field.localName] = `${field.name} 用户 ${'x'.repeat(150)}`
  }
  return message as never
}

test.each(methods)('a call of $name has the same bytes as one whose request was encoded first', ({ input, output }) => {
  const about = { id: 7, method: '/a.B/C', timeoutMs: 5_000, requestId: 'r', traceparent: 't' }
  const calls = (of: DescMessage, request: unknown) =>
    toBinary(
      of,
      create(of, {
        calls: [
          { ...about, request },
          { id: 8, request },
        ],
        sentMs: 12.5,
      } as never),
    )
  const ofCalls = holding(MultiplexRequestSchema, MultiplexedCallSchema.field.request, input)
  expect(calls(ofCalls, sample(input))).toEqual(calls(MultiplexRequestSchema, toBinary(input, sample(input))))

  const results = (of: DescMessage, value: unknown) =>
    toBinary(of, create(of, { results: [{ id: 7, outcome: { case: 'response', value } }] } as never))
  const ofResults = holding(MultiplexResponseSchema, MultiplexedResultSchema.field.response, output)
  expect(results(ofResults, sample(output))).toEqual(results(MultiplexResponseSchema, toBinary(output, sample(output))))
  expect(holding(MultiplexResponseSchema, MultiplexedResultSchema.field.response, output), 'made once').toBe(ofResults)
})

test('every item is in exactly one batch, in order, and only a single oversized item exceeds the limit', () => {
  const sizes = Array.from({ length: 1_000 }, (_, index) => (index === 500 ? 5_000 : index % 50))
  const taken: number[][] = []
  const encode = (items: readonly number[]) => {
    const bytes = new Uint8Array(items.reduce((sum, size) => sum + size, 0))
    taken.push([...items])
    return bytes
  }
  const seen: number[] = []
  for (const batch of inBatches(sizes, { encode, maxBytes: 1_000, onUnencodable: () => expect.unreachable() })) {
    const items = taken.at(-1) ?? []
    expect(batch.length).toBe(items.reduce((sum, size) => sum + size, 0))
    if (batch.length > 1_000) expect(items).toEqual([5_000])
    seen.push(...items)
  }
  expect(seen).toEqual(sizes)
})

test('items of known size are encoded once, and taken from the source only when their turn comes', () => {
  let encoded = 0
  const encode = (items: readonly number[]) => {
    encoded += items.length
    return new Uint8Array(items.reduce((sum, size) => sum + size, 0))
  }
  const asked: number[] = []
  function* sizes() {
    for (const size of [900, 900, 50, 40, 5_000, 10]) {
      asked.push(size)
      yield size
    }
  }
  const refuse = () => expect.unreachable()
  const batches = inBatches(sizes(), { encode, maxBytes: 1_000, sizeOf: (size) => size, onUnencodable: refuse })
  const first = batches.next().value as Buffer
  expect([first.length, asked]).toEqual([900, [900, 900]])
  expect([...batches].map(({ length }) => length)).toEqual([990, 5_000, 10])
  expect(encoded).toBe(6)
})

test('an item that cannot be encoded is left out and reported, and no other is lost', () => {
  const items = Array.from({ length: 300 }, (_, index) => index)
  const encode = (part: readonly number[]) => {
    if (part.some((item) => item % 97 === 5)) throw new Error('no')
    return Uint8Array.from(part.map((item) => item & 0xff))
  }
  const refused = vi.fn()
  const batches = [...inBatches(items, { encode, maxBytes: 10_000, onUnencodable: refused })]
  expect(refused.mock.calls.map(([item]) => item)).toEqual([5, 102, 199, 296])
  expect(Buffer.concat(batches)).toHaveLength(296)
})

test('groups keep the order of their items', () => {
  expect([...groupBy([3, 8, 5, 2, 1], (item) => item % 2)]).toEqual([
    [1, [3, 5, 1]],
    [0, [8, 2]],
  ])
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
  const limits = { maxRequestBytes: 64 * 1024, maxStreams: 100, maxConnections: 10 }
  const common = { dispatcher, address, tls: undefined, callers: new Map(), limits }
  const server = await startRpcServer({ ...common, hasReflection: false })
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
    [expect.any(Error), { method: 'ExchangeCode', requestId: expect.any(String) }],
  ])
  const openids = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value.openid] : []))
  expect(openids).toEqual([...exchanges.filter((code) => code !== 'too much'), ...exchanges])
})
