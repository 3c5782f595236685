// Reads an API answer and checks everything that decisions 1 to 6 promise of every answer.
import { expect } from 'vitest'
import { ERRORS, type ErrorType, isErrorType } from './errors.js'
import type { Reply } from './http.js'
import { openapiViolations } from './openapi.js'

export interface Envelope<Data = Record<string, unknown>> {
  readonly status: number
  readonly headers: ReadonlyMap<string, string>
  readonly code: string
  /** `error.type`; empty on success. */
  readonly type: string
  readonly message: string | undefined
  readonly action: string | undefined
  readonly data: Data
  readonly requestId: string
}

export interface Reading {
  readonly method: string
  readonly path: string
  /** The service's HTTP_ERROR_STATUS. */
  readonly httpErrorStatus: 'semantic' | '200'
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
/** Statuses of requests refused for size or syntax; their type is that of any malformed request. */
const SYNTAX_STATUSES = [400, 413, 414, 431]
const KEEPS_ITS_STATUS = new Set<string>([
  'no_route',
  'method_not_allowed',
  'request_rate_limited',
  'remote_server_error',
  'internal_server_error',
])

const seenRequestIds = new Set<string>()

export function readEnvelope(reply: Reply, reading: Reading): Envelope {
  expectHeaders(reply)
  const body: unknown = JSON.parse(reply.text)
  expect(Object.keys(record(body)).sort()).toEqual(['code', 'data', 'error', 'request_id'])
  const { code, error, data, request_id: requestId } = record(body)
  expect(requestId).toMatch(UUID)
  expect(seenRequestIds.has(String(requestId)), 'request_id is fresh').toBe(false)
  seenRequestIds.add(String(requestId))
  const { type, message, action } = record(error)
  const envelope = {
    status: reply.status,
    headers: reply.headers,
    code: String(code),
    type: String(type),
    message: message === undefined ? undefined : String(message),
    action: action === undefined ? undefined : String(action),
    data: record(data),
    requestId: String(requestId),
  }
  if (code === 'OK') {
    expect(error).toEqual({ type: '' })
    expect(reply.status).toBe(200)
  } else {
    expectFailure(envelope, reading)
  }
  if (reading.httpErrorStatus === 'semantic') expect(openapiViolations(reading, reply.status, body)).toEqual([])
  return envelope
}

function expectFailure(envelope: Envelope, reading: Reading): void {
  const { type } = envelope
  if (!isErrorType(type)) throw new Error(`error.type ${JSON.stringify(type)} is not in the table`)
  const row = ERRORS[type]
  expect(envelope.code).toBe(row.code)
  expect(envelope.data).toEqual({})
  expect(envelope.message).toMatch(/\S/)
  expect(envelope.action).toBe(row.action)
  if (reading.httpErrorStatus === '200' && !KEEPS_ITS_STATUS.has(type))
    expect([200, 413, 414, 431]).toContain(envelope.status)
  else if (type === 'invalid_argument') expect(SYNTAX_STATUSES).toContain(envelope.status)
  else expect(envelope.status).toBe(row.status)
  if (row.action === 'retry') expect(envelope.headers.get('retry-after')).toMatch(/^[1-9][0-9]*$/)
  if (type === 'method_not_allowed') expect(envelope.headers.get('allow')).toBe('GET')
}

function expectHeaders({ headers }: Reply): void {
  expect(headers.get('content-type')).toBe('application/json; charset=utf-8')
  expect(headers.get('cache-control')).toBe('no-store')
  expect(headers.get('x-content-type-options')).toBe('nosniff')
  for (const absent of ['etag', 'server', 'x-powered-by', 'set-cookie', 'location'])
    expect(headers.has(absent), absent).toBe(false)
  for (const name of headers.keys()) expect(name).not.toMatch(/^access-control-/)
}

function record(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`expected an object, found ${JSON.stringify(value)}`)
  }
  return value as Record<string, unknown>
}

/** Fails unless the answer is this row of the error table. */
export function expectError(envelope: Envelope, type: ErrorType): void {
  expect({ type: envelope.type, code: envelope.code }).toEqual({ type, code: ERRORS[type].code })
}
