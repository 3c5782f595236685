// The notations in which a hash of a password is stored: it names its algorithm and its cost, so that one comparison serves
// them all. What others write is brought into these when it is imported (notations.ts).
import { type BinaryLike, createCipheriv, createHash, timingSafeEqual } from 'node:crypto'
import { inThread } from './threads.js'

export interface StoredHash {
  /** Algorithm and cost: comparing with hashes of one kind takes the same time. */
  readonly kind: string
  /** The text that hashes of its kind begin with, and no others. */
  readonly beginning: string
  /** What comparing takes more of than a sign-in may, if it does. */
  readonly excess: string | undefined
  matches(password: string): Promise<boolean>
}

/** What comparing with a hash costs, in words: how much, what its algorithm needs at least, and what a sign-in may cost. */
type Costs = Readonly<Record<string, { readonly is: number; readonly atLeast?: number; readonly atMost: number }>>

const MIB = 1024 ** 2
/** Times what a sign-in may cost: more is taken from nobody. */
const TOO_MUCH = 8
/** Of the functions that PBKDF2 is made of. */
const DIGEST_BYTES: Readonly<Record<string, number>> = { sha1: 20, sha256: 32, sha512: 64 }
const BASE64 = '([A-Za-z0-9+/]*)'

interface Notation {
  readonly pattern: RegExp
  read(parts: readonly string[], text: string): Omit<StoredHash, 'beginning'> & Partial<StoredHash>
}

const notations: readonly Notation[] = [
  {
    pattern:
      /^\$(argon2(?:id|i|d))\$(?:v=(16|19)\$)?m=(0|[1-9]\d{0,8}),t=(0|[1-9]\d{0,8}),p=(0|[1-9]\d{0,2})\$([A-Za-z0-9+/]{11,})\$([A-Za-z0-9+/]{16,})$/,
    read([algorithm, version = 16, memory, passes, lanes, salt, digest], text) {
      requireExact(salt)
      requireExact(digest)
      const mib = Number(memory) / 1024
      return {
        kind: `${algorithm} v=${version},m=${memory},t=${passes},p=${lanes}`,
        excess: excessOf({
          'MiB of memory': { is: mib, atLeast: Number(lanes) / 128, atMost: 128 },
          passes: { is: Number(passes), atMost: 16 },
          'MiB over all passes': { is: mib * Number(passes), atLeast: 0, atMost: 512 },
          lanes: { is: Number(lanes), atMost: 16 },
        }),
        matches: (password) => inThread('argon2Verify', text, password),
      }
    },
  },
  {
    pattern: /^\$(2[abxy])\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}$/,
    read: ([version, cost], text) => ({
      kind: `bcrypt ${version} cost=${Number(cost)}`,
      excess: excessOf({ rounds: { is: 2 ** Number(cost), atMost: 2 ** 13 } }),
      matches: (password) => inThread('bcryptVerify', password, text),
    }),
  },
  {
    pattern: RegExp(`^\\$pbkdf2-(sha1|sha256|sha512)\\$i=(\\d{1,9})\\$${BASE64}\\$${BASE64}$`),
    read([algorithm = '', iterations, salt, digest]) {
      const wanted = digestOf(digest)
      const blocks = Math.ceil(wanted.length / (DIGEST_BYTES[algorithm] ?? 1)) // each takes all iterations
      return {
        kind: `pbkdf2-${algorithm} i=${iterations},l=${wanted.length}`,
        excess: excessOf({ iterations: { is: Number(iterations) * blocks, atMost: 1_500_000 } }),
        async matches(password) {
          const args = [password, bytes(salt), Number(iterations), wanted.length, algorithm] as const
          return equal(await inThread('pbkdf2', ...args), wanted)
        },
      }
    },
  },
  {
    pattern: RegExp(`^\\$scrypt\\$ln=(\\d{1,2}),r=(\\d{1,3}),p=(\\d{1,3})\\$${BASE64}\\$${BASE64}$`),
    read([ln, r, p, salt, digest]) {
      const wanted = digestOf(digest)
      const cost = scryptCost(ln, r, p)
      return { ...cost, matches: async (password) => equal(await cost.derive(password, salt, wanted.length), wanted) }
    },
  },
  {
    // Firebase encrypts a key of the project with what scrypt derives. Stored is what the encryption added to that key, so
    // that the key of the project need not be known.
    pattern: RegExp(`^\\$firebase-scrypt\\$ln=(\\d{1,2}),r=(\\d{1,3}),p=(\\d{1,3})\\$${BASE64}\\$${BASE64}$`),
    read([ln, r, p, salt, keystream]) {
      const wanted = digestOf(keystream)
      const cost = scryptCost(ln, r, p)
      return {
        ...cost,
        kind: `firebase-${cost.kind}`,
        async matches(password) {
          const key = (await cost.derive(password, salt, 64)).subarray(0, 32)
          return equal(createCipheriv('aes-256-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(wanted.length)), wanted)
        },
      }
    },
  },
  {
    pattern: RegExp(
      `^\\$wrapped\\$(md5|sha1|sha256|sha512)\\$(password|salt\\+password|password\\+salt)(\\$.+)\\$${BASE64}$`,
    ),
    read([algorithm = '', order = '', wrapping = '', salt]) {
      const inner = readStoredHash(wrapping)
      return {
        kind: `${algorithm} in ${inner.kind}`,
        beginning: `$wrapped$${algorithm}$${order}${inner.beginning}`,
        excess: inner.excess,
        matches: (password) => inner.matches(fastDigest(algorithm, order, bytes(salt), password)),
      }
    },
  },
]

/** @throws UnusableHash in any other notation */
export function readStoredHash(text: string): StoredHash {
  for (const { pattern, read } of notations) {
    const parts = pattern.exec(text)
    if (parts) return { beginning: beginningOf(text), ...read(parts.slice(1), text) }
  }
  throw new UnusableHash('the password hash is in no notation that can be compared')
}

/** All but salt and digest, which are two parts, or one in bcrypt's. */
function beginningOf(text: string): string {
  const parts = text.split('$')
  return `${parts.slice(0, parts[1]?.startsWith('2') ? -1 : -2).join('$')}$`
}

/** The message says what is wrong with the hash and does not contain it. */
export class UnusableHash extends Error {
  override readonly name = 'UnusableHash'
}

/** The digest, in lower-case hexadecimal, that a slow hash is made of. */
export function fastDigest(algorithm: string, order: string | undefined, salt: Buffer, password: string): string {
  const hash = createHash(algorithm)
  const parts: BinaryLike[] = order === 'salt+password' ? [salt, password] : [password, salt]
  for (const part of order === 'password' ? [password] : parts) hash.update(part)
  return hash.digest('hex')
}

function scryptCost(ln: string | undefined, r: string | undefined, p: string | undefined) {
  const [N, blockSize, lanes] = [2 ** Number(ln), Number(r), Number(p)]
  const memory = 128 * N * blockSize
  return {
    kind: `scrypt ln=${ln},r=${r},p=${p}`,
    excess: excessOf({
      rounds: { is: N, atLeast: 2, atMost: 2 ** 20 },
      'bytes in a block for so many rounds': { is: 16 * blockSize, atLeast: Number(ln) + 1, atMost: 16_000 }, // RFC 7914 §2
      'MiB of memory': { is: memory / MIB, atLeast: 0, atMost: 64 },
      'MiB over all lanes': { is: (memory / MIB) * lanes, atLeast: 0, atMost: 128 },
      lanes: { is: lanes, atMost: 16 },
    }),
    derive(password: string, salt: string | undefined, length: number): Promise<Uint8Array> {
      const options = { N, r: blockSize, p: lanes, maxmem: memory * 2 + 128 * blockSize * lanes + MIB }
      return inThread('scrypt', password, bytes(salt), length, options)
    },
  }
}

/** @throws UnusableHash when the algorithm does not take so little, or nobody should spend so much */
function excessOf(costs: Costs): string | undefined {
  for (const [what, { is, atLeast = 1, atMost }] of Object.entries(costs)) {
    if (!(is >= atLeast)) throw new UnusableHash(`the password hash has too few ${what}`)
    if (is > atMost * TOO_MUCH) throw new UnusableHash(`comparing with it takes ${is} ${what}, far more than ${atMost}`)
  }
  const over = Object.entries(costs).find(([, { is, atMost }]) => is > atMost)
  if (!over) return undefined
  const [what, { is, atMost }] = over
  return `comparing with it takes ${is} ${what}, more than ${atMost}`
}

function bytes(base64 = ''): Buffer {
  return Buffer.from(base64, 'base64')
}

/** Base64 that decodes and encodes to itself: the library for argon2 takes no other, and says so at a sign-in only. */
function requireExact(base64 = ''): void {
  if (bytes(base64).toString('base64').replace(/=+$/, '') !== base64)
    throw new UnusableHash('the salt or digest of the password hash is no exact base64')
}

/** Shorter ones could be met by chance, longer ones are no digests. */
function digestOf(base64 = ''): Buffer {
  const digest = bytes(base64)
  if (digest.length < 16 || digest.length > 128)
    throw new UnusableHash('the digest of the password hash is not of 16 to 128 bytes')
  return digest
}

function equal(derived: Uint8Array, wanted: Buffer): boolean {
  return timingSafeEqual(derived, wanted)
}
