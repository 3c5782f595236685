// How the server's end of a stream treats calls that are given up, and too many at once.
import { EventEmitter } from 'node:events'
import { create, type DescMethod, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf'
import { expect, test, vi } from 'vitest'
import {
  type MultiplexedResult,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { IncomingCall } from '../../services/rpc/dispatcher.js'
import { decodeCalls, MAX_CALLS_OF_MESSAGE, serveMultiplex } from '../../services/rpc/multiplex-server.js'
import { inParts } from '../../services/storage/in-parts.js'

const { exchangeCode } = TokenService.method
const path = `/${TokenService.typeName}/${exchangeCode.name}`
const request = toBinary(exchangeCode.input, create(exchangeCode.input, { appid: 'a', secret: 's', code: 'c' }))

/** A stream; `signals` are those of the calls that ran, which end with `work`. */
function open(work = Promise.resolve()) {
  let [isPaused, hasEnded] = [false, false]
  const results: MultiplexedResult[] = []
  let drainings = 0
  const signals: (AbortSignal | undefined)[] = []
  const stream = Object.assign(new EventEmitter(), {
    writableNeedDrain: false,
    isPaused: () => isPaused,
    pause: () => (isPaused = true),
    resume: () => (isPaused = false),
    end: () => (hasEnded = true),
    write(bytes: Buffer) {
      const response = fromBinary(MultiplexResponseSchema, bytes)
      if (!hasEnded) results.push(...response.results)
      if (response.draining) drainings += 1
    },
  })
  const dispatcher = {
    async call(method: DescMethod, _request: unknown, { signal }: IncomingCall) {
      signals.push(signal)
      await work
      return create(method.output)
    },
  }
  const methods = new Map<string, DescMethod>([[path, exchangeCode]])
  const { drain } = serveMultiplex({ stream, dispatcher, methods, caller: 'gateway' } as never)
  const receive = (message: MessageInitShape<typeof MultiplexRequestSchema>) =>
    stream.emit('data', toBinary(MultiplexRequestSchema, create(MultiplexRequestSchema, message)))
  const sendAtOnce = (count: number) => {
    const calls = Array.from({ length: count }, (_, n) => ({ id: n, method: path, request, requestId: '' }))
    for (const part of inParts(calls, MAX_CALLS_OF_MESSAGE)) receive({ calls: [...part] })
  }
  const now = () => ({ isPaused, hasEnded, drainings })
  return { sendAtOnce, receive, signals, results, stream, drain, now }
}

test('a caller may end its side while calls are in flight: the stream ends after their answers', async () => {
  let finish = () => {}
  const { sendAtOnce, stream, results, now } = open(new Promise((resolve) => (finish = resolve)))
  sendAtOnce(3)
  stream.emit('end')
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(now().hasEnded).toBe(false)
  finish()
  await vi.waitFor(() => expect(now().hasEnded).toBe(true))
  expect(results).toHaveLength(3)
})

test.each(['cancelled', 'error'])(
  'when a stream ends by %s, no further call of it is run and nothing is written to it',
  async (how) => {
    let finish = () => {}
    const { sendAtOnce, stream, results, signals, drain, now } = open(new Promise((resolve) => (finish = resolve)))
    sendAtOnce(3)
    stream.emit(how, new Error('reset'))
    sendAtOnce(4)
    drain()
    stream.emit('end')
    finish()
    for (let turns = 0; turns < 3; turns += 1) await new Promise((resolve) => setImmediate(resolve))
    expect(signals).toHaveLength(3)
    expect(results).toEqual([])
    expect(now()).toMatchObject({ hasEnded: false, drainings: 0 })
  },
)

test('calls are told when their caller gives them up, and when it goes away', async () => {
  const { sendAtOnce, receive, stream, signals } = open(new Promise(() => undefined))
  sendAtOnce(3)
  receive({ givenUp: [1, 99] })
  expect(signals.map((signal) => signal?.aborted)).toEqual([false, true, false])
  stream.emit('cancelled')
  expect(signals.map((signal) => signal?.aborted)).toEqual([true, true, true])
})

test('a caller is told to move on, unless it has ended its side', () => {
  for (const [hasLeft, drainings] of [
    [false, 1],
    [true, 0],
  ] as const) {
    const { stream, drain, now } = open()
    if (hasLeft) stream.emit('end')
    drain()
    expect(now().drainings).toBe(drainings)
  }
})

test('a caller with ten thousand calls in flight is not read from until some have ended', async () => {
  let finish = () => {}
  const { sendAtOnce, results, now } = open(new Promise((resolve) => (finish = resolve)))
  sendAtOnce(9_999)
  expect(now().isPaused).toBe(false)
  sendAtOnce(1)
  expect(now().isPaused).toBe(true)
  finish()
  await vi.waitFor(() => expect(now().isPaused).toBe(false))
  expect(results.length).toBeGreaterThan(0)
})

test('large answers are encoded only when there is room for them', async () => {
  const { getSurvey } = SurveyService.method
  const [MB, CALLS] = [1024 * 1024, 100]
  const results: MultiplexedResult[] = []
  let [encodedBytes, room] = [0, 4]
  const stream = Object.assign(new EventEmitter(), {
    isPaused: () => false,
    pause: () => undefined,
    end: () => undefined,
    write(bytes: Buffer) {
      encodedBytes += bytes.length
      results.push(...fromBinary(MultiplexResponseSchema, bytes).results)
      room -= 1
    },
  })
  Object.defineProperty(stream, 'writableNeedDrain', { get: () => room === 0 })
  const answers = { call: async () => create(getSurvey.output, { survey: { title: 'x'.repeat(MB) } }) }
  const methods = new Map<string, DescMethod>([['/get', getSurvey]])
  serveMultiplex({
    stream,
    dispatcher: answers,
    methods,
    caller: 'gateway',
  } as never)
  const calls = Array.from({ length: CALLS }, (_, id) => ({ id, method: '/get', timeoutMs: 1_000, requestId: '' }))
  stream.emit('data', toBinary(MultiplexRequestSchema, create(MultiplexRequestSchema, { calls })))

  await vi.waitFor(() => expect(results).not.toEqual([]))
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect([results.length, Math.round(encodedBytes / MB)]).toEqual([4, 4])
  for (const more of [2, CALLS]) {
    room = more
    stream.emit('drain')
    expect(results.length).toBe(Math.min(4 + more, CALLS))
  }
  expect(results.map(({ id }) => id).sort((a, b) => a - b)).toEqual(calls.map(({ id }) => id))
  expect(results.filter(({ outcome }) => outcome.case !== 'response')).toEqual([])
})

test('a message with too many calls is refused before they are decoded', () => {
  const emptyCalls = (count: number) => Buffer.from('0a00'.repeat(count), 'hex')
  expect(decodeCalls(emptyCalls(MAX_CALLS_OF_MESSAGE)).calls).toHaveLength(MAX_CALLS_OF_MESSAGE)
  const tooMany = emptyCalls(2_000_000)
  const startedAt = performance.now()
  expect(() => decodeCalls(tooMany)).toThrow('1000 calls at most')
  expect(performance.now() - startedAt, 'decoding them takes a second').toBeLessThan(300)
})
