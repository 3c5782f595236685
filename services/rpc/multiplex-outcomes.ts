// What a stream of MultiplexService sends back: the outcomes of its calls, those of one moment together.
import { create, type DescMethod, type Message, toBinary } from '@bufbuild/protobuf'
import type { ConnectError } from '@connectrpc/connect'
import type * as grpc from '@grpc/grpc-js'
import {
  type MultiplexedCall,
  MultiplexedFailureSchema,
  type MultiplexedResult,
  MultiplexResponseSchema,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { inBatches } from './batches.js'
import type { Dispatcher } from './dispatcher.js'

/** A call that has ended, with its failure or a response that is not encoded yet. */
export type Ended = { readonly call: MultiplexedCall } & (
  | { readonly failure: ConnectError }
  | { readonly method: DescMethod; readonly response: Message }
)

interface OutcomesOptions {
  /** Is told of answers that are no messages of their type. */
  readonly dispatcher: Dispatcher
  /** Takes MultiplexResponses as bytes. */
  readonly stream: Pick<grpc.ServerDuplexStream<Buffer, Buffer>, 'write'>
  /** Called when outcomes have been written, all or as many as there was room for. */
  readonly onWritten: () => void
}

/** A response message carries results of up to this many bytes, or a single larger one. */
const BATCH_BYTES = 256 * 1024
/**
 * Bytes of encoded responses that the transport has not taken yet. Other results wait, and are encoded when there is room.
 */
const MAX_UNSENT_BYTES = 4 * 1024 * 1024

const TYPE_URL = 'type.googleapis.com/'

/** The outcomes of a stream's calls, on their way to the caller: encoded only when there is room for them. */
export class Outcomes {
  readonly #options: OutcomesOptions
  #waiting: Ended[] = []
  /** Messages of the calls that ended before those; undefined when all are written. */
  #sending: Iterator<Buffer> | undefined
  #unsentBytes = 0
  isLost = false

  constructor(options: OutcomesOptions) {
    this.#options = options
  }

  get isFull(): boolean {
    return this.#unsentBytes >= MAX_UNSENT_BYTES
  }

  get areWritten(): boolean {
    return !this.isLost && this.#waiting.length === 0 && !this.#sending
  }

  /** Those of one turn of the event loop are written together. */
  add(ended: Ended): void {
    if (!this.isLost && this.#waiting.push(ended) === 1 && !this.#sending) setImmediate(() => this.#write())
  }

  /** From now on nothing is written. */
  lose(): void {
    this.isLost = true
    this.#waiting = []
    this.#sending = undefined
  }

  #write(): void {
    this.#sending ??= this.#messages()
    while (this.#sending && !this.isLost && !this.isFull) {
      const { value, done } = this.#sending.next()
      if (!done) this.#send(value)
      else this.#sending = this.#waiting.length > 0 ? this.#messages() : undefined
    }
    this.#options.onWritten()
  }

  #send(message: Buffer): void {
    this.#unsentBytes += message.length
    this.#options.stream.write(message, () => {
      const wasFull = this.isFull
      this.#unsentBytes -= message.length
      if (wasFull && !this.isFull) this.#write()
    })
  }

  *#messages(): Generator<Buffer> {
    const results = encoded(this.#options, this.#waiting.splice(0))
    const sizeOf = ({ outcome: { value } }: MultiplexedResult) => (value instanceof Uint8Array ? value.length : 0)
    for (const batch of inBatches(results, { maxBytes: BATCH_BYTES, sizeOf })) {
      const bytes = toBinary(MultiplexResponseSchema, create(MultiplexResponseSchema, { results: batch }))
      yield Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    }
  }
}

/** Encodes each response only when it is about to be written. */
function* encoded(options: OutcomesOptions, ended: readonly Ended[]): Generator<MultiplexedResult> {
  for (const one of ended) {
    const outcome = 'failure' in one ? failed(one.failure) : responded(options, one)
    yield { $typeName: 'surveyauth.internal.v1.MultiplexedResult', id: one.call.id, outcome }
  }
}

type Outcome = MultiplexedResult['outcome']

function responded(options: OutcomesOptions, ended: Exclude<Ended, { failure: ConnectError }>): Outcome {
  const { call, method, response } = ended
  try {
    return { case: 'response', value: toBinary(method.output, response) }
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
