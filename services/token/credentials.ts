// The credentials this service makes: opaque, prefixed by kind, 256 random bits, checksum at the end.
// Layout: `<prefix>_` + 43 characters (32 bytes, base64url) + 6 characters (CRC-32 of what precedes, base64url).
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

const BODY_BYTES = 32
const BODY_LENGTH = 43
const CHECKSUM_LENGTH = 6

/** A credential this service has made: the text for its holder, the hash for the store. */
export interface Credential {
  readonly text: string
  /** SHA-256 of the text. */
  readonly hash: Uint8Array
}

export function newCredential(kind: CredentialKind, randomBytes: (size: number) => Uint8Array): Credential {
  return fromBytes(kind, randomBytes(BODY_BYTES))
}

/** Its SHA-256 if it can be a credential of this kind; undefined for what was mistyped or is of another kind. */
export function hashCredential(kind: CredentialKind, text: string): Uint8Array | undefined {
  const prefix = prefixes[kind]
  const bodyEnd = prefix.length + 1 + BODY_LENGTH
  if (text.length !== bodyEnd + CHECKSUM_LENGTH || !text.startsWith(`${prefix}_`)) return undefined
  if (checksum(text.slice(0, bodyEnd)) !== text.slice(bodyEnd)) return undefined
  return sha256(text)
}

/**
 * The code of a confirmed form: the same for the same session, form and attempt, so that a double click yields one code.
 * As unguessable as the session token, which only the user's browser holds.
 */
export function deriveCode(sessionToken: string, form: readonly string[], attempt: number): Credential {
  const message = JSON.stringify(['survey-auth code', ...form, attempt])
  return fromBytes('code', createHmac('sha256', sessionToken).update(message).digest())
}

/** An identifier that is no secret: `<prefix>_` + 22 characters (16 random bytes, base64url). */
export function newId(prefix: string, randomBytes: (size: number) => Uint8Array): string {
  return `${prefix}_${Buffer.from(randomBytes(16)).toString('base64url')}`
}

function fromBytes(kind: CredentialKind, bytes: Uint8Array): Credential {
  const body = `${prefixes[kind]}_${Buffer.from(bytes).toString('base64url')}`
  const text = body + checksum(body)
  return { text, hash: sha256(text) }
}

function sha256(text: string): Uint8Array {
  return hash('sha256', text, 'buffer')
}

function checksum(text: string): string {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(crc32(text))
  return bytes.toString('base64url')
}
