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
import type { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import type { Address } from '../../services/rpc/address.js'
import { type ConnectionOptions, connect, credentials } from '../../services/rpc/connection.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { check } from './check.js'

/** Longest wait for an answer, so that a silent provider ends the test it fails. */
const CALL_TIMEOUT_MS = 5_000
/** Largest answer that survey-auth takes. */
const MAX_RESPONSE_BYTES = 4 * 1024 * 1024
/** survey-auth waits no longer: the apps in front of it give up at 2 s. */
const MAX_ANSWER_MS = 1_500
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

  constructor(address: Address, tls: (() => TlsMaterial) | undefined) {
    const options: ConnectionOptions = { address, tls, maxResponseBytes: MAX_RESPONSE_BYTES, isPinged: false }
    this.#client = connect(options, credentials(options))
  }

  call<M extends DescMethod>(method: M, request: MessageShape<M['input']>): Promise<Exchange<M>> {
    const sentAt = performance.now()
    return new Promise((resolve) => {
      this.#send(method, request, (error, response) => {
        const { code, details: message = '' } = error ?? {}
        resolve({ method, request, response, code: code as Code | undefined, message, ms: performance.now() - sentAt })
      })
    })
  }

  /** Sends it and walks away. */
  async cancel<M extends DescMethod>(method: M, request: MessageShape<M['input']>, afterMs: number): Promise<void> {
    const call = this.#send(method, request, () => undefined)
    await new Promise((resolve) => setTimeout(resolve, afterMs))
    call.cancel()
  }

  close(): void {
    this.#client.close()
  }

  #send<M extends DescMethod>(
    method: M,
    request: MessageShape<M['input']>,
    onEnd: (error: grpc.ServiceError | null, response?: MessageShape<M['output']>) => void,
  ): grpc.ClientUnaryCall {
    return this.#client.makeUnaryRequest(
      `/${method.parent.typeName}/${method.name}`,
      (message: MessageShape<M['input']>) => Buffer.from(toBinary<DescMessage>(method.input, message)),
      (bytes) => fromBinary<DescMessage>(method.output, bytes) as MessageShape<M['output']>,
      request,
      { deadline: Date.now() + CALL_TIMEOUT_MS },
      onEnd,
    )
  }
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
    const exchange = await this.#connection.call(
      method,
      create<DescMessage>(method.input, request) as MessageShape<M['input']>,
    )
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

  cancel<M extends DescMethod>(method: M, request: MessageInitShape<M['input']>, afterMs: number): Promise<void> {
    return this.#connection.cancel(
      method,
      create<DescMessage>(method.input, request) as MessageShape<M['input']>,
      afterMs,
    )
  }
}

/** @throws Wrong */
export function checkQuick({ method, ms }: Exchange): void {
  check(ms <= MAX_ANSWER_MS, `${method.name} took ${Math.round(ms)} ms, more than ${MAX_ANSWER_MS}`)
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
