// Reads `application/x-www-form-urlencoded` text, from the query and from forms, stricter than URLSearchParams: what
// that class repairs silently (a lone `%`, bytes that are not UTF-8) is refused here, and nothing is decoded twice.
import { invalidArgument } from './errors.js'

/** Not allowed in a URI (RFC 3986): the client should have encoded it. node:http accepts no URL that holds it. */
const UNENCODED = /[^!-~]/
/** C0, DEL and C1, NUL among them. */
const CONTROL = /\p{Cc}/u

/** Decoded pairs in the order of the text. A parameter that is not asked for does no harm, whatever its name or value. */
export class Params {
  /** Names and values, alternating. */
  readonly #pairs: readonly string[]
  /** Whether a value may hold characters that a URI cannot. */
  readonly #isDecoded: boolean

  constructor(pairs: readonly string[], isDecoded: boolean) {
    this.#pairs = pairs
    this.#isDecoded = isDecoded
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
    if (this.#isDecoded && CONTROL.test(value))
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
  const isEncoded = raw.includes('%') || raw.includes('+')
  const pairs: string[] = []
  let equals = -1
  for (let start = 0; start < raw.length; ) {
    const end = indexIn(raw, '&', start)
    if (equals < start) equals = indexIn(raw, '=', start)
    if (end > start) {
      const nameEnd = Math.min(equals, end)
      const name = raw.slice(start, nameEnd)
      const value = raw.slice(nameEnd + 1, end)
      pairs.push(isEncoded ? decode(name) : name, isEncoded ? decode(value) : value)
    }
    start = end + 1
  }
  return new Params(pairs, isEncoded)
}

/** Index of the first such character from `start` on; the end of the text if there is none. */
function indexIn(raw: string, char: string, start: number): number {
  const at = raw.indexOf(char, start)
  return at === -1 ? raw.length : at
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    throw invalidArgument('the parameters are not percent-encoded UTF-8', { malformed: { what: 'not_utf8' } })
  }
}

/** A decimal integer above 0 without sign or leading zero, possibly too large to be exact; undefined for other text. */
export function parsePositiveInteger(text: string): number | undefined {
  let value = 0
  for (let at = 0; at < text.length; at++) {
    const digit = text.charCodeAt(at) - 0x30
    if (digit < 0 || digit > 9) return undefined
    value = value * 10 + digit
    if (value === 0) return undefined
  }
  return value === 0 ? undefined : value
}
