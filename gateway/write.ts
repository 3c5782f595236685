// Puts answers on the wire: through node:http, or as raw bytes where node:http has no response object to offer.
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { closeInStages } from './connections.js'
import { API_HEADERS } from './envelope.js'
import type { Answer, Pieces } from './http.js'

const YEAR_SECONDS = 31_536_000

export class AnswerWriter {
  /** Headers of every answer, pages and API alike, unless the answer has its own. */
  readonly #base: Readonly<Record<string, string>>
  /** Made once: nearly every answer has these. */
  readonly #apiHeaders: readonly string[]
  /** For a connection that stays open: how long it may be idle. */
  readonly #keepAlive: readonly string[]

  constructor(publicUrl: URL, keepAliveTimeoutMs: number) {
    this.#base = {
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'same-origin', // with `no-referrer`, browsers send `Origin: null` with our own forms
      ...(publicUrl.protocol === 'https:' ? { 'strict-transport-security': `max-age=${YEAR_SECONDS}` } : {}),
    }
    this.#apiHeaders = this.#flat(API_HEADERS)
    this.#keepAlive = ['keep-alive', `timeout=${Math.floor(keepAliveTimeoutMs / 1000)}`]
  }

  /** Sends an answer; it is lost if the connection is gone. Returns how many bytes its body has. */
  write(response: ServerResponse, answer: Answer): number {
    const { status, body, encoding } = answer
    const bytes = lengthOf(answer)
    const kept = response.shouldKeepAlive ? this.#keepAlive : []
    response.writeHead(status, [...this.#headersOf(answer, bytes), ...kept])
    if (!isInPieces(body)) response.end(body, encoding ?? 'utf8')
    else {
      for (const piece of body) response.write(piece, 'latin1')
      response.end()
    }
    return bytes
  }

  /** Sends an answer on a connection whose request could not be parsed, and closes the connection. */
  writeRaw(socket: Duplex, answer: Answer & { readonly body: string }): void {
    const { status, body, encoding } = answer
    const bytes = Buffer.from(body, encoding)
    const lines = [
      `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`,
      ...linesOf(this.#headersOf(answer, bytes.length)),
    ]
    lines.push(`date: ${new Date().toUTCString()}`, 'connection: close', '', '')
    socket.write(Buffer.concat([Buffer.from(lines.join('\r\n')), bytes]))
    closeInStages(socket)
  }

  #headersOf({ headers }: Answer, bytes: number): string[] {
    const flat = headers === API_HEADERS ? this.#apiHeaders : this.#flat(headers)
    return ['content-length', String(bytes), ...flat]
  }

  /** Names and values, alternating, which node:http writes fastest. */
  #flat(headers: Answer['headers']): string[] {
    const flat: string[] = []
    for (const name in headers) {
      const value = headers[name]
      if (typeof value === 'string') flat.push(name, value)
      else for (const one of value ?? []) flat.push(name, one)
    }
    for (const name in this.#base) {
      if (headers[name] === undefined) flat.push(name, this.#base[name] ?? '')
    }
    return flat
  }
}

/** In bytes. */
function lengthOf({ body, encoding }: Answer): number {
  if (isInPieces(body)) return body.reduce((sum, { length }) => sum + length, 0)
  return typeof body === 'string' && encoding === undefined ? Buffer.byteLength(body) : body.length
}

function isInPieces(body: Answer['body']): body is Pieces {
  return Array.isArray(body)
}

function linesOf(flat: readonly string[]): string[] {
  const lines: string[] = []
  for (let at = 0; at < flat.length; at += 2) lines.push(`${flat[at]}: ${flat[at + 1]}`)
  return lines
}
