// One request: what the server must know of it, and what routes see.
import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { endOfTurn } from './connections.js'
import { MAX_ID_LENGTH, type Params, parseForm, parseQuery, readBody } from './query.js'

/** What the server itself must know about a request's headers. */
export interface HeaderFacts {
  /** Size of all header lines. */
  readonly bytes: number
  /** Number of Host headers. */
  readonly hosts: number
  /** Whether a body is announced. */
  readonly hasBody: boolean
  /** Whether another protocol is asked for: node:http reads nothing that follows such a request. */
  readonly isUpgrade: boolean
  /** W3C trace context as sent, if it is well-formed; else empty. */
  readonly traceparent: string
}

interface RpcOptions {
  readonly headers: Record<string, string>
  readonly timeoutMs: number
}

/** A request as routes see it. Everything expensive is read on demand, and once. */
export class GatewayRequest {
  /** Fresh for every request; in the answer, in the logs and in every RPC made for it. */
  readonly requestId = randomUUID()
  readonly headerFacts: HeaderFacts
  readonly method: string
  /** As sent, without the query; of an absolute-form target, without scheme and host. */
  readonly path: string
  /** The path segments that are the parameters of its route, not decoded. Set when the route is known. */
  pathParameters: readonly string[] = []
  /** W3C trace context: that of our span, or a trusted proxy's; empty if there is none. */
  traceparent = ''
  readonly #incoming: IncomingMessage
  readonly #rpcTimeoutMs: number
  /** The query as sent; empty if there is none. */
  readonly queryText: string
  #params: Params | undefined
  /** The body, if one is announced; rejects with a Problem when it is too large or does not arrive. Nobody need wait for it. */
  readonly body: Promise<Buffer> | undefined

  constructor(
    incoming: IncomingMessage,
    /** IP address of the client, from the connection or from a trusted proxy. */
    readonly source: string,
    /** Aborted when the client closes its side of the connection. */
    readonly left: AbortSignal,
    rpcTimeoutMs: number,
  ) {
    const target = originForm(incoming.url ?? '')
    const mark = target.indexOf('?')
    this.headerFacts = readHeaders(incoming.rawHeaders)
    this.method = incoming.method ?? ''
    this.path = mark === -1 ? target : target.slice(0, mark)
    this.queryText = mark === -1 ? '' : target.slice(mark + 1)
    this.body = this.headerFacts.hasBody ? readBody(incoming) : undefined
    this.body?.catch(() => undefined)
    this.#incoming = incoming
    this.#rpcTimeoutMs = rpcTimeoutMs
  }

  /** Options of every RPC made for this request: id, trace context, deadline. */
  get rpc(): RpcOptions {
    const { requestId, traceparent } = this
    const id = { 'x-request-id': requestId } // the name the services read; a computed one costs 0.3 µs
    return { headers: traceparent === '' ? id : { ...id, traceparent }, timeoutMs: this.#rpcTimeoutMs }
  }

  /**
   * The same for an RPC that spends or creates what is of use to this client only: it is given up once the client has closed
   * its side of the connection. Waits until a FIN that had arrived with the request has been seen, and has aborted `signal`.
   */
  async rpcForClient(): Promise<RpcOptions & { readonly signal: AbortSignal }> {
    await endOfTurn()
    await endOfTurn()
    return { signal: this.left, ...this.rpc }
  }

  /** The query, strictly decoded. @throws Problem when malformed */
  query(): Params {
    this.#params ??= parseQuery(this.queryText)
    return this.#params
  }

  /** The appid in the query, unverified, for limits and the log. Undefined when it is absent or cannot be one. */
  claimedAppid(): string | undefined {
    try {
      return this.query().optional('appid', MAX_ID_LENGTH) || undefined
    } catch {
      return undefined // the route says what is wrong, if it needs the query at all
    }
  }

  /** The form body, strictly decoded. Rejects with a Problem when malformed or of another type. */
  async form(): Promise<Params> {
    return parseForm(this.#incoming, (await this.body) ?? Buffer.alloc(0))
  }

  /** One header by its name in lower case; never logged. */
  header(name: string): string | undefined {
    const value = this.#incoming.headers[name]
    return typeof value === 'string' ? value : undefined
  }
}

/** The path of a request's target. */
export function pathOf(target: string): string {
  const [path = ''] = originForm(target).split('?', 1)
  return path
}

/**
 * Drops the fragment, which clients other than browsers may send as it stands in the link (`#wj_redirect`), and the scheme
 * and host of an absolute-form target (RFC 9112 §3.2.2); this gateway ignores the host.
 */
function originForm(sent: string): string {
  const mark = sent.indexOf('#')
  const target = mark === -1 ? sent : sent.slice(0, mark)
  if (target.startsWith('/')) return target
  const [, rest] = /^https?:\/\/[^/?]*(.*)$/i.exec(target) ?? []
  if (rest === undefined) return target
  return rest.startsWith('/') ? rest : `/${rest}`
}

const SEPARATOR_BYTES = 4 // `: ` and the line's end
const TRACEPARENT = /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/

/** Found in one pass over the raw ones, names and values alternating: node:http's own `headers` costs more to build than most requests cost to answer. */
function readHeaders(rawHeaders: readonly string[]): HeaderFacts {
  let bytes = 0
  let hosts = 0
  let hasBody = false
  let isUpgrade = false
  let traceparent: string | undefined
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? ''
    const value = rawHeaders[at + 1] ?? ''
    bytes += name.length + value.length + SEPARATOR_BYTES
    switch (name.toLowerCase()) {
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
