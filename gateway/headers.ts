// What the server itself must know about a request's headers, found in one pass over the raw ones: node:http's own
// `headers` costs more to build than most requests cost to answer.

export interface HeaderFacts {
  /** Size of all header lines. */
  readonly bytes: number
  /** Number of Host headers. */
  readonly hosts: number
  /** Whether a body is announced. */
  readonly hasBody: boolean
  /** Whether another protocol is asked for. */
  readonly isUpgrade: boolean
  /** W3C trace context as sent, if it is well-formed; else empty. */
  readonly traceparent: string
}

const SEPARATOR_BYTES = 4 // `: ` and the line's end
const TRACEPARENT = /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/

/** `rawHeaders`: names and values, alternating. */
export function readHeaders(rawHeaders: readonly string[]): HeaderFacts {
  let bytes = 0
  let hosts = 0
  let hasBody = false
  let isUpgrade = false
  let traceparent: string | undefined
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? ''
    const value = rawHeaders[at + 1] ?? ''
    bytes += name.length + value.length + SEPARATOR_BYTES
    switch (LENGTHS.has(name.length) ? name.toLowerCase() : '') {
      case 'host':
        hosts++
        break
      case 'upgrade':
        isUpgrade = true
        break
      case 'content-length':
        hasBody ||= value !== '0'
        break
      case 'transfer-encoding':
        hasBody = true
        break
      case 'traceparent':
        traceparent ??= TRACEPARENT.test(value) ? value : ''
        break
    }
  }
  return { bytes, hosts, hasBody, isUpgrade, traceparent: traceparent ?? '' }
}

const LENGTHS: ReadonlySet<number> = new Set(
  ['host', 'upgrade', 'content-length', 'transfer-encoding', 'traceparent'].map((name) => name.length),
)
