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
  readonly stream: Pick<grpc.ServerDuplexStream<Buffer, Buffer>, 'write' | 'writableNeedDrain'>
  /** Called when outcomes have been written, all or as many as there was room for. */
  readonly onWritten: () => void
}

/** A message is complete with as many results, or with as many bytes of them. */
const [MESSAGE_RESULTS, MESSAGE_BYTES] = [128, 256 * 1024]

const TYPE_URL = 'type.googleapis.com/'

/** The outcomes of a stream's calls, on their way to the caller: encoded only when there is room for them. */
export class Outcomes {
  readonly #options: OutcomesOptions
  #waiting: Ended[] = []
  isLost = false

  constructor(options: OutcomesOptions) {
    this.#options = options
  }

  get areWritten(): boolean {
    return !this.isLost && this.#waiting.length === 0
  }

  /** Those of one turn of the event loop are written together. */
  add(ended: Ended): void {
    if (!this.isLost && this.#waiting.push(ended) === 1) setImmediate(() => this.write())
  }

  /** From now on nothing is written. */
  lose(): void {
    this.isLost = true
    this.#waiting = []
  }

  /** Writes as many as there is room for; to be called again when the caller has read. */
  write(): void {
    const { stream, onWritten } = this.#options
    while (this.#waiting.length > 0 && !stream.writableNeedDrain) stream.write(this.#nextMessage())
    onWritten()
  }

  #nextMessage(): Buffer {
    const results: MultiplexedResult[] = []
    let size = 0
    for (const ended of this.#waiting) {
      const outcome = 'failure' in ended ? failed(ended.failure) : responded(this.#options, ended)
      results.push({ $typeName: 'surveyauth.internal.v1.MultiplexedResult', id: ended.call.id, outcome })
      if (outcome.case === 'response') size += outcome.value.length
      if (results.length === MESSAGE_RESULTS || size >= MESSAGE_BYTES) break
    }
    this.#waiting.splice(0, results.length)
    const bytes = toBinary(MultiplexResponseSchema, create(MultiplexResponseSchema, { results }))
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
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
