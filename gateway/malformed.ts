import { METHODS } from 'node:http'
import { invalidArgument, type Problem } from './errors.js'
import type { GatewayLimits } from './limits.js'

/** What node:http says about bytes it could not parse into a request. */
export interface ParseFailure extends Error {
  readonly code?: string
  readonly reason?: string
  readonly rawPacket?: Buffer
}

/** The answer to bytes that are not a request, or not a whole one in time. */
export function problemOfParseFailure(failure: ParseFailure, limits: GatewayLimits): Problem {
  switch (failure.code) {
    case 'HPE_HEADER_OVERFLOW':
      return isWithinTarget(failure.rawPacket, limits.maxUrlBytes) ? urlTooLong(limits) : headersTooLarge(limits)
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

export function urlTooLong(limits: GatewayLimits): Problem {
  return invalidArgument(`the URL is longer than ${limits.maxUrlBytes} bytes`, { httpStatus: 414 })
}

export function headersTooLarge(limits: GatewayLimits): Problem {
  return invalidArgument(`the headers are larger than ${limits.maxHeaderBytes} bytes`, { httpStatus: 431 })
}

/** Whether the request line alone is over the limit; node:http counts it and the headers as one. */
function isWithinTarget(packet: Buffer | undefined, maxUrlBytes: number): boolean {
  if (!packet) return false
  const lineEnd = packet.indexOf('\n')
  return lineEnd === -1 || lineEnd > maxUrlBytes
}
