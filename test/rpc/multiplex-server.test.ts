// How the server's end of a stream treats calls that were delayed on their way, and too many at once.
import { EventEmitter } from 'node:events'
import { create, type DescMethod, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
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
import { freezeTime } from '../harness/freeze-time.js'

const { exchangeCode } = TokenService.method
const path = `/${TokenService.typeName}/${exchangeCode.name}`
const request = toBinary(exchangeCode.input, create(exchangeCode.input, { appid: 'a', secret: 's', code: 'c' }))

/** A stream from a caller whose clock is an hour ahead; `timeouts` and `signals` are those of the calls that ran, which end with `work`. */
function open(work = Promise.resolve()) {
  let [isPaused, hasEnded] = [false, false]
  const results: MultiplexedResult[] = []
  let drainings = 0
  const timeouts: (number | undefined)[] = []
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
    async call(method: DescMethod, _request: unknown, { signal }: IncomingCall, timeoutMs?: number) {
      signals.push(signal)
      timeouts.push(timeoutMs)
      await work
      return create(method.output)
    },
  }
  const methods = new Map<string, DescMethod>([[path, exchangeCode]])
  const { drain } = serveMultiplex({ stream, dispatcher, methods, caller: 'gateway' } as never)
  const receive = (message: MessageInitShape<typeof MultiplexRequestSchema>) =>
    stream.emit('data', toBinary(MultiplexRequestSchema, create(MultiplexRequestSchema, message)))
  let id = 0
  const send = async (agoMs: number | undefined, timeoutMs: number) => {
    id += 1
    const sentMs = agoMs === undefined ? 0 : performance.now() + 3_600_000 - agoMs
    const calls = [{ id, method: path, request, timeoutMs, requestId: 'of the request' }]
    receive({ calls, sentMs })
    await vi.waitFor(() => expect(results).toHaveLength(id))
    return results.at(-1)?.outcome
  }
  const sendAtOnce = (count: number) => {
    const calls = Array.from({ length: count }, (_, n) => ({ id: n, method: path, request, requestId: '' }))
    for (const part of inParts(calls, MAX_CALLS_OF_MESSAGE)) receive({ calls: [...part] })
  }
  const now = () => ({ isPaused, hasEnded, drainings })
  return { send, sendAtOnce, receive, timeouts, signals, results, stream, drain, now }
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
    const { sendAtOnce, stream, results, timeouts, drain, now } = open(new Promise((resolve) => (finish = resolve)))
    sendAtOnce(3)
    stream.emit(how, new Error('reset'))
    sendAtOnce(4)
    drain()
    stream.emit('end')
    finish()
    for (let turns = 0; turns < 3; turns += 1) await new Promise((resolve) => setImmediate(resolve))
    expect(timeouts).toHaveLength(3)
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

test('a late call that its caller has given up since knows that when it runs', async () => {
  const { send, receive, signals } = open()
  await send(0, 4_000)
  const calls = [{ id: 7, method: path, request, timeoutMs: 4_000, requestId: '' }]
  receive({ calls, sentMs: performance.now() + 3_600_000 - 600 })
  await new Promise((resolve) => setImmediate(resolve)) // what lies behind it is read a turn later
  receive({ givenUp: [7] })
  await vi.waitFor(() => expect(signals).toHaveLength(2))
  expect(signals[1]?.aborted).toBe(true)
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

test('a call whose time ran out on the way is not run', async () => {
  const { send, timeouts } = open()
  expect((await send(0, 4_000))?.case).toBe('response')
  for (const agoMs of [60_000, 600_000]) {
    expect((await send(agoMs, 4_000))?.value).toMatchObject({ code: Code.DeadlineExceeded })
  }
  expect(timeouts).toHaveLength(1)
})

test('a call that arrives late has only the rest of its time', async () => {
  const { send, timeouts } = open()
  await send(0, 4_000)
  await send(60_000, 90_000)
  expect(timeouts[0]).toBe(4_000)
  expect(timeouts[1], 'about 30 s').toBeLessThan(60_000)
  expect(timeouts[1]).toBeGreaterThan(0)
})

test('late calls of a caller that has given up the connection are not run, nor those it sent after them', async () => {
  const { send, receive, timeouts, stream } = open()
  await send(0, 4_000)
  for (const agoMs of [600, 0]) {
    const calls = [{ id: 7, method: path, request, timeoutMs: 4_000, requestId: '' }]
    receive({ calls, sentMs: performance.now() + 3_600_000 - agoMs })
  }
  await new Promise((resolve) => setImmediate(resolve)) // the end is read a turn later
  stream.emit('cancelled')
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect(timeouts).toEqual([4_000])
})

test('late calls of a caller still there run a few turns later, with newer ones, and hold up no later calls', async () => {
  const { send, receive, timeouts } = open()
  await send(0, 4_000)
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  const come = (agoMs: number) => {
    const calls = [{ id: 7, method: path, request, timeoutMs: 4_000, requestId: '' }]
    receive({ calls, sentMs: performance.now() + 3_600_000 - agoMs })
  }
  come(600)
  const run: number[] = []
  for (let turns = 1; turns <= 30; turns += 1) {
    await turn()
    run.push(timeouts.length - 1)
    come(0) // one in each turn
  }
  expect(run.slice(0, 5)).toEqual([0, 0, 0, 0, 0])
  expect(run.slice(15)).toEqual(Array.from({ length: 15 }, (_, at) => at + 16))
})

test('calls of a message without a send time are never late, and a call without a timeout keeps none', async () => {
  const { send, timeouts } = open()
  await send(0, 4_000)
  await send(undefined, 4_000)
  await send(600_000, 0)
  expect(timeouts).toEqual([4_000, 4_000, undefined])
})

test('a clock that stopped with its machine makes calls late for seconds, not for the life of the stream', async () => {
  freezeTime()
  vi.advanceTimersByTime(60_000) // the process has run for a while
  const { send } = open()
  const STOPPED_MS = 60_000
  const of = async (agoMs: number) => (await send(agoMs, 4_000))?.case
  expect([await of(0), await of(STOPPED_MS), await of(STOPPED_MS)]).toEqual(['response', 'failure', 'failure'])
  vi.advanceTimersByTime(3_600_000)
  expect(await of(STOPPED_MS), 'after a pause it is compared with what came before').toBe('failure')
  vi.advanceTimersByTime(15_000)
  expect([await of(STOPPED_MS), await of(2 * STOPPED_MS)]).toEqual(['response', 'failure'])
})

test('a send time that is not a finite number makes no call late, and every call keeps its timeout', async () => {
  const { send, timeouts } = open()
  for (const agoMs of [0, Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, 0]) await send(agoMs, 4_000)
  for (const timeoutMs of timeouts) expect(timeoutMs).toBeGreaterThan(3_000)
  expect(timeouts).toHaveLength(5)
})

test('large answers are encoded only when there is room for them, and not for calls that have been given up by then', async () => {
  freezeTime()
  const { getSurvey } = SurveyService.method
  const [MB, CALLS] = [1024 * 1024, 100]
  const results: MultiplexedResult[] = []
  let encodedBytes = 0
  const taken: (() => void)[] = []
  const stream = Object.assign(new EventEmitter(), {
    writableNeedDrain: false,
    isPaused: () => false,
    pause: () => undefined,
    end: () => undefined,
    write(bytes: Buffer, whenTaken: () => void) {
      encodedBytes += bytes.length
      results.push(...fromBinary(MultiplexResponseSchema, bytes).results)
      taken.push(whenTaken)
    },
  })
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
  taken.splice(0, 2).forEach((whenTaken) => void whenTaken())
  expect(results.length).toBe(6)
  vi.advanceTimersByTime(1_001)
  while (taken.length > 0) taken.shift()?.()
  expect(results.map(({ id }) => id).sort((a, b) => a - b)).toEqual(calls.map(({ id }) => id))
  // One more was encoded than written: it did not fit into the message of the one before it.
  expect(results.filter(({ outcome }) => outcome.case === 'response')).toHaveLength(7)
  for (const { outcome } of results.slice(7)) expect(outcome.value).toMatchObject({ code: Code.DeadlineExceeded })
})

test('a message with too many calls is refused before they are decoded', () => {
  const emptyCalls = (count: number) => Buffer.from('0a00'.repeat(count), 'hex')
  expect(decodeCalls(emptyCalls(MAX_CALLS_OF_MESSAGE)).calls).toHaveLength(MAX_CALLS_OF_MESSAGE)
  const tooMany = emptyCalls(2_000_000)
  const startedAt = performance.now()
  expect(() => decodeCalls(tooMany)).toThrow('1000 calls at most')
  expect(performance.now() - startedAt, 'decoding them takes a second').toBeLessThan(300)
})
