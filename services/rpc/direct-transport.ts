// The first door: a Connect Transport that calls the dispatcher in the same process, without serialization.

import { randomUUID } from 'node:crypto'
import { create, type DescMessage, type DescMethodUnary, type MessageInitShape } from '@bufbuild/protobuf'
import { Code, ConnectError, type Transport, type UnaryResponse } from '@connectrpc/connect'
import type { Caller } from './callers.js'
import type { Dispatcher } from './dispatcher.js'
import { REQUEST_ID_HEADER } from './request-id.js'

type HeadersInit = ConstructorParameters<typeof Headers>[0]

const noHeaders = new Headers()

/** A transport whose every call is made as `caller`. Messages are passed by reference: neither side may change them. */
export function createDirectTransport(dispatcher: Dispatcher, caller: Caller): Transport {
  return {
    async unary<I extends DescMessage, O extends DescMessage>(
      method: DescMethodUnary<I, O>,
      signal: AbortSignal | undefined,
      timeoutMs: number | undefined,
      headers: HeadersInit | undefined,
      input: MessageInitShape<I>,
    ): Promise<UnaryResponse<I, O>> {
      const call = { caller, ...context(headers), signal }
      const message = await dispatcher.call(method, create(method.input, input), call, timeoutMs)
      return {
        stream: false,
        service: method.parent,
        method,
        header: noHeaders,
        trailer: noHeaders,
        message,
      }
    },
    stream() {
      return Promise.reject(new ConnectError('the direct door serves unary calls', Code.Unimplemented))
    },
  }
}

/** What the caller's call options say of the request; headers given as a plain object are read without a copy. */
function context(headers: HeadersInit | undefined): { requestId: string; traceparent: string } {
  if (headers === undefined) return { requestId: randomUUID(), traceparent: '' }
  if (!(headers instanceof Headers) && !Array.isArray(headers)) {
    const plain = headers as Readonly<Record<string, string | undefined>>
    return { requestId: plain[REQUEST_ID_HEADER] ?? randomUUID(), traceparent: plain.traceparent ?? '' }
  }
  return context(Object.fromEntries(new Headers(headers)))
}
