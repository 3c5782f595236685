// Reads `application/x-www-form-urlencoded` text, from the query and from forms, stricter than URLSearchParams: what
// that class repairs silently (a lone `%`, bytes that are not UTF-8) is refused here, and nothing is decoded twice.
import { invalidArgument } from './errors.js'

const AMPERSAND = 0x26
const EQUALS = 0x3d
const PERCENT = 0x25
const PLUS = 0x2b
const FIRST_PRINTABLE = 0x21
const LAST_PRINTABLE = 0x7e

/** Decoded pairs in the order of the text. A parameter nobody asks for does no harm, whatever its name or value. */
export class Params {
  readonly #names: readonly string[]
  readonly #values: readonly string[]

  constructor(names: readonly string[], values: readonly string[]) {
    this.#names = names
    this.#values = values
  }

  /** The value, 1 to `maxLength` characters. @throws Problem when missing, empty, given twice or malformed. */
  required(name: string, maxLength: number): string {
    const value = this.optional(name, maxLength)
    if (value === '') throw invalidArgument(`${name} is missing or empty`)
    return value
  }

  /** The value, or '' when absent or empty. @throws Problem when given twice, too long or with control characters. */
  optional(name: string, maxLength: number): string {
    const at = this.#names.indexOf(name)
    if (at === -1) return ''
    if (this.#names.indexOf(name, at + 1) !== -1) throw invalidArgument(`${name} is given more than once`)
    const value = this.#values[at] ?? ''
    if (value.length > maxLength) throw invalidArgument(`${name} is longer than ${maxLength} characters`)
    if (hasControlCharacter(value)) throw invalidArgument(`${name} has control characters`)
    return value
  }

  /** The first value as sent, unchecked: to see what was sent, never to use it. */
  first(name: string): string | undefined {
    const at = this.#names.indexOf(name)
    return at === -1 ? undefined : this.#values[at]
  }
}

/** Splits at `&` and the first `=`, turns `+` into a space, decodes `%XX` once. @throws Problem when malformed. */
export function parseQuery(raw: string): Params {
  const names: string[] = []
  const values: string[] = []
  let start = 0
  let equals = -1
  let isEncoded = false
  for (let at = 0; at <= raw.length; at++) {
    const char = at === raw.length ? AMPERSAND : raw.charCodeAt(at)
    if (char === AMPERSAND) {
      if (at > start) {
        const nameEnd = equals === -1 ? at : equals
        const name = raw.slice(start, nameEnd)
        const value = raw.slice(Math.min(nameEnd + 1, at), at)
        names.push(isEncoded ? decode(name) : name)
        values.push(isEncoded ? decode(value) : value)
      }
      start = at + 1
      equals = -1
      isEncoded = false
    } else if (char === EQUALS) {
      if (equals === -1) equals = at
    } else if (char === PERCENT || char === PLUS) {
      isEncoded = true
    } else if (char < FIRST_PRINTABLE || char > LAST_PRINTABLE) {
      throw invalidArgument('a character of the parameters is not percent-encoded')
    }
  }
  return new Params(names, values)
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    throw invalidArgument('the parameters are not percent-encoded UTF-8')
  }
}

/** C0, DEL or C1, NUL among them. */
function hasControlCharacter(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char < 0x20 || (char >= 0x7f && char <= 0x9f)) return true
  }
  return false
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
