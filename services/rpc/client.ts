// Typed clients of our services, over whatever makes their calls: the dispatcher of this process, or a connection to another.
// They have the types of Connect's clients, and as little as possible between a call and its answer.
import { create, type DescMethod, type DescService, type Message, type MessageShape } from '@bufbuild/protobuf'
import type { CallOptions, Client } from '@connectrpc/connect'
import { REQUEST_ID_HEADER } from './request-id.js'

/** What travels with a request. */
export interface Outgoing {
  /** Empty for a call that belongs to no request. */
  readonly requestId: string
  /** W3C trace context; empty if there is none. */
  readonly traceparent: string
  /** In ms; undefined for the default. */
  readonly timeoutMs: number | undefined
  /** Aborted when nobody waits for the answer any longer. */
  readonly signal?: AbortSignal | undefined
}

/** Makes one unary call. @throws ConnectError */
export type Invoke = <M extends DescMethod>(
  method: M,
  request: MessageShape<M['input']>,
  call: Outgoing,
) => Promise<MessageShape<M['output']>>

/**
 * A client that makes its calls through `invoke`. Of Connect's call options it honours `timeoutMs`, `signal` and
 * `headers`; of the headers, the request id and the trace context.
 */
export function clientOf<S extends DescService>(service: S, invoke: Invoke): Client<S> {
  const methods = service.methods.map((method) => [
    method.localName,
    (input: object, options?: CallOptions) => invoke(method, create(method.input, input as Message), outgoing(options)),
  ])
  return Object.fromEntries(methods) as Client<S>
}

/** Headers given as a plain object, as ours are, are read without a copy. */
function outgoing({ headers, timeoutMs, signal }: CallOptions = {}): Outgoing {
  const plain =
    headers instanceof Headers || Array.isArray(headers) ? Object.fromEntries(new Headers(headers)) : headers
  const given = plain as Readonly<Record<string, string | undefined>> | undefined
  return { requestId: given?.[REQUEST_ID_HEADER] ?? '', traceparent: given?.traceparent ?? '', timeoutMs, signal }
}
