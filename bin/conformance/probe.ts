// How the kit calls a provider: plain gRPC, one connection, and of each test the last exchange for its report.
import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toBinary,
  toJsonString,
} from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import type { Address } from '../../services/rpc/address.js'
import { type ConnectionOptions, connect, credentials } from '../../services/rpc/connection.js'
import { pathOf } from '../../services/rpc/dispatcher.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { callOnce } from '../../services/rpc/single-call.js'
import { MAX_RESPONSE_BYTES, PROVIDER_DEADLINE_MS } from '../../services/survey/provider/provider-client.js'
import { check } from './check.js'

/** Longest wait for an answer, so that a silent provider ends the test it fails. */
const CALL_TIMEOUT_MS = 5_000
const MAX_SHOWN = 400

/** One call and what came of it. */
export interface Exchange<M extends DescMethod = DescMethod> {
  readonly method: M
  readonly request: MessageShape<M['input']>
  /** undefined when the call failed. */
  readonly response: MessageShape<M['output']> | undefined
  /** Of the failure. */
  readonly code: Code | undefined
  readonly message: string
  readonly ms: number
}

export class Connection {
  readonly #client: grpc.Client

  constructor(address: Address, tls: TlsMaterial | undefined) {
    const options: ConnectionOptions = { address, tls, maxResponseBytes: MAX_RESPONSE_BYTES, isPinged: false }
    this.#client = connect(options, credentials(options))
  }

  /** @param signal aborted when nobody waits any longer */
  async call<M extends DescMethod>(
    method: M,
    request: MessageShape<M['input']>,
    signal?: AbortSignal,
  ): Promise<Exchange<M>> {
    const sentAt = performance.now()
    const outcome = await callOnce(this.#client, {
      path: pathOf(method),
      request: Buffer.from(toBinary<DescMessage>(method.input, request)),
      metadata: new grpc.Metadata(),
      deadlineMs: sentAt + CALL_TIMEOUT_MS,
      signal,
    }).then((bytes) => decoded(method, bytes), failed)
    return { method, request, ...outcome, ms: performance.now() - sentAt }
  }

  close(): void {
    this.#client.close()
  }
}

type Outcome<M extends DescMethod> = Pick<Exchange<M>, 'response' | 'code' | 'message'>

function decoded<M extends DescMethod>({ output }: M, bytes: Buffer): Outcome<M> {
  try {
    const response = fromBinary<DescMessage>(output, bytes) as MessageShape<M['output']>
    return { response, code: undefined, message: '' }
  } catch {
    return { response: undefined, code: Code.Internal, message: `what came is no ${output.typeName}` }
  }
}

function failed({ code, details }: grpc.ServiceError): Outcome<never> {
  return { response: undefined, code: code as number as Code, message: details }
}

/** What one run of a test calls with. */
export class Probe {
  /** What the report shows if the test fails. */
  last: Exchange | undefined
  readonly #connection: Connection
  readonly #onCall: (ms: number) => void

  constructor(connection: Connection, onCall: (ms: number) => void) {
    this.#connection = connection
    this.#onCall = onCall
  }

  async call<M extends DescMethod>(method: M, request: MessageInitShape<M['input']>): Promise<Exchange<M>> {
    const exchange = await this.#connection.call(method, messageOf(method, request))
    this.last = exchange
    this.#onCall(exchange.ms)
    return exchange
  }

  /** The answer to a call. @throws Wrong when it fails */
  async answer<M extends DescMethod>(
    method: M,
    request: MessageInitShape<M['input']>,
  ): Promise<MessageShape<M['output']>> {
    const { response, code } = await this.call(method, request)
    check(response !== undefined, `${method.name} fails with ${codeName(code)}`)
    return response
  }

  /** The message with which a call fails. @throws Wrong when it does not, or with another code */
  async refusal<M extends DescMethod>(
    method: M,
    request: MessageInitShape<M['input']>,
    expected: Code,
  ): Promise<string> {
    const { code, message } = await this.call(method, request)
    check(code === expected, `${method.name} is ${codeName(code)}, not ${codeName(expected)}`)
    return message
  }

  /** Sends it, and walks away after a time. */
  async cancel<M extends DescMethod>(method: M, request: MessageInitShape<M['input']>, afterMs: number): Promise<void> {
    await this.#connection.call(method, messageOf(method, request), AbortSignal.timeout(afterMs))
  }
}

function messageOf<M extends DescMethod>(
  { input }: M,
  request: MessageInitShape<M['input']>,
): MessageShape<M['input']> {
  return create<DescMessage>(input, request) as MessageShape<M['input']>
}

/** @throws Wrong */
export function checkQuick({ method, ms }: Exchange): void {
  check(ms <= PROVIDER_DEADLINE_MS, `${method.name} took ${Math.round(ms)} ms, more than ${PROVIDER_DEADLINE_MS}`)
}

/** As gRPC writes it; OK for a call that did not fail. */
export function codeName(code: Code | undefined): string {
  return grpc.status[code ?? 0] ?? String(code)
}

export function sentInWords({ method, request }: Exchange): string {
  return `${method.name} ${shown(method.input, request)}`
}

export function gotInWords({ method, response, code, message }: Exchange): string {
  return response ? `OK ${shown(method.output, response)}` : `${codeName(code)} ${JSON.stringify(message)}`
}

function shown(schema: DescMessage, message: Message): string {
  const text = jsonOf(schema, message)
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text
}

/** A time or number that JSON has no form for cannot be shown so. */
function jsonOf(schema: DescMessage, message: Message): string {
  try {
    return toJsonString(schema, message, { useProtoFieldName: true })
  } catch (error) {
    return error instanceof Error ? error.message : 'a message that has no JSON'
  }
}
