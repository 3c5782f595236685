// Reads `application/x-www-form-urlencoded` text, from the query and from forms, stricter than URLSearchParams: what
// that class repairs silently (a lone `%`, bytes that are not UTF-8) is refused here, and nothing is decoded twice.
import type { IncomingMessage } from 'node:http'
import { invalidArgument, type Problem } from './errors.js'
import { MAX_FORM_BYTES } from './limits.js'

// Maximum lengths of parameters, the same as in the proto.
export const MAX_ID_LENGTH = 128 // appid, openid, ids of grants
export const MAX_SECRET_LENGTH = 512
export const MAX_REDIRECT_URI_LENGTH = 2048
/** Parameters that must be one of a few words. */
export const MAX_WORD_LENGTH = 128

/** Not allowed in a URI (RFC 3986): the client should have encoded it. node:http accepts no URL that holds it. */
const UNENCODED = /[^!-~]/
/** C0, DEL and C1, NUL among them. */
const CONTROL = /\p{Cc}/u

/** Decoded pairs in the order of the text. A parameter that is not asked for does no harm, whatever its name or value. */
export class Params {
  /** Names and values, alternating. */
  readonly #pairs: readonly string[]

  constructor(pairs: readonly string[]) {
    this.#pairs = pairs
  }

  get isEmpty(): boolean {
    return this.#pairs.length === 0
  }

  /** The value, 1 to `maxLength` characters. @throws Problem when missing, empty, given twice or malformed. */
  required(name: string, maxLength: number): string {
    return present(name, this.optional(name, maxLength))
  }

  /**
   * A code or token of any form: what cannot be one is unknown to its service. A NUL, which no RPC takes in a text, becomes a
   * space, which no credential has either. @throws Problem when missing, empty or given twice.
   */
  credential(name: string): string {
    return present(name, this.#only(name)).replaceAll('\0', ' ')
  }

  /** The value, or '' when absent or empty. @throws Problem when given twice, too long or with control characters. */
  optional(name: string, maxLength: number): string {
    const value = this.#only(name)
    if (value.length > maxLength) {
      const malformed = { what: 'too_long', name, max: maxLength } as const
      throw invalidArgument(`${name} is longer than ${maxLength} characters`, { malformed })
    }
    if (CONTROL.test(value))
      throw invalidArgument(`${name} has control characters`, { malformed: { what: 'control_characters', name } })
    return value
  }

  /** The first value as sent, unchecked: to see what was sent, never to use it. */
  first(name: string): string | undefined {
    const at = this.#indexOf(name, 0)
    return at === -1 ? undefined : this.#pairs[at + 1]
  }

  #only(name: string): string {
    const at = this.#indexOf(name, 0)
    if (at === -1) return ''
    if (this.#indexOf(name, at + 2) !== -1)
      throw invalidArgument(`${name} is given more than once`, { malformed: { what: 'repeated', name } })
    return this.#pairs[at + 1] ?? ''
  }

  /** Index of the first such name from `start` on; -1 if there is none. */
  #indexOf(name: string, start: number): number {
    for (let at = start; at < this.#pairs.length; at += 2) if (this.#pairs[at] === name) return at
    return -1
  }
}

function present(name: string, value: string): string {
  if (value === '') throw invalidArgument(`${name} is missing or empty`, { malformed: { what: 'missing', name } })
  return value
}

/** Splits at `&` and the first `=`, turns `+` into a space, decodes `%XX` once. @throws Problem when malformed. */
export function parseQuery(raw: string): Params {
  if (UNENCODED.test(raw))
    throw invalidArgument('a character of the parameters is not percent-encoded', { malformed: { what: 'unencoded' } })
  const pairs: string[] = []
  for (const pair of raw.split('&')) {
    if (pair === '') continue
    const equals = pair.indexOf('=')
    if (equals === -1) pairs.push(decode(pair), '')
    else pairs.push(decode(pair.slice(0, equals)), decode(pair.slice(equals + 1)))
  }
  return new Params(pairs)
}

function decode(text: string): string {
  if (!text.includes('%') && !text.includes('+')) return text
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    throw invalidArgument('the parameters are not percent-encoded UTF-8', { malformed: { what: 'not_utf8' } })
  }
}

/** A decimal integer above 0 without sign or leading zero, possibly too large to be exact; undefined for other text. */
export function parsePositiveInteger(text: string): number | undefined {
  return /^[1-9]\d*$/.test(text) ? Number(text) : undefined
}

/** In a path, 1 to 2^53-1, so that it is exact in JSON everywhere (decisions 27). @throws Problem */
export function readId(name: string, text = ''): number {
  const id = parsePositiveInteger(text)
  if (id === undefined || id > Number.MAX_SAFE_INTEGER) {
    throw invalidArgument(`${name} must be an integer from 1 to ${Number.MAX_SAFE_INTEGER}`)
  }
  return id
}

/** A number from 1; `fallback` when absent or empty, `max` when larger. @throws Problem for anything else. */
export function readCount(query: Params, name: string, fallback: number, max: number): number {
  const text = query.optional(name, Number.POSITIVE_INFINITY) // the URL's length bounds it
  if (text === '') return fallback
  const count = parsePositiveInteger(text)
  if (count === undefined) throw invalidArgument(`${name} must be an integer from 1`)
  return Math.min(count, max)
}

const FORM_TYPE = 'application/x-www-form-urlencoded'

/** The parameters of a form. @throws Problem when of another type, or malformed. */
export function parseForm({ headers }: IncomingMessage, body: Buffer): Params {
  const [type = ''] = (headers['content-type'] ?? '').split(';', 1)
  if (type.trim().toLowerCase() !== FORM_TYPE || headers['content-encoding'] !== undefined) {
    throw invalidArgument(`the body must be ${FORM_TYPE}`, { httpStatus: 415 })
  }
  return parseQuery(body.toString('latin1')) // parseQuery refuses every byte that is not ASCII
}

const BROKEN_OFF = 'brokenOff'

/** Ends the reading of a body whose rest is malformed, or late. */
export function breakOff(request: IncomingMessage, problem: Problem): void {
  request.emit(BROKEN_OFF, problem)
}

/** The whole body, whether its length was announced or not. @throws Problem when it is larger than a form may be. */
export function readBody(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const tooLarge = () =>
      reject(invalidArgument(`the body is larger than ${MAX_FORM_BYTES} bytes`, { httpStatus: 413 }))
    if (Number(request.headers['content-length']) > MAX_FORM_BYTES) return tooLarge()
    const chunks: Buffer[] = []
    let size = 0
    request.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size <= MAX_FORM_BYTES) chunks.push(chunk)
      else tooLarge()
    })
    request.on('end', () => resolve(Buffer.concat(chunks)))
    request.on(BROKEN_OFF, reject)
    request.on('close', () => reject(invalidArgument('the request ended early', { httpStatus: 400 })))
  })
}
