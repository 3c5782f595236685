import { METHODS } from 'node:http'
import { invalidArgument, type Problem } from './errors.js'
import { MAX_HEADER_BYTES, MAX_URL_BYTES } from './limits.js'

/** What node:http says about bytes it could not parse into a request. */
export interface ParseFailure extends Error {
  readonly code?: string
  readonly reason?: string
  readonly rawPacket?: Buffer
}

/** The answer to bytes that are not a request, or not a whole one in time. */
export function problemOfParseFailure(failure: ParseFailure): Problem {
  switch (failure.code) {
    case 'HPE_HEADER_OVERFLOW':
      return isWithinTarget(failure.rawPacket) ? urlTooLong() : headersTooLarge()
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return invalidArgument('the request did not arrive in time', { httpStatus: 408 })
    default:
      return isOfTarget(failure)
        ? invalidArgument('a character of the URL is not percent-encoded')
        : invalidArgument('the request is not valid HTTP', { httpStatus: 400 })
  }
}

/** Whether the target is malformed; a space in it ends it early, and what follows is no version. */
function isOfTarget({ code, reason = '' }: ParseFailure): boolean {
  return code === 'HPE_INVALID_URL' || (code === 'HPE_INVALID_CONSTANT' && reason.startsWith('Expected HTTP/'))
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~\w-]+) (\S+) HTTP\/1\.[01]\r?\n/

/**
 * The target of a request that node:http cannot parse only because it does not know the method: RFC 9110 §9.1 leaves the
 * list of methods open. Undefined for other bytes.
 */
export function targetOfUnknownMethod({ code, rawPacket }: ParseFailure): string | undefined {
  if (code !== 'HPE_INVALID_METHOD' || !rawPacket) return undefined
  const [, method, target] = REQUEST_LINE.exec(rawPacket.toString('latin1')) ?? []
  return method !== undefined && !METHODS.includes(method) ? target : undefined
}

export function urlTooLong(): Problem {
  return invalidArgument(`the URL is longer than ${MAX_URL_BYTES} bytes`, { httpStatus: 414 })
}

export function headersTooLarge(): Problem {
  return invalidArgument(`the headers are larger than ${MAX_HEADER_BYTES} bytes`, { httpStatus: 431 })
}

/** Whether the request line alone is over the limit; node:http counts it and the headers as one. */
function isWithinTarget(packet: Buffer | undefined): boolean {
  if (!packet) return false
  const lineEnd = packet.indexOf('\n')
  return lineEnd === -1 || lineEnd > MAX_URL_BYTES
}
