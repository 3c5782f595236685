// The first door: a Connect Transport that calls the dispatcher in the same process, without serialization.

import { randomUUID } from 'node:crypto'
import { create, type DescMessage, type DescMethodUnary, type MessageInitShape } from '@bufbuild/protobuf'
import { Code, ConnectError, type Transport, type UnaryResponse } from '@connectrpc/connect'
import type { Caller } from './callers.js'
import type { Dispatcher } from './dispatcher.js'

/** Header in which a request's id travels between processes; the direct door reads it from the call's options. */
export const REQUEST_ID_HEADER = 'x-request-id'

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
      const call = { caller, requestId: requestIdOf(headers), signal }
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

function requestIdOf(headers: HeadersInit | undefined): string {
  if (headers === undefined) return randomUUID()
  return new Headers(headers).get(REQUEST_ID_HEADER) ?? randomUUID()
}
