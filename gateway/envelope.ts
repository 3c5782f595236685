// The JSON around every answer under /api/: exactly {code, error, data, request_id}, in this order (spec 2.1).
import type { Problem } from './errors.js'
import type { Answer, Pieces } from './http.js'

/** Of every answer under /api/: nothing may cache it, nothing in it may run. */
export const API_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'application/json; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
}

/**
 * The value as JSON, one character per byte of its UTF-8, so that nothing is encoded when it is sent: that was a seventh of
 * the cost of a survey.
 */
export function jsonBytes(value: object): string {
  const text = JSON.stringify(value)
  return Buffer.byteLength(text) === text.length ? text : Buffer.from(text).toString('latin1')
}

export function success(data: object, requestId: string): Answer {
  return successBytes(jsonBytes(data), requestId)
}

/** `data`: an object, as jsonBytes returns it. */
export function successBytes(data: string | Pieces, requestId: string): Answer {
  const before = '{"code":"OK","error":{"type":""},"data":'
  const after = `,"request_id":"${requestId}"}`
  const body = typeof data === 'string' ? before + data + after : [before, ...data, after]
  return { status: 200, headers: API_HEADERS, body, encoding: 'latin1', outcome: 'ok', countsForApp: true }
}

/** A failure with the headers it needs; `status` from Problem.status(). */
export function failure(problem: Problem, status: number, requestId: string): Answer & { readonly body: string } {
  const { type, message, kind, options } = problem
  const error = { type, message, action: kind.action }
  return {
    status,
    headers: { ...API_HEADERS, ...failureHeaders(options) },
    body: jsonBytes({ code: kind.code, error, data: {}, request_id: requestId }),
    encoding: 'latin1',
    outcome: type,
    countsForApp: kind.isForKnownApp,
  }
}

/** `Allow`, `Retry-After` and `RateLimit-*`, of a failure in any form. */
export function failureHeaders({ allow, retryAfterSeconds, allowance }: Problem['options']): Record<string, string> {
  return {
    ...(allow === undefined ? {} : { allow }),
    ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
    ...(allowance && {
      'ratelimit-limit': String(allowance.limit),
      'ratelimit-remaining': String(allowance.remaining),
      'ratelimit-reset': String(allowance.resetSeconds),
    }),
  }
}
