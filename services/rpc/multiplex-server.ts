// The server's end of MultiplexService: runs the calls of a stream.
import { create, type DescMethod, fromBinary, toBinary } from '@bufbuild/protobuf'
import { BinaryReader } from '@bufbuild/protobuf/wire'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import type * as grpc from '@grpc/grpc-js'
import {
  type MultiplexedCall,
  type MultiplexRequest,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import type { Dispatcher } from './dispatcher.js'
import type { Peer } from './identity.js'
import { type Ended, Outcomes } from './multiplex-outcomes.js'
import { decodeRequest, requestIdFrom } from './requests.js'

export interface MultiplexServerOptions {
  readonly dispatcher: Dispatcher
  /** By gRPC path. */
  readonly methods: ReadonlyMap<string, DescMethod>
  /** Carries MultiplexRequests and MultiplexResponses as bytes. */
  readonly stream: grpc.ServerDuplexStream<Buffer, Buffer>
  readonly caller: Peer
}

/** Calls one stream may have in flight. It is paused while it has as many, and while answers wait for the caller to read. */
const MAX_UNDER_WAY = 10_000
/** Calls one message may carry: they all begin at once and keep everybody else waiting, and an empty one takes two bytes. */
export const MAX_CALLS_OF_MESSAGE = 1_000
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

/** Serves the stream until the caller ends its side and all its calls are answered. */
export function serveMultiplex(options: MultiplexServerOptions): { drain(): void } {
  const { stream } = options
  const served = new ServedStream(options)
  stream.on('data', (bytes: Buffer) => {
    try {
      served.receive(bytes)
    } catch (error) {
      stream.emit('error', error) // ends it, with the error's status
    }
  })
  stream.on('drain', () => served.callerHasRead())
  stream.on('end', () => served.callerHasEnded())
  stream.on('cancelled', () => served.leave())
  stream.on('error', () => served.leave())
  return { drain: () => served.drain() }
}

/** The calls of one stream, from their arrival until their outcomes are written. */
class ServedStream {
  readonly #options: MultiplexServerOptions
  readonly #outcomes: Outcomes
  /** Of the calls under way that may change something, by id. */
  readonly #aborters = new Map<number, AbortController>()
  #underWay = 0
  #hasCallerEnded = false

  constructor(options: MultiplexServerOptions) {
    this.#options = options
    this.#outcomes = new Outcomes({ ...options, onWritten: () => this.#goOn() })
  }

  /** @throws like decodeCalls */
  receive(bytes: Uint8Array): void {
    if (this.#outcomes.isLost) return
    const { calls, givenUp } = decodeCalls(bytes)
    this.#underWay += calls.length
    for (const { id, method } of calls) {
      if (mayChange(this.#options.methods.get(method))) this.#aborters.set(id, new AbortController())
    }
    for (const id of givenUp) this.#aborters.get(id)?.abort()
    if (this.#isFull()) this.#options.stream.pause()
    for (const call of calls) void this.#run(call)
  }

  callerHasRead(): void {
    this.#outcomes.write()
  }

  callerHasEnded(): void {
    this.#hasCallerEnded = true
    this.#endWhenDone()
  }

  /** Called when the stream is broken: nobody waits for its calls any longer. */
  leave(): void {
    this.#outcomes.lose()
    for (const aborter of this.#aborters.values()) aborter.abort()
  }

  /** Asks the caller to send its next calls elsewhere. */
  drain(): void {
    if (!this.#outcomes.isLost && !this.#hasCallerEnded) this.#options.stream.write(DRAINING)
  }

  async #run(call: MultiplexedCall): Promise<void> {
    const ended = await endOf(this.#options, call, this.#aborters.get(call.id)?.signal)
    this.#aborters.delete(call.id)
    this.#underWay -= 1
    this.#outcomes.add(ended)
  }

  /** Reads on when calls have ended and the caller has read, if reading was stopped for that. */
  #goOn(): void {
    const { stream } = this.#options
    if (stream.isPaused() && !this.#isFull()) stream.resume()
    this.#endWhenDone()
  }

  /** Whether calls have to finish, or the caller has to read, before it may ask for more. */
  #isFull(): boolean {
    return this.#underWay >= MAX_UNDER_WAY || this.#options.stream.writableNeedDrain
  }

  #endWhenDone(): void {
    if (this.#hasCallerEnded && this.#underWay === 0 && this.#outcomes.areWritten) this.#options.stream.end()
  }
}

function mayChange(method: DescMethod | undefined): boolean {
  return method?.idempotency === MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN
}

async function endOf(
  options: MultiplexServerOptions,
  call: MultiplexedCall,
  signal: AbortSignal | undefined,
): Promise<Ended> {
  const { dispatcher, caller } = options
  const method = options.methods.get(call.method)
  try {
    if (!method) throw new ConnectError(`${call.method} is not served here`, Code.Unimplemented)
    const { traceparent } = call
    const incoming = { requestId: requestIdFrom(call.requestId), traceparent, signal, ...caller } // the other way round: 5 µs
    const request = decodeRequest(method, call.request)
    return { call, method, response: await dispatcher.call(method, request, incoming, call.timeoutMs || undefined) }
  } catch (error) {
    return { call, failure: error instanceof ConnectError ? error : dispatcher.unexpected(error, method, call) }
  }
}
