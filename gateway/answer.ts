// Answers: the JSON around those under /api/, exactly {code, error, data, request_id} in this order (spec 2.1), and how any of
// them is put on the wire.
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { closeInStages } from './connections.js'
import type { Problem } from './errors.js'
import type { Answer, Headers } from './http.js'

/** Of every answer under /api/: nothing may cache it, nothing in it may run. */
const API_HEADERS = Object.entries({
  'content-type': 'application/json; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
}).flat()

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
export function successBytes(data: string, requestId: string): Answer {
  const body = `{"code":"OK","error":{"type":""},"data":${data},"request_id":"${requestId}"}`
  return { status: 200, headers: API_HEADERS, body, encoding: 'latin1', outcome: 'ok', countsForApp: true }
}

/** Its body has one character per byte. */
type Failure = Answer & { readonly body: string }

/** A failure with the headers it needs; `status` from Problem.status(). */
export function failure(problem: Problem, status: number, requestId: string): Failure {
  const { type, message, kind, options } = problem
  const error = { type, message, action: kind.action }
  return {
    status,
    headers: [...API_HEADERS, ...failureHeaders(options)],
    body: jsonBytes({ code: kind.code, error, data: {}, request_id: requestId }),
    encoding: 'latin1',
    outcome: type,
    countsForApp: kind.isForKnownApp,
  }
}

/** `Allow`, `Retry-After` and `RateLimit-*`, of a failure in any form. */
export function failureHeaders({ allow, retryAfterSeconds, allowance }: Problem['options']): Headers {
  return Object.entries<string>({
    ...(allow === undefined ? {} : { allow }),
    ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
    ...(allowance && {
      'ratelimit-limit': String(allowance.limit),
      'ratelimit-remaining': String(allowance.remaining),
      'ratelimit-reset': String(allowance.resetSeconds),
    }),
  }).flat()
}

const YEAR_SECONDS = 31_536_000

/** Headers of every answer, pages and API alike. */
export function commonHeaders(publicUrl: URL): Headers {
  return Object.entries<string>({
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'same-origin', // with `no-referrer`, browsers send `Origin: null` with our own forms
    ...(publicUrl.protocol === 'https:' ? { 'strict-transport-security': `max-age=${YEAR_SECONDS}` } : {}),
  }).flat()
}

/** Sends an answer with the headers that all have; it is lost if the connection is gone. */
export function write(response: ServerResponse, { status, headers, body, encoding }: Answer, common: Headers): void {
  const bytes = typeof body === 'string' && encoding === undefined ? Buffer.byteLength(body) : body.length
  response.writeHead(status, [...common, ...headers, 'content-length', String(bytes)])
  response.end(body, encoding ?? 'utf8')
}

/** Sends a failure on a connection whose request could not be parsed, and closes the connection. */
export function writeRaw(socket: Duplex, { status, headers, body }: Failure, common: Headers): void {
  const own = ['content-length', String(body.length), 'date', new Date().toUTCString(), 'connection', 'close']
  const lines = [...common, ...headers, ...own].map((part, at) => (at % 2 === 0 ? `${part}: ` : `${part}\r\n`))
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`, 'latin1')
  closeInStages(socket)
}
