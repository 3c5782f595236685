// Puts answers on the wire: through node:http, or as raw bytes where node:http has no response object to offer.
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { API_HEADERS } from './envelope.js'
import type { Answer } from './http.js'

const YEAR_SECONDS = 31_536_000

/** How long a connection that was answered and closed still takes what its client sends, in ms: an earlier reset could
 * destroy the answer on its way. */
const LINGER_MS = 250

export class AnswerWriter {
  /** Headers of every answer, pages and API alike, unless the answer has its own. */
  readonly #base: Readonly<Record<string, string>>
  /** Made once: nearly every answer has these. */
  readonly #apiHeaders: readonly string[]

  constructor(publicUrl: URL) {
    this.#base = {
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      ...(publicUrl.protocol === 'https:' ? { 'strict-transport-security': `max-age=${YEAR_SECONDS}` } : {}),
    }
    this.#apiHeaders = this.#flat(API_HEADERS)
  }

  /** Sends an answer; a connection that is gone swallows it. */
  write(response: ServerResponse, answer: Answer): void {
    response.writeHead(answer.status, this.#headersOf(answer))
    response.end(answer.body, answer.encoding ?? 'utf8')
  }

  /** Sends an answer on a connection whose request could not be parsed, and closes the connection. */
  writeRaw(socket: Duplex, answer: Answer): void {
    const { status, body, encoding } = answer
    const flat = this.#headersOf(answer)
    const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`]
    for (let at = 0; at < flat.length; at += 2) lines.push(`${flat[at]}: ${flat[at + 1]}`)
    lines.push(`date: ${new Date().toUTCString()}`, 'connection: close', '', '')
    const bytes = typeof body === 'string' ? Buffer.from(body, encoding) : body
    socket.end(Buffer.concat([Buffer.from(lines.join('\r\n')), bytes]))
    setTimeout(() => socket.destroy(), LINGER_MS).unref()
  }

  #headersOf({ headers, body, encoding }: Answer): string[] {
    const length = typeof body === 'string' ? Buffer.byteLength(body, encoding) : body.length
    const flat = headers === API_HEADERS ? this.#apiHeaders : this.#flat(headers)
    return ['content-length', String(length), ...flat]
  }

  /** Names and values in turn, which node:http writes fastest. */
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
