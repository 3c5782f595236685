// Typed clients of our services, over what makes their calls: the dispatcher of this process, or a connection to another one.
// They have the types of Connect's clients, and as little as possible between a call and its answer.
import { randomUUID } from 'node:crypto'
import { create, type DescMethod, type DescService, type Message, type MessageShape } from '@bufbuild/protobuf'
import type { CallOptions, Client } from '@connectrpc/connect'
import type { Caller } from './callers.js'
import type { Call, Dispatcher } from './dispatcher.js'
import { ownName } from './identity.js'
import { REQUEST_ID_HEADER } from './requests.js'

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
 * The first door: the dispatcher of this process, called as `caller`. Messages are passed by reference: neither side may change
 * them.
 */
export function createDirectDoor(dispatcher: Dispatcher, caller: Caller): Invoke {
  const callerName = ownName()
  return (method, request, { requestId, traceparent, timeoutMs, signal }) => {
    const call = { caller, callerName, requestId: requestId === '' ? randomUUID() : requestId, traceparent, signal }
    return dispatcher.call(method, request, call, timeoutMs)
  }
}

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

/** Headers of a call made because of another: same request, same trace. A computed property name would cost 0.3 µs. */
export function headersBecauseOf({
  requestId,
  traceparent,
}: Pick<Call, 'requestId' | 'traceparent'>): Record<string, string> {
  return traceparent === '' ? { 'x-request-id': requestId } : { 'x-request-id': requestId, traceparent }
}
