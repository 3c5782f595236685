// The credentials this service issues: opaque, prefixed by kind, with 256 random bits and a checksum at the end.
// Layout: `<prefix>_` + base64url of the body + 6 characters (CRC-32 of what precedes, base64url).
// The body is 32 random bytes, in codes and tokens after a place.
import { createHmac, hash } from 'node:crypto'
import { crc32 } from 'node:zlib'

/** Secret scanners find credentials by these; decisions 15. */
const prefixes = {
  code: 'sac',
  accessToken: 'sat',
  refreshToken: 'sart',
  secret: 'sas',
  session: 'sase',
} as const
export type CredentialKind = keyof typeof prefixes
/** Those that hold a place. */
type PlacedKind = 'code' | 'accessToken' | 'refreshToken'

const RANDOM_BYTES = 32
const CHECKSUM_LENGTH = 6

/**
 * 8 bytes that say where in its table a row lies, so that rows created or changed together lie together. A table ordered by
 * hashes alone scatters them, and then every row of a group commit dirties a page of its own in every index.
 * A code, the grant it becomes and all tokens of that grant share one place: 6 bytes of time, and 2 bytes that distinguish up
 * to 65,536 places of the same ms. A place is not secret, and nothing is decided by it.
 */
export type Place = Uint8Array
const PLACE_BYTES = 8
const TIME_BYTES = 6 // ms since 1970
const DAY_MS = 86_400_000
const KEY_BYTES = 32
const PLACE_LENGTH = base64urlLength(PLACE_BYTES) // its last two bits belong to the next byte

const PLAIN_LENGTH = base64urlLength(RANDOM_BYTES)
const PLACED_LENGTH = base64urlLength(PLACE_BYTES + RANDOM_BYTES)
/** Of the body, in characters. */
const lengths: Readonly<Record<CredentialKind, number>> = {
  code: PLACED_LENGTH,
  accessToken: PLACED_LENGTH,
  refreshToken: PLACED_LENGTH,
  secret: PLAIN_LENGTH,
  session: PLAIN_LENGTH,
}

/** A new credential: the text for its holder, the key for the store. */
export interface Credential {
  readonly text: string
  /** See storeKey. */
  readonly hash: Uint8Array
}

export function newCredential<Kind extends CredentialKind>(
  kind: Kind,
  randomBytes: (size: number) => Uint8Array,
  ...place: Kind extends PlacedKind ? [Place] : []
): Credential {
  return fromBytes(kind, randomBytes(RANDOM_BYTES), ...place)
}

/** The store key of a credential; undefined for text that is mistyped or of another kind. */
export function hashCredential(kind: CredentialKind, text: string): Uint8Array | undefined {
  const start = bodyStart(kind)
  const bodyEnd = text.length - CHECKSUM_LENGTH
  if (bodyEnd - start !== lengths[kind] || !text.startsWith(`${prefixes[kind]}_`)) return undefined
  if (checksum(text.slice(0, bodyEnd)) !== text.slice(bodyEnd)) return undefined
  return storeKey(text, lengths[kind] === PLACED_LENGTH ? start : undefined)
}

/** What a browser carries to another server and back, within minutes: 43 characters of base64url, of which nobody types one. */
export function newTicket(randomBytes: (size: number) => Uint8Array): Credential {
  const text = Buffer.from(randomBytes(RANDOM_BYTES)).toString('base64url')
  return { text, hash: hashSecret(text) }
}

/** undefined for text that cannot be a ticket. */
export function hashTicket(text: string): Uint8Array | undefined {
  return /^[\w-]{43}$/.test(text) ? hashSecret(text) : undefined
}

export function hashSecret(text: string): Uint8Array {
  return hash('sha256', text, 'buffer')
}

/** Whether the text begins as a credential does, whatever follows; no message may repeat such text. */
export function isLikeCredential(text: string): boolean {
  return Object.values(prefixes).some((prefix) => text.startsWith(`${prefix}_`))
}

/** A credential as presented. Most were looked up before, and then only the digest is needed. */
export class PresentedCredential {
  /** SHA-256 of the text, one character per byte. */
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
}

/** Where the row of this key of a code or token lies. */
export function placeOf(key: Uint8Array): Place {
  return key.subarray(0, PLACE_BYTES)
}

/**
 * The code of a confirmed form: the same for the same session, form and attempt, so that a double click yields one code.
 * As unguessable as the session token, which only the user's browser holds. Ids of our own forms begin with the time, in 8
 * characters, which becomes the place of their codes; codes of other callers lie anywhere, and so do their grants.
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

/**
 * The access token of a grant that ends at this time: the same for the same refresh token, so that refreshes can share one that is
 * stored only as a hash. The id of the grant, which apps are not told, keeps whoever has nothing but the refresh token of an app
 * that must send its secret from guessing it.
 */
export function deriveAccessToken(
  refreshToken: string,
  place: Place,
  grantId: string,
  expiresAtMs: number,
): Credential {
  const message = JSON.stringify(['survey-auth access token', grantId, expiresAtMs])
  return fromBytes('accessToken', createHmac('sha256', refreshToken).update(message).digest(), place)
}

/** Whether the place begins with a time within a day of now. */
function isAbout(place: Uint8Array, nowMs: number): boolean {
  const atMs = Buffer.from(place.buffer, place.byteOffset, TIME_BYTES).readUIntBE(0, TIME_BYTES)
  return Math.abs(atMs - nowMs) < DAY_MS
}

/** An identifier, not secret: `<prefix>_` + 22 characters (16 bytes, base64url), random except for the place. */
export function newId(prefix: string, randomBytes: (size: number) => Uint8Array, place?: Place): string {
  const bytes = place ? Buffer.concat([place, randomBytes(16 - PLACE_BYTES)]) : Buffer.from(randomBytes(16))
  return `${prefix}_${bytes.toString('base64url')}`
}

/** The identifier that a caller's request_id stands for: the same each time; a random one for an empty request_id. */
export function idOfRequest(prefix: string, requestId: string, randomBytes: (size: number) => Uint8Array): string {
  if (requestId === '') return newId(prefix, randomBytes)
  return newId(prefix, (size) => hash('sha256', `${prefix} ${requestId}`, 'buffer').subarray(0, size))
}

/** What `newId` makes with this prefix. */
export function idForm(prefix: string): RegExp {
  return new RegExp(`^${prefix}_[\\w-]{22}$`)
}

function fromBytes(kind: CredentialKind, random: Uint8Array, place?: Place): Credential {
  const bytes = place ? Buffer.concat([place, random]) : Buffer.from(random)
  const body = `${prefixes[kind]}_${bytes.toString('base64url')}`
  const text = body + checksum(body)
  return { text, hash: storeKey(text, place && bodyStart(kind)) }
}

/**
 * The store's key for a credential, 32 bytes: the SHA-256 of the text or, with a place, which begins at `placeAt` in it, the place
 * and the first 24 bytes of that.
 */
function storeKey(text: string, placeAt: number | undefined): Uint8Array {
  const place = placeAt === undefined ? '' : placeIn(text, placeAt)
  return Buffer.from((place + hash('sha256', text, 'binary')).slice(0, KEY_BYTES), 'latin1')
}

/** One character per byte. */
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
