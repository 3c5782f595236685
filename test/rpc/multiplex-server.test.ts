// What the server's end of a stream makes of calls that were long on their way, and of too many at once.
import { EventEmitter } from 'node:events'
import { create, type DescMethod, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import { expect, test, vi } from 'vitest'
import {
  type MultiplexedResult,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
} from '../../gen/surveyauth/v1/multiplex_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { decodeCalls, MAX_CALLS_OF_MESSAGE, serveMultiplex } from '../../services/rpc/multiplex-server.js'

const { exchangeCode } = TokenService.method
const path = `/${TokenService.typeName}/${exchangeCode.name}`
const request = toBinary(exchangeCode.input, create(exchangeCode.input, { appid: 'a', secret: 's', code: 'c' }))

/** A stream of a caller whose clock is an hour ahead; `timeouts` are those of the calls that were run. */
function open() {
  const results: MultiplexedResult[] = []
  const timeouts: (number | undefined)[] = []
  const stream = Object.assign(new EventEmitter(), {
    writableNeedDrain: false,
    isPaused: () => false,
    write: (bytes: Buffer) => results.push(...fromBinary(MultiplexResponseSchema, bytes).results),
  })
  const dispatcher = {
    async call(method: DescMethod, _request: unknown, _call: unknown, timeoutMs?: number) {
      timeouts.push(timeoutMs)
      return create(method.output)
    },
  }
  const methods = new Map<string, DescMethod>([[path, exchangeCode]])
  serveMultiplex({ stream, dispatcher, limits: { maxRequestBytes: 1_000 }, methods, caller: 'gateway' } as never)
  let id = 0
  const send = async (agoMs: number | undefined, timeoutMs: number) => {
    id += 1
    const sentMs = agoMs === undefined ? 0 : performance.now() + 3_600_000 - agoMs
    const calls = [{ id, method: path, request, timeoutMs, requestId: 'of the request' }]
    stream.emit('data', toBinary(MultiplexRequestSchema, create(MultiplexRequestSchema, { calls, sentMs })))
    await vi.waitFor(() => expect(results).toHaveLength(id))
    return results.at(-1)?.outcome
  }
  return { send, timeouts }
}

test('a call that has spent its time on the way is not run', async () => {
  const { send, timeouts } = open()
  expect((await send(0, 4_000))?.case).toBe('response')
  for (const agoMs of [60_000, 600_000]) {
    expect((await send(agoMs, 4_000))?.value).toMatchObject({ code: Code.DeadlineExceeded })
  }
  expect(timeouts).toHaveLength(1)
})

test('a call that comes late has what is left of its time', async () => {
  const { send, timeouts } = open()
  await send(0, 4_000)
  await send(60_000, 90_000)
  expect(timeouts[0]).toBe(4_000)
  expect(timeouts[1], 'about 30 s').toBeLessThan(60_000)
  expect(timeouts[1]).toBeGreaterThan(0)
})

test('of a message that does not say when it was sent nothing is late, and a call without a time has all there is', async () => {
  const { send, timeouts } = open()
  await send(0, 4_000)
  await send(undefined, 4_000)
  await send(600_000, 0)
  expect(timeouts).toEqual([4_000, 4_000, undefined])
})

test('a time that is no number makes nothing late, and takes no call its deadline', async () => {
  const { send, timeouts } = open()
  for (const agoMs of [0, Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, 0]) await send(agoMs, 4_000)
  for (const timeoutMs of timeouts) expect(timeoutMs).toBeGreaterThan(3_000)
  expect(timeouts).toHaveLength(5)
})

test('a message with more calls than one may carry is refused before they are decoded', () => {
  const emptyCalls = (count: number) => Buffer.from('0a00'.repeat(count), 'hex')
  expect(decodeCalls(emptyCalls(MAX_CALLS_OF_MESSAGE)).calls).toHaveLength(MAX_CALLS_OF_MESSAGE)
  const tooMany = emptyCalls(2_000_000)
  const startedAt = performance.now()
  expect(() => decodeCalls(tooMany)).toThrow('1000 calls at most')
  expect(performance.now() - startedAt, 'decoding them takes a second').toBeLessThan(300)
})
