// Calls to the SurveyProvider of a platform: single ones, since a server of others knows nothing of our streams. It owns deadline,
// retry and breaker; what an answer must be is for its callers.
import { create, type DescMethod, fromBinary, type MessageShape, toBinary } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import {
  type GetProviderInfoResponse,
  GetProviderInfoResponseSchema,
  SurveyProvider,
} from '../../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type ConnectionOptions, causeOf, connect, credentials } from '../../rpc/connection.js'
import { type Call, pathOf } from '../../rpc/dispatcher.js'
import { REQUEST_ID_HEADER } from '../../rpc/requests.js'
import { callOnce, type SingleCall } from '../../rpc/single-call.js'
import { compileRules, violationInWords } from '../../rpc/validation.js'
import { Breaker } from './breaker.js'
import { ProviderFailure } from './provider-failure.js'

/** Of a call with its retry, in ms: clients of the dialect give up after 2 s. */
export const PROVIDER_DEADLINE_MS = 1_500
const INFO_DEADLINE_MS = 1_000
/** Largest answer, which is also what most gRPC libraries take unless told otherwise. */
export const MAX_RESPONSE_BYTES = 4 * 1024 * 1024
/** Of what a provider says, for operators. */
const MAX_DETAIL = 200

/** How one call ended; never what was asked or answered. */
export interface ProviderCall {
  /** For example `GetSurvey`. */
  readonly method: string
  /** undefined for a good answer. */
  readonly failure: ProviderFailure | undefined
  readonly requestId: string
}

export interface ProviderClientOptions extends Pick<ConnectionOptions, 'address' | 'tls' | 'checkNames'> {
  /** Called when a call has ended. */
  readonly onCall: (call: ProviderCall) => void
}

/** What a call needs to know of the one because of which it is made. */
export type BecauseOf = Pick<Call, 'requestId' | 'traceparent' | 'signal' | 'deadlineMs'>

const validateInfo = compileRules(GetProviderInfoResponseSchema)

export class ProviderClient {
  readonly #options: ProviderClientOptions
  readonly #breaker = new Breaker()
  #credentials: grpc.ChannelCredentials
  #client: grpc.Client

  constructor(options: ProviderClientOptions) {
    this.#options = options
    this.#credentials = credentials(options)
    this.#client = this.#connected()
  }

  get isBreakerOpen(): boolean {
    return this.#breaker.isOpen
  }

  /**
   * What `read` makes of the answer to one call, retried once if the provider is unavailable.
   * @throws ProviderFailure, which `read` throws too for an answer that is not good
   */
  async ask<M extends DescMethod, Result>(
    method: M,
    request: MessageShape<M['input']>,
    { requestId, traceparent, signal, deadlineMs }: BecauseOf,
    read: (answer: MessageShape<M['output']>) => Result,
  ): Promise<Result> {
    const metadata = new grpc.Metadata()
    metadata.set(REQUEST_ID_HEADER, requestId)
    if (traceparent !== '') metadata.set('traceparent', traceparent)
    try {
      const bytes = await this.#throughBreaker({
        path: pathOf(method),
        request: encoded(method, request),
        metadata,
        signal,
        deadlineMs: Math.min(deadlineMs, performance.now() + PROVIDER_DEADLINE_MS),
      })
      const result = read(decoded(method, bytes))
      this.#options.onCall({ method: method.name, failure: undefined, requestId })
      return result
    } catch (error) {
      if (error instanceof ProviderFailure) this.#options.onCall({ method: method.name, failure: error, requestId })
      throw error
    }
  }

  /** What the provider says of itself, asked in any case: once, and whatever the breaker does. @throws ProviderFailure */
  async info(): Promise<GetProviderInfoResponse> {
    const method = SurveyProvider.method.getProviderInfo
    const request = encoded(method, create(method.input))
    const deadlineMs = performance.now() + INFO_DEADLINE_MS
    const bytes = await this.#call({ path: pathOf(method), request, metadata: new grpc.Metadata(), deadlineMs })
    const info = decoded(method, bytes)
    const violation = validateInfo(info)
    if (violation) throw new ProviderFailure('malformed', violationInWords(violation))
    return info
  }

  /** Makes new calls over a new connection, with these certificates. */
  reconnect(tls = this.#options.tls): void {
    this.#credentials = credentials({ ...this.#options, tls })
    this.#connectAnew()
  }

  #connectAnew(): void {
    this.#client.close()
    this.#client = this.#connected()
  }

  close(): void {
    this.#client.close()
  }

  #connected(): grpc.Client {
    const options = { ...this.#options, isPinged: false, maxResponseBytes: MAX_RESPONSE_BYTES } as const
    return connect(options, this.#credentials)
  }

  async #throughBreaker(call: SingleCall): Promise<Buffer> {
    if (!this.#breaker.letsThrough()) {
      throw new ProviderFailure('not_asked', 'it has not answered lately, and is asked now and then')
    }
    const client = this.#client
    try {
      const bytes = await this.#callAndRetry(call)
      this.#breaker.answered()
      return bytes
    } catch (error) {
      if (call.signal?.aborted || !(error instanceof ProviderFailure)) throw error
      if (isNoAnswer(error)) this.#breaker.failed()
      else this.#breaker.answered()
      if (this.#breaker.isOpen && client === this.#client) this.#connectAnew() // the connection may be what is broken
      throw error
    }
  }

  /** The second call waits for a connection, so that a restart of the provider goes unnoticed. */
  async #callAndRetry(call: SingleCall): Promise<Buffer> {
    try {
      return await this.#call(call)
    } catch (first) {
      if (!(first instanceof ProviderFailure) || first.outcome !== Code.Unavailable) throw first
      return await this.#call({ ...call, waitsForConnection: true }).catch((second: ProviderFailure) => {
        throw second.outcome === Code.DeadlineExceeded ? first : second // which says more
      })
    }
  }

  #call(call: SingleCall): Promise<Buffer> {
    return callOnce(this.#client, call).catch(({ code, details, message }: Partial<grpc.ServiceError>) => {
      const known = (code ?? Code.Unavailable) as number as Code // without one: the client is closed
      throw new ProviderFailure(known, inOneLine(causeOf(details ?? message ?? '')))
    })
  }
}

/** Whether the provider, as far as one can see, did not answer: what it does not like it answers too. */
function isNoAnswer({ outcome }: ProviderFailure): boolean {
  return outcome === Code.Unavailable || outcome === Code.DeadlineExceeded
}

function encoded<M extends DescMethod>(method: M, request: MessageShape<M['input']>): Buffer {
  return Buffer.from(toBinary(method.input, request))
}

function decoded<M extends DescMethod>({ output }: M, bytes: Buffer): MessageShape<M['output']> {
  try {
    return fromBinary(output, bytes, { readUnknownFields: false }) as MessageShape<M['output']>
  } catch {
    throw new ProviderFailure('malformed', `it is no ${output.typeName}`)
  }
}

function inOneLine(text: string): string {
  return text.replace(/\s+/g, ' ').slice(0, MAX_DETAIL)
}
