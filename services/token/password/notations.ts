// How other systems write a hash of a password, brought into a notation of stored-hash.ts. Fast digests (MD5, SHA-1 and the
// like) can be guessed by the billion a second, so each is hashed again, with argon2id: none of them is stored.
import { readStoredHash, UnusableHash } from './stored-hash.js'

/** A fast digest of a password, which is not stored as it is. */
interface FastDigest {
  readonly algorithm: string
  readonly order: 'password' | 'salt+password' | 'password+salt'
  readonly salt: Buffer
  readonly digest: Buffer
}

type Parts = readonly (string | undefined)[]

/** A notation of others: what is stored instead, which may in turn be such a notation. */
const notations: readonly (readonly [RegExp, (parts: Parts) => string | FastDigest])[] = [
  // PHC string format with a length, and passlib, which writes `.` for `+` and takes sha1 for granted.
  [/^\$pbkdf2-(sha1|sha256|sha512)\$i=(\d+),l=\d+\$(.*)$/, ([digest, i, rest]) => `$pbkdf2-${digest}$i=${i}$${rest}`],
  [
    /^\$pbkdf2(?:-(sha256|sha512))?\$(\d+)\$([A-Za-z0-9./]*)\$([A-Za-z0-9./]*)$/,
    ([digest = 'sha1', i, salt = '', hash = '']) =>
      `$pbkdf2-${digest}$i=${i}$${salt.replaceAll('.', '+')}$${hash.replaceAll('.', '+')}`,
  ],

  // Django: salts are text.
  [/^(?:argon2|bcrypt)(\$.*)$/, ([hash = '']) => hash.replace(/^\$\$/, '$')],
  [/^bcrypt_sha256\$(\$2[aby]\$.*)$/, ([hash]) => `$wrapped$sha256$password${hash}$`],
  [
    /^pbkdf2_(sha1|sha256)\$(\d+)\$([^$]+)\$([^$]+)$/,
    ([digest, i, salt, hash]) => `$pbkdf2-${digest}$i=${i}$${ofText(salt)}$${unpadded(hash)}`,
  ],
  [
    /^scrypt\$(\d+)\$([^$]+)\$(\d+)\$(\d+)\$([^$]+)$/,
    ([N, salt, r, p, hash]) => `$scrypt$ln=${Math.log2(Number(N))},r=${r},p=${p}$${ofText(salt)}$${unpadded(hash)}`,
  ],
  [
    /^(md5|sha1)\$([^$]*)\$([0-9a-f]+)$/,
    ([algorithm = '', salt = '', hex = '']) => ({
      algorithm,
      order: 'salt+password',
      salt: Buffer.from(salt),
      digest: Buffer.from(hex, 'hex'),
    }),
  ],

  // Spring Security.
  [/^\{bcrypt\}(\$2[aby]\$.*)$/, ([hash = '']) => hash],
  [/^\{argon2(?:@SpringSecurity_v5_8)?\}(\$argon2.*)$/, ([hash = '']) => hash],
  [/^\{pbkdf2\}([0-9a-f]{16})([0-9a-f]{64})$/, ([salt, hash]) => `$pbkdf2-sha1$i=185000$${ofHex(salt)}$${ofHex(hash)}`],
  [
    /^\{pbkdf2@SpringSecurity_v5_8\}([0-9a-f]{32})([0-9a-f]{64})$/,
    ([salt, hash]) => `$pbkdf2-sha256$i=310000$${ofHex(salt)}$${ofHex(hash)}`,
  ],
  [
    /^\{scrypt(?:@SpringSecurity_v5_8)?\}\$([0-9a-f]{1,3})([0-9a-f]{2})([0-9a-f]{2})\$([^$]+)\$([^$]+)$/,
    ([ln, r, p, salt, hash]) =>
      `$scrypt$ln=${number(ln)},r=${number(r)},p=${number(p)}$${unpadded(salt)}$${unpadded(hash)}`,
  ],
  [
    /^\{(MD5|SHA-1|SHA-256|SHA-512)\}(\{[^}]*\})?([0-9a-f]+)$/,
    ([algorithm = '', salt = '', hex = '']) => ({
      algorithm: algorithm.replace('-', '').toLowerCase(),
      order: 'password+salt',
      salt: Buffer.from(salt),
      digest: Buffer.from(hex, 'hex'),
    }),
  ],
  [
    /^\{(?:noop|CLEARTEXT|PLAIN)\}/i,
    () => {
      throw new UnusableHash('this is a password in clear text, not a hash')
    },
  ],

  // LDAP (RFC 2307): the salt follows the digest.
  [/^\{(?:CRYPT|ARGON2)\}(\$.*)$/, ([hash = '']) => hash],
  [
    /^\{S?(MD5|SHA|SHA256|SHA512)\}([A-Za-z0-9+/]{22,}={0,2})$/,
    ([name = '', base64 = '']) => {
      const bytes = Buffer.from(base64, 'base64')
      const algorithm = name === 'SHA' ? 'sha1' : name.toLowerCase()
      const length = DIGEST_BYTES[algorithm] ?? 0
      return { algorithm, order: 'password+salt', salt: bytes.subarray(length), digest: bytes.subarray(0, length) }
    },
  ],
]

const DIGEST_BYTES: Readonly<Record<string, number>> = { md5: 16, sha1: 20, sha256: 32, sha512: 64 }

/**
 * What to store of a hash that another system made.
 * @param hash hashes a text as a new password is hashed
 * @throws UnusableHash when its notation is unknown, or comparing with it would cost more than a sign-in may
 */
export async function toStoredHash(
  text: string,
  hash: (text: string) => Promise<string>,
  { anyCost = false } = {},
): Promise<string> {
  const translated = translate(text)
  const stored = typeof translated === 'string' ? translated : await wrapped(translated, hash)
  const { excess } = readStoredHash(stored)
  if (excess && !anyCost) throw new UnusableHash(excess)
  return stored
}

/**
 * A hash of Firebase in a notation that can be stored.
 * @param key of the project, which Firebase encrypts with what it derives from a password
 * @param salt of the account, followed by the separator of the project
 */
export function firebaseHash(of: {
  digest: Buffer
  key: Buffer
  salt: Buffer
  memoryCost: number
  rounds: number
}): string {
  const keystream = of.digest.map((byte, index) => byte ^ (of.key[index] ?? 0))
  const [salt, added] = [of.salt, Buffer.from(keystream)].map((bytes) => unpadded(bytes.toString('base64')))
  return `$firebase-scrypt$ln=${of.memoryCost},r=${of.rounds},p=1$${salt}$${added}`
}

function translate(text: string): string | FastDigest {
  for (const [pattern, toStored] of notations) {
    const parts = pattern.exec(text)
    if (parts) return toStored(parts.slice(1))
  }
  return text
}

async function wrapped(fast: FastDigest, hash: (text: string) => Promise<string>): Promise<string> {
  const { algorithm, salt, digest } = fast
  if (digest.length !== DIGEST_BYTES[algorithm]) throw new UnusableHash(`a digest of ${algorithm} has another length`)
  const order = salt.length === 0 ? 'password' : fast.order
  return `$wrapped$${algorithm}$${order}${await hash(digest.toString('hex'))}$${unpadded(salt.toString('base64'))}`
}

function unpadded(base64 = ''): string {
  return base64.replace(/=+$/, '')
}

function ofText(text = ''): string {
  return unpadded(Buffer.from(text).toString('base64'))
}

function ofHex(hex = ''): string {
  return unpadded(Buffer.from(hex, 'hex').toString('base64'))
}

function number(hex = ''): number {
  return Number.parseInt(hex, 16)
}
