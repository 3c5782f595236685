// The server's end of MultiplexService: runs the calls of a stream and sends the outcomes of one moment together.
import { create, type DescMethod, fromBinary, type Message, toBinary } from '@bufbuild/protobuf'
import { BinaryReader } from '@bufbuild/protobuf/wire'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import type * as grpc from '@grpc/grpc-js'
import {
  type MultiplexedCall,
  MultiplexedFailureSchema,
  type MultiplexedResult,
  type MultiplexRequest,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { inBatches } from './batches.js'
import type { Caller } from './callers.js'
import type { Dispatcher } from './dispatcher.js'
import { encode } from './large-messages.js'
import { decodeRequest, type RpcLimits, requestIdFrom } from './requests.js'

/** A call that has ended, with its failure or a response that is not encoded yet. */
type Ended = { readonly call: MultiplexedCall } & (
  | { readonly failure: ConnectError }
  | {
      readonly method: DescMethod
      readonly response: Message
      /** When the caller gives the call up, by performance.now(). */
      readonly dueAtMs: number
    }
)

export interface MultiplexServerOptions {
  readonly dispatcher: Dispatcher
  readonly limits: RpcLimits
  /** By gRPC path. */
  readonly methods: ReadonlyMap<string, DescMethod>
  /** Carries MultiplexRequests and MultiplexResponses as bytes. */
  readonly stream: grpc.ServerDuplexStream<Buffer, Buffer>
  readonly caller: Caller
}

/** Calls one stream may have in flight. It is paused while it has as many, and while answers wait for the caller to read. */
const MAX_UNDER_WAY = 10_000
/** Calls one message may carry: they all begin at once and keep everybody else waiting, and an empty one takes two bytes. */
export const MAX_CALLS_OF_MESSAGE = 1_000
/**
 * A message that is later than this may be from a caller that has given the connection up, after an unanswered keepalive, and
 * has reported its calls as failed. Its calls run when the end of the connection would have been read, if there is none.
 */
const LATE_MS = 250
/** Turns of the event loop within which whatever lies behind a message is read. */
const TURNS_TO_READ = 10
/** Lateness is relative to the quickest message of this period and the one before. */
const QUICKEST_OF_MS = 10_000
/** A response message carries results of up to this many bytes, or a single larger one. */
const BATCH_BYTES = 256 * 1024
/**
 * Bytes of encoded responses that the transport has not taken yet. Other results wait as messages, which share what is large,
 * and are encoded when there is room, unless their callers have given up by then.
 */
const MAX_UNSENT_BYTES = 4 * 1024 * 1024

const TYPE_URL = 'type.googleapis.com/'
const DRAINING = Buffer.from(toBinary(MultiplexResponseSchema, create(MultiplexResponseSchema, { draining: true })))

/**
 * Decodes a message of the stream.
 * @throws Error with a status, which ends the stream, when it is malformed or carries too many calls
 */
export function decodeCalls(bytes: Uint8Array): MultiplexRequest {
  try {
    if (!hasTooManyCalls(bytes)) return fromBinary(MultiplexRequestSchema, bytes)
  } catch {
    throw refusal(`the message is not a ${MultiplexRequestSchema.typeName}`)
  }
  throw refusal(`a message carries ${MAX_CALLS_OF_MESSAGE} calls at most`)
}

/** Counted before any is decoded. */
function hasTooManyCalls(bytes: Uint8Array): boolean {
  const { calls } = MultiplexRequestSchema.field
  const reader = new BinaryReader(bytes)
  let count = 0
  while (reader.pos < reader.len && count <= MAX_CALLS_OF_MESSAGE) {
    const [field, wireType] = reader.tag()
    reader.skip(wireType, field)
    if (field === calls.number) count += 1
  }
  return count > MAX_CALLS_OF_MESSAGE
}

function refusal(message: string): Error {
  return Object.assign(new Error(message), { code: Code.InvalidArgument })
}

/** How late the messages of a stream are. */
class Lateness {
  // Transit times of the quickest messages, including the offset between the two clocks.
  #shortestMs = Number.POSITIVE_INFINITY
  #shortestBeforeMs = Number.POSITIVE_INFINITY
  #measuredSinceMs = 0

  /**
   * How much longer this message was in transit than the quickest recent one, in ms. Not than the quickest of the whole stream:
   * a caller's clock that stops with its machine for seconds, or runs a little slow, would make all later ones late forever.
   */
  of({ sentMs }: MultiplexRequest): number {
    if (sentMs === 0 || !Number.isFinite(sentMs)) return 0
    const now = performance.now()
    const wayMs = now - sentMs
    if (now - this.#measuredSinceMs > QUICKEST_OF_MS) {
      this.#measuredSinceMs = now
      this.#shortestBeforeMs = this.#shortestMs
      this.#shortestMs = wayMs
    }
    this.#shortestMs = Math.min(this.#shortestMs, wayMs)
    return wayMs - Math.min(this.#shortestMs, this.#shortestBeforeMs)
  }
}

/** Serves the stream until the caller ends its side and all its calls are answered. */
export function serveMultiplex(options: MultiplexServerOptions): { drain(): void } {
  const { stream } = options
  let ended: Ended[] = []
  /** Messages of the calls that ended before those; undefined when all are written. */
  let sending: Iterator<Buffer> | undefined
  let unsentBytes = 0
  let underWay = 0
  let hasEnded = false
  let isGone = false
  const lateness = new Lateness()
  /** Of the calls under way that may change something, by id. */
  const aborters = new Map<number, AbortController>()
  /** Messages, with their lateness, that wait for what lies behind the first of them to be read; undefined if none was late. */
  let held: { readonly request: MultiplexRequest; readonly lateMs: number; readonly cameAtMs: number }[] | undefined

  function flush(): void {
    sending ??= messagesOf(ended.splice(0))
    while (sending && !isGone && unsentBytes < MAX_UNSENT_BYTES) {
      const { value, done } = sending.next()
      if (!done) write(value)
      else sending = ended.length > 0 ? messagesOf(ended.splice(0)) : undefined
    }
    resumeWhenRoom()
    endWhenDone()
  }

  function* messagesOf(ended: readonly Ended[]): Generator<Buffer> {
    const sizeOf = ({ outcome: { value } }: MultiplexedResult) => (value instanceof Uint8Array ? value.length : 0)
    for (const results of inBatches(encoded(options, ended), { maxBytes: BATCH_BYTES, sizeOf })) {
      const bytes = toBinary(MultiplexResponseSchema, create(MultiplexResponseSchema, { results }))
      yield Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    }
  }

  function write(message: Buffer): void {
    unsentBytes += message.length
    stream.write(message, () => {
      const wasFull = unsentBytes >= MAX_UNSENT_BYTES
      unsentBytes -= message.length
      if (wasFull && unsentBytes < MAX_UNSENT_BYTES) flush()
    })
  }

  /** Whether calls have to finish, or the caller has to read, before it may ask for more. */
  function isFull(): boolean {
    return underWay >= MAX_UNDER_WAY || unsentBytes >= MAX_UNSENT_BYTES || stream.writableNeedDrain
  }

  function resumeWhenRoom(): void {
    if (stream.isPaused() && !isFull()) stream.resume()
  }

  function endWhenDone(): void {
    if (hasEnded && !isGone && underWay === 0 && ended.length === 0 && !sending) stream.end()
  }

  async function run(call: MultiplexedCall, lateMs: number): Promise<void> {
    const one = await endOf(options, call, lateMs, aborters.get(call.id)?.signal)
    aborters.delete(call.id)
    underWay -= 1
    if (ended.push(one) === 1 && !sending) setImmediate(flush)
  }

  function receive(request: MultiplexRequest): void {
    underWay += request.calls.length
    for (const { id, method } of request.calls) {
      if (mayChange(options.methods.get(method))) aborters.set(id, new AbortController())
    }
    for (const id of request.givenUp) aborters.get(id)?.abort()
    if (isFull()) stream.pause()
    const lateMs = lateness.of(request)
    if (lateMs >= LATE_MS && !held) {
      held = []
      afterTurns(TURNS_TO_READ, release)
    }
    if (held) held.push({ request, lateMs, cameAtMs: performance.now() })
    else for (const call of request.calls) void run(call, lateMs)
  }

  function release(): void {
    const released = isGone ? [] : (held ?? [])
    held = undefined
    for (const { request, lateMs, cameAtMs } of released) {
      for (const call of request.calls) void run(call, lateMs + performance.now() - cameAtMs)
    }
  }

  stream.on('data', (bytes: Buffer) => {
    if (isGone) return
    try {
      receive(decodeCalls(bytes))
    } catch (error) {
      stream.emit('error', error) // ends it, with the error's status
    }
  })
  stream.on('drain', resumeWhenRoom)
  stream.on('end', () => {
    hasEnded = true
    endWhenDone()
  })
  const leave = () => {
    isGone = true
    for (const aborter of aborters.values()) aborter.abort()
    ended = []
    sending = undefined
  }
  stream.on('cancelled', leave)
  stream.on('error', leave)

  return {
    drain() {
      if (!isGone && !hasEnded) stream.write(DRAINING)
    },
  }
}

function afterTurns(turns: number, then: () => void): void {
  setImmediate(() => (turns > 1 ? afterTurns(turns - 1, then) : then()))
}

function mayChange(method: DescMethod | undefined): boolean {
  return method?.idempotency === MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN
}

async function endOf(
  options: MultiplexServerOptions,
  call: MultiplexedCall,
  lateMs: number,
  signal: AbortSignal | undefined,
): Promise<Ended> {
  const timeoutMs = call.timeoutMs === 0 ? undefined : call.timeoutMs - lateMs
  const dueAtMs = performance.now() + (timeoutMs ?? Number.POSITIVE_INFINITY)
  const method = options.methods.get(call.method)
  try {
    if (timeoutMs !== undefined && timeoutMs <= 0) {
      throw new ConnectError('deadline exceeded before the call arrived', Code.DeadlineExceeded)
    }
    if (!method) throw new ConnectError(`${call.method} is not served here`, Code.Unimplemented)
    const response = await options.dispatcher.call(
      method,
      decodeRequest(method, call.request, options.limits),
      {
        caller: options.caller,
        requestId: requestIdFrom(call.requestId),
        traceparent: call.traceparent,
        signal,
      },
      timeoutMs,
    )
    return { call, method, response, dueAtMs }
  } catch (error) {
    return { call, failure: error instanceof ConnectError ? error : options.dispatcher.unexpected(error, method, call) }
  }
}

/** Encodes each response when its turn comes, and one that several calls share only once. */
function* encoded(options: MultiplexServerOptions, ended: readonly Ended[]): Generator<MultiplexedResult> {
  for (const one of ended) {
    const outcome = 'failure' in one ? failed(one.failure) : responded(options, one)
    yield { $typeName: 'surveyauth.internal.v1.MultiplexedResult', id: one.call.id, outcome }
  }
}

type Outcome = MultiplexedResult['outcome']

function responded(options: MultiplexServerOptions, ended: Exclude<Ended, { failure: ConnectError }>): Outcome {
  const { call, method, response, dueAtMs } = ended
  if (performance.now() > dueAtMs) return failed(new ConnectError('deadline exceeded', Code.DeadlineExceeded))
  try {
    return { case: 'response', value: encode(method.output, response) }
  } catch (error) {
    return failed(options.dispatcher.unexpected(error, method, call)) // the handler's answer is no message of its type
  }
}

function failed({ code, rawMessage, details }: ConnectError): Outcome {
  const value = create(MultiplexedFailureSchema, { code, message: rawMessage, details: details.map(packed) })
  return { case: 'failure', value }
}

type Detail = ConnectError['details'][number]

/** A detail of a status as gRPC packs it. */
function packed(detail: Detail): { typeUrl: string; value: Uint8Array } {
  if ('type' in detail) return { typeUrl: TYPE_URL + detail.type, value: detail.value }
  return { typeUrl: TYPE_URL + detail.desc.typeName, value: toBinary(detail.desc, create(detail.desc, detail.value)) }
}
