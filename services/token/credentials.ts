// The credentials this service makes: opaque, prefixed by kind, 256 random bits, checksum at the end.
// Layout: `<prefix>_` + base64url of the body + 6 characters (CRC-32 of what precedes, base64url).
// The body is 32 random bytes, or a place and 32 random bytes.
import { createHmac, hash } from 'node:crypto'
import { crc32 } from 'node:zlib'

/** What secret scanners find it by; decisions 15. */
const prefixes = {
  code: 'sac',
  accessToken: 'sat',
  refreshToken: 'sart',
  secret: 'sas',
  session: 'sase',
} as const
export type CredentialKind = keyof typeof prefixes

const RANDOM_BYTES = 32
const CHECKSUM_LENGTH = 6

/**
 * 8 bytes that say where in its table a row lies: rows that are made or changed together lie together. A table ordered by
 * hashes alone scatters them, and then every row of a group commit dirties a page of its own in every index.
 * A code, the grant it becomes and all tokens of that have the same: 6 bytes of time, and 2 that tell those of one moment
 * apart, of which 65,536 have room. It is no secret and nothing is decided by it.
 */
export type Place = Uint8Array
const PLACE_BYTES = 8
const TIME_BYTES = 6 // ms since 1970
const DAY_MS = 86_400_000
const KEY_BYTES = 32
const PLACE_LENGTH = base64urlLength(PLACE_BYTES) // the last two bits are another byte's

const lengthOf = { plain: base64urlLength(RANDOM_BYTES), placed: base64urlLength(PLACE_BYTES + RANDOM_BYTES) }

/** A credential this service has made: the text for its holder, the key for the store. */
export interface Credential {
  readonly text: string
  /** See storeKey. */
  readonly hash: Uint8Array
}

/** The place of what begins now. */
export function newPlace(nowMs: number, randomBytes: (size: number) => Uint8Array): Place {
  const place = Buffer.alloc(PLACE_BYTES)
  place.writeUIntBE(Math.max(0, Math.floor(nowMs)), 0, TIME_BYTES)
  place.set(randomBytes(PLACE_BYTES - TIME_BYTES), TIME_BYTES)
  return place
}

export function newCredential(
  kind: CredentialKind,
  randomBytes: (size: number) => Uint8Array,
  place?: Place,
): Credential {
  return fromBytes(kind, randomBytes(RANDOM_BYTES), place)
}

/** Its key if it can be a credential of this kind; undefined for what was mistyped or is of another kind. */
export function hashCredential(kind: CredentialKind, text: string): Uint8Array | undefined {
  const start = bodyStart(kind)
  const bodyLength = text.length - start - CHECKSUM_LENGTH
  if (bodyLength !== lengthOf.plain && bodyLength !== lengthOf.placed) return undefined
  if (!text.startsWith(`${prefixes[kind]}_`)) return undefined
  const bodyEnd = text.length - CHECKSUM_LENGTH
  if (checksum(text.slice(0, bodyEnd)) !== text.slice(bodyEnd)) return undefined
  return storeKey(text, bodyLength === lengthOf.placed ? start : undefined)
}

/** Whether it begins as a credential does, whatever follows: no message repeats it. */
export function isLikeCredential(text: string): boolean {
  return Object.values(prefixes).some((prefix) => text.startsWith(`${prefix}_`))
}

/** A credential as somebody presents it. Of most, which a store found before, no more is needed than the digest. */
export class PresentedCredential {
  /** SHA-256 of the text, a character for each byte. */
  readonly digest: string
  readonly #kind: CredentialKind
  readonly #text: string

  constructor(kind: CredentialKind, text: string) {
    this.digest = hash('sha256', text, 'binary')
    this.#kind = kind
    this.#text = text
  }

  /** As hashCredential. */
  get hash(): Uint8Array | undefined {
    return hashCredential(this.#kind, this.#text)
  }

  /** A character for each byte; empty if it has none. For one that has a hash. */
  get place(): string {
    const start = bodyStart(this.#kind)
    if (this.#text.length - start - CHECKSUM_LENGTH !== lengthOf.placed) return ''
    return placeIn(this.#text, start)
  }
}

/** A credential of which only digest and place are known. */
export class DigestedCredential {
  readonly digest: string
  readonly #place: string

  /** A character for each byte; the place is empty if it has none. What has another length is no credential. */
  constructor(digest: string, place: string) {
    this.digest = digest
    this.#place = place
  }

  /** As hashCredential. */
  get hash(): Uint8Array | undefined {
    const { length } = this.#place
    if (this.digest.length !== KEY_BYTES || (length !== 0 && length !== PLACE_BYTES)) return undefined
    return keyFrom(this.digest, this.#place)
  }
}

/** Where the row of this key lies. Of a credential without a place, which versions up to 0.1.0 made, its own hash says it. */
export function placeOf(key: Uint8Array): Place {
  return key.subarray(0, PLACE_BYTES)
}

/**
 * The code of a confirmed form: the same for the same session, form and attempt, so that a double click yields one code.
 * As unguessable as the session token, which only the user's browser holds. Ids of our forms begin with the time, in 8
 * characters, and that is the place of their codes; any others' codes are anywhere.
 */
export function deriveCode(
  sessionToken: string,
  form: readonly [requestId: string, ...string[]],
  attempt: number,
  nowMs: number,
): Credential {
  const message = JSON.stringify(['survey-auth code', ...form, attempt])
  const digest = createHmac('sha512', sessionToken).update(message).digest()
  const place = Buffer.from(digest.subarray(RANDOM_BYTES, RANDOM_BYTES + PLACE_BYTES))
  const time = Buffer.alloc(TIME_BYTES)
  time.write(form[0], 'base64url')
  if (isAbout(time, nowMs)) place.set(time)
  return fromBytes('code', digest.subarray(0, RANDOM_BYTES), place)
}

/** The place of a grant and its tokens: that of its code, unless that says no time, as those of earlier versions. */
export function placeOfGrant(codeKey: Uint8Array, nowMs: number, randomBytes: (size: number) => Uint8Array): Place {
  const place = placeOf(codeKey)
  return isAbout(place, nowMs) ? place : newPlace(nowMs, randomBytes)
}

/** Whether a place begins with a time within a day of now. */
function isAbout(place: Uint8Array, nowMs: number): boolean {
  const atMs = Buffer.from(place.buffer, place.byteOffset, TIME_BYTES).readUIntBE(0, TIME_BYTES)
  return Math.abs(atMs - nowMs) < DAY_MS
}

/** An identifier that is no secret: `<prefix>_` + 22 characters (16 bytes, base64url), random but for the place. */
export function newId(prefix: string, randomBytes: (size: number) => Uint8Array, place?: Place): string {
  const bytes = place ? Buffer.concat([place, randomBytes(16 - PLACE_BYTES)]) : Buffer.from(randomBytes(16))
  return `${prefix}_${bytes.toString('base64url')}`
}

function fromBytes(kind: CredentialKind, random: Uint8Array, place?: Place): Credential {
  const bytes = place ? Buffer.concat([place, random]) : Buffer.from(random)
  const body = `${prefixes[kind]}_${bytes.toString('base64url')}`
  const text = body + checksum(body)
  return { text, hash: storeKey(text, place && bodyStart(kind)) }
}

/** What the store knows a credential by, 32 bytes; its place, if it has one, begins at `placeAt` of the text. */
function storeKey(text: string, placeAt: number | undefined): Uint8Array {
  return keyFrom(hash('sha256', text, 'binary'), placeAt === undefined ? '' : placeIn(text, placeAt))
}

/** The SHA-256 of the text; with a place, that and the first 24 bytes of it. All of a character for each byte. */
function keyFrom(digest: string, place: string): Uint8Array {
  return Buffer.from((place + digest).slice(0, KEY_BYTES), 'latin1')
}

/** A character for each byte. */
function placeIn(text: string, placeAt: number): string {
  return Buffer.from(text.slice(placeAt, placeAt + PLACE_LENGTH), 'base64url').toString('latin1', 0, PLACE_BYTES)
}

const crc = Buffer.alloc(4)

function checksum(text: string): string {
  crc.writeUInt32BE(crc32(text))
  return crc.toString('base64url')
}

function bodyStart(kind: CredentialKind): number {
  return prefixes[kind].length + 1
}

function base64urlLength(bytes: number): number {
  return Math.ceil((bytes * 4) / 3)
}
