// A call ends once, for its caller and for the observers, whatever its handler and the observers do.
import { getEventListeners } from 'node:events'
import { create, type MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import { expect, test } from 'vitest'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { CALLERS, type Caller } from '../../services/rpc/callers.js'
import { type Call, type CallRecord, Dispatcher, type DispatcherOptions } from '../../services/rpc/dispatcher.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'

const { countRequests } = LimitService.method
const REQUEST = { counts: [{ key: 'key', windowEndTime: timestampFromMs(1), requests: 1 }] }
const MAX_DEADLINE_MS = 10_000
type Response = MessageInitShape<typeof countRequests.output>

function open(handler: (call: Call) => unknown, options: Partial<DispatcherOptions> = {}) {
  const records: CallRecord[] = []
  const unexpected: unknown[] = []
  const dispatcher = new Dispatcher({
    mayCall: () => true,
    onCall: (record) => records.push(record),
    onUnexpected: (error) => unexpected.push(error),
    maxDeadlineMs: MAX_DEADLINE_MS,
    ...options,
  }).register(LimitService, { countRequests: (_, call) => handler(call) as Promise<Response> })
  const call = (signal?: AbortSignal, timeoutMs?: number) =>
    dispatcher
      .call(
        countRequests,
        create(countRequests.input, REQUEST),
        { caller: 'gateway', callerName: 'DNS:gw.test', requestId: 'r', traceparent: '', signal },
        timeoutMs,
      )
      .then(
        () => 'answered',
        (error: unknown) => (error instanceof ConnectError ? Code[error.code] : String(error)),
      )
  return { dispatcher, call, records, unexpected, codes: () => records.map(({ code }) => code && Code[code]) }
}

const never = () => new Promise(() => undefined)
const defect = () => {
  throw new Error('observer')
}

const unreadable = {
  get totals() {
    throw new Error('unreadable')
  },
}

test.each([
  { of: 'its answer', handler: async () => ({}), outcome: 'answered', unexpected: 0 },
  { of: 'a rejection', handler: () => Promise.reject(new Error('x')), outcome: 'Internal', unexpected: 1 },
  { of: 'what it throws', handler: defect, outcome: 'Internal', unexpected: 1 },
  { of: 'no promise', handler: () => ({}), outcome: 'Internal', unexpected: 1 },
  { of: 'an answer of which nothing can be made', handler: async () => unreadable, outcome: 'Internal', unexpected: 1 },
  { of: 'its deadline', handler: never, outcome: 'DeadlineExceeded', unexpected: 0 },
])('a call ends once, with $of', async ({ handler, outcome, unexpected: expected }) => {
  const { call, codes, unexpected } = open(handler)
  expect(await call(undefined, 40)).toBe(outcome)
  await new Promise((resolve) => setTimeout(resolve, 80)) // until the deadline has passed in any case
  expect(codes()).toEqual([outcome === 'answered' ? undefined : outcome])
  expect(unexpected).toHaveLength(expected)
})

test.each([
  ['its own time', 40, 40],
  ['the longest there is', 1_000_000, MAX_DEADLINE_MS],
])('a handler knows the deadline of its call, which is after %s', async (_, timeoutMs, ms) => {
  const known: number[] = []
  const { call } = open(async ({ deadlineMs }) => {
    known.push(deadlineMs)
    return {}
  })
  const before = performance.now()
  await call(undefined, timeoutMs)
  expect(known[0]).toBeGreaterThanOrEqual(before + ms)
  expect(known[0]).toBeLessThanOrEqual(performance.now() + ms)
})

test('a call ends once when its caller goes away, and a later answer is ignored', async () => {
  const aborter = new AbortController()
  let answer: (response: unknown) => void = () => undefined
  const { call, codes } = open(() => new Promise((resolve) => (answer = resolve)))
  const called = call(aborter.signal)
  aborter.abort()
  expect(await called).toBe('Canceled')
  answer({})
  await new Promise((resolve) => setTimeout(resolve, 5))
  expect(codes()).toEqual(['Canceled'])
})

test('an answered call no longer listens for its caller to go away', async () => {
  const { signal } = new AbortController()
  const { call } = open(async () => ({}))
  expect(await call(signal)).toBe('answered')
  expect(getEventListeners(signal, 'abort')).toEqual([])
})

test.each([
  { what: 'onCall', options: { onCall: defect }, handler: async () => ({}) },
  { what: 'onCall, of a failure', options: { onCall: defect }, handler: () => Promise.reject(new Error('x')) },
  { what: 'onCall, at the deadline', options: { onCall: defect }, handler: never },
  { what: 'onUnexpected', options: { onUnexpected: defect }, handler: () => Promise.reject(new Error('x')) },
  { what: 'startSpan', options: { startSpan: defect }, handler: async () => ({}) },
  {
    what: 'the end of a span',
    options: { startSpan: () => ({ traceparent: '', end: defect }) },
    handler: async () => ({}),
  },
])('a call fails with whatever $what throws', async ({ options, handler }) => {
  expect(await open(handler, options).call(undefined, 20)).toBe('Error: observer')
})

test('why a database is unavailable is told to operators and local callers only', async () => {
  const { dispatcher } = open(() => Promise.reject(new StoreUnavailable(new Error('the disk of token.db is full'))))
  const told = async (caller: Caller) => {
    const call = { caller, callerName: 'uid:1', requestId: 'r', traceparent: '', signal: undefined }
    const failed = dispatcher.call(countRequests, create(countRequests.input, REQUEST), call)
    return failed.catch((error: ConnectError) => error.rawMessage)
  }
  const texts = await Promise.all(CALLERS.map(async (caller) => [caller, await told(caller)]))
  const fixed = 'the database is unavailable'
  const full = `${fixed}: the disk of token.db is full`
  const others = Object.fromEntries(CALLERS.map((caller) => [caller, fixed]))
  expect(Object.fromEntries(texts)).toEqual({ ...others, operator: full, local: full })
})
