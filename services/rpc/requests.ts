// What doors accept of a call: its request id, the size of its request, and the bytes that become a message.
import { randomUUID } from 'node:crypto'
import { type DescMethod, type DescService, fromBinary, type Message } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'

/** Names and values of one call's headers and metadata, in bytes; as much as node:http takes. */
export const MAX_HEADER_BYTES = 16 * 1024

/** Streams one connection may have open. */
export const MAX_STREAMS = 100

const MAX_REQUEST_BYTES = 64 * 1024 // a call of a gateway with the longest keys takes nearly as much
const MAX_SURVEY_REQUEST_BYTES = 4 * 1024 * 1024 // a survey of 4,000,000 bytes, and what is around it

/** Largest request message that a service takes, in bytes. */
export function maxRequestBytesOf({ typeName }: Pick<DescService, 'typeName'>): number {
  return typeName === SurveyService.typeName ? MAX_SURVEY_REQUEST_BYTES : MAX_REQUEST_BYTES
}

/** @throws ConnectError when the request is larger than its service accepts, or malformed. */
export function decodeRequest({ input, parent }: DescMethod, bytes: Uint8Array): Message {
  const max = maxRequestBytesOf(parent)
  if (bytes.length > max) {
    throw new ConnectError(`the request has ${bytes.length} bytes, ${parent.name} takes ${max}`, Code.ResourceExhausted)
  }
  try {
    return fromBinary(input, bytes)
  } catch {
    throw new ConnectError(`the request is not a ${input.typeName}`, Code.InvalidArgument)
  }
}

/** Header (metadata key) in which a request's id travels between processes. */
export const REQUEST_ID_HEADER = 'x-request-id'

/** Whether the text can be a request id. Ours are UUIDs; callers may use their own. */
export const isRequestId = (text: string) => /^[0-9A-Za-z-]{8,64}$/.test(text)

/** The caller's request id if it is well-formed; otherwise a new one, so that no arbitrary text of a caller reaches a log. */
export function requestIdFrom(value: unknown): string {
  return typeof value === 'string' && isRequestId(value) ? value : randomUUID()
}
