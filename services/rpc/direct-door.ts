// The first door: the dispatcher of the same process, without serialization.
import { randomUUID } from 'node:crypto'
import type { Caller } from './callers.js'
import type { Invoke } from './client.js'
import type { Dispatcher } from './dispatcher.js'

/** Makes every call as `caller`. Messages are passed by reference: neither side may change them. */
export function createDirectDoor(dispatcher: Dispatcher, caller: Caller): Invoke {
  return (method, request, { requestId, traceparent, timeoutMs, signal }) => {
    const call = { caller, requestId: requestId === '' ? randomUUID() : requestId, traceparent, signal }
    return dispatcher.call(method, request, call, timeoutMs)
  }
}
