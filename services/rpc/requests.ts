// What doors accept: how large a request may be, and how its bytes become a message.
import { type DescMethod, type DescService, fromBinary, type Message } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'

/** Names and values of one call's headers and metadata, in bytes; as much as node:http takes. */
export const MAX_HEADER_BYTES = 16 * 1024

/** 24 days: Node's timers treat anything longer as no delay at all. */
export const MAX_TIMER_MS = 2 ** 31 - 1

/** What a door accepts. */
export interface RpcLimits {
  /** Largest request message, in bytes, for services not listed below. */
  readonly maxRequestBytes: number
  /** The same for services that accept more, by name. */
  readonly largerRequests?: ReadonlyMap<string, number>
  /** Streams one connection may have open. */
  readonly maxStreams: number
}

export function maxRequestBytesOf(limits: RpcLimits, { typeName }: DescService): number {
  return limits.largerRequests?.get(typeName) ?? limits.maxRequestBytes
}

/** @throws ConnectError when the request is larger than its service accepts, or malformed. */
export function decodeRequest({ input, parent }: DescMethod, bytes: Uint8Array, limits: RpcLimits): Message {
  const max = maxRequestBytesOf(limits, parent)
  if (bytes.length > max) {
    throw new ConnectError(`the request has ${bytes.length} bytes, ${parent.name} takes ${max}`, Code.ResourceExhausted)
  }
  try {
    return fromBinary(input, bytes)
  } catch {
    throw new ConnectError(`the request is not a ${input.typeName}`, Code.InvalidArgument)
  }
}
