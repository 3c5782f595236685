// Puts answers on the wire: through node:http, or as raw bytes where node:http has no response object to offer.
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Answer } from './http.js'

const YEAR_SECONDS = 31_536_000

/** Headers of every answer, pages and API alike, unless the answer has its own. */
export function baseHeaders(publicUrl: URL): Readonly<Record<string, string>> {
  return {
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    ...(publicUrl.protocol === 'https:' ? { 'strict-transport-security': `max-age=${YEAR_SECONDS}` } : {}),
  }
}

/** Sends an answer; a connection that is gone swallows it. */
export function writeAnswer(response: ServerResponse, answer: Answer, base: Readonly<Record<string, string>>): void {
  response.writeHead(answer.status, flatHeaders(answer, base))
  response.end(answer.body)
}

/** How long a connection that was answered and closed still takes what its client sends, in ms: an earlier reset could
 * destroy the answer on its way. */
const LINGER_MS = 250

/** Sends an answer on a connection whose request could not be parsed, and closes the connection. */
export function writeRawAnswer(socket: Duplex, answer: Answer, base: Readonly<Record<string, string>>): void {
  const lines = [`HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? ''}`]
  const headers = flatHeaders(answer, base)
  for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`)
  lines.push(`date: ${new Date().toUTCString()}`, 'connection: close', '', '')
  socket.end(Buffer.concat([Buffer.from(lines.join('\r\n')), Buffer.from(answer.body)]))
  setTimeout(() => socket.destroy(), LINGER_MS).unref()
}

/** Names and values in turn, which node:http writes fastest. */
function flatHeaders(answer: Answer, base: Readonly<Record<string, string>>): string[] {
  const flat = ['content-length', String(Buffer.byteLength(answer.body))]
  for (const name in answer.headers) {
    const value = answer.headers[name]
    if (typeof value === 'string') flat.push(name, value)
    else for (const one of value ?? []) flat.push(name, one)
  }
  for (const name in base) {
    if (answer.headers[name] === undefined) flat.push(name, base[name] ?? '')
  }
  return flat
}
