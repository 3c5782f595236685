// HTTP for the tests: nothing is added, normalised or followed behind a test's back.
import { Agent, request } from 'node:http'
import { connect } from 'node:net'

export interface Reply {
  readonly status: number
  /** Lower-case names; a header that was sent several times has its values joined by newlines. */
  readonly headers: ReadonlyMap<string, string>
  readonly text: string
}

export interface Outgoing {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

const TIMEOUT_MS = 20_000
const agent = new Agent({ keepAlive: true, maxSockets: 250 })

/** Gateways that share an origin; the first takes the next request. */
const gatewaysOf = new Map<string, string[]>()

/** From now on requests to `origin` go to these gateways in turn, as they would behind a balancer. */
export function balance(origin: string, gateways: readonly string[]): void {
  gatewaysOf.set(origin, [...gateways])
}

/** Where the next request to `origin` goes. */
function nextGateway(origin: string): URL {
  const gateways = gatewaysOf.get(origin) ?? [origin]
  const [next = origin] = gateways.splice(0, 1)
  gateways.push(next)
  return new URL(next)
}

/** Sends one request whose target is `path` byte for byte. */
export function send(origin: string, path: string, outgoing: Outgoing = {}): Promise<Reply> {
  const { hostname, port } = nextGateway(origin)
  return new Promise((resolve, reject) => {
    const sent = request(
      { agent, hostname, port, path, method: outgoing.method ?? 'GET', headers: outgoing.headers, timeout: TIMEOUT_MS },
      (answer) => {
        const chunks: Buffer[] = []
        answer.on('data', (chunk: Buffer) => chunks.push(chunk))
        answer.on('error', reject)
        answer.on('end', () => {
          const text = Buffer.concat(chunks).toString('utf8')
          resolve({ status: answer.statusCode ?? 0, headers: joinHeaders(answer.rawHeaders), text })
        })
      },
    )
    sent.on('timeout', () => sent.destroy(new Error(`no answer within ${TIMEOUT_MS} ms`)))
    sent.on('error', reject)
    sent.end(outgoing.body)
  })
}

/** Closes idle connections: a server that is told to stop gives them time for one more request. */
export function hangUp(): void {
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy()
}

/** Sends a request on a connection of its own and closes that at once, without waiting for the answer. */
export function sendAndLeave(
  origin: string,
  path: string,
  { method = 'GET', headers, body }: Outgoing = {},
): Promise<void> {
  const { hostname, port } = nextGateway(origin)
  return new Promise((resolve) => {
    const sent = request({ agent: false, hostname, port, path, method, headers })
    sent.on('error', () => undefined) // it has no answer
    sent.on('close', resolve)
    sent.on('finish', () => sent.destroy())
    sent.end(body)
  })
}

/** Writes bytes to a fresh connection and reads all answers until the server closes it or falls silent. */
export function sendRaw(origin: string, bytes: string | Buffer, silenceMs = 1_500): Promise<readonly Reply[]> {
  const { hostname, port } = nextGateway(origin)
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(bytes))
    const finish = () => {
      socket.destroy()
      try {
        resolve(readReplies(Buffer.concat(chunks)))
      } catch (error) {
        reject(error)
      }
    }
    socket.setTimeout(silenceMs, finish)
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('end', finish)
    socket.on('error', () => finish()) // a server may reset a connection it refused to read to the end
  })
}

/** Splits the bytes of a connection into answers; HTTP/1.1 with Content-Length or chunked bodies. */
function readReplies(bytes: Buffer): Reply[] {
  const replies: Reply[] = []
  let rest = bytes
  while (rest.length > 0) {
    const headEnd = rest.indexOf('\r\n\r\n')
    if (headEnd < 0) throw new Error(`not an HTTP answer: ${JSON.stringify(rest.toString('latin1').slice(0, 200))}`)
    const [statusLine = '', ...lines] = rest.subarray(0, headEnd).toString('latin1').split('\r\n')
    const headers = joinHeaders(lines.flatMap(splitHeader))
    const afterHead = rest.subarray(headEnd + 4)
    const body = headers.get('transfer-encoding') === 'chunked' ? readChunks(afterHead) : readLength(afterHead, headers)
    replies.push({ status: Number(statusLine.split(' ')[1]), headers, text: body.text })
    rest = body.rest
  }
  return replies
}

function splitHeader(line: string): [string, string] {
  const colon = line.indexOf(':')
  return [line.slice(0, colon), line.slice(colon + 1).trim()]
}

function readLength(bytes: Buffer, headers: ReadonlyMap<string, string>): { text: string; rest: Buffer } {
  const length = Number(headers.get('content-length') ?? bytes.length)
  return { text: bytes.subarray(0, length).toString('utf8'), rest: bytes.subarray(length) }
}

function readChunks(bytes: Buffer): { text: string; rest: Buffer } {
  const parts: Buffer[] = []
  let at = 0
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const size = Number.parseInt(bytes.subarray(at, lineEnd).toString('latin1'), 16)
    if (lineEnd < 0 || Number.isNaN(size)) throw new Error('a chunk without a size')
    const start = lineEnd + 2
    parts.push(bytes.subarray(start, start + size))
    at = start + size + 2
    if (size === 0) return { text: Buffer.concat(parts).toString('utf8'), rest: bytes.subarray(at) }
  }
}

function joinHeaders(raw: readonly string[]): Map<string, string> {
  const headers = new Map<string, string>()
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = (raw[i] ?? '').toLowerCase()
    const value = raw[i + 1] ?? ''
    const earlier = headers.get(name)
    headers.set(name, earlier === undefined ? value : `${earlier}\n${value}`)
  }
  return headers
}
