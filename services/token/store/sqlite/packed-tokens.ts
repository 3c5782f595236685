// The access tokens of a grant as its row has them: newest first, of each 32 bytes of hash and 6 of when it ends, in ms since
// 1970 with the highest byte first.
import type { Hash, Minting } from '../token-store.js'

const HASH_BYTES = 32
const TIME_BYTES = 6
const TOKEN_BYTES = HASH_BYTES + TIME_BYTES

/** SQL: when the newest one ends, as packTime writes it. Such bytes compare as the times do. */
export const NEWEST_EXPIRY = `substr(access_tokens, ${HASH_BYTES + 1}, ${TIME_BYTES})`

/** What the row of a new grant has. @throws TypeError for a hash of another length, which nobody would find */
export function packToken(hash: Hash, expiresAtMs: number): Buffer {
  if (hash.length !== HASH_BYTES) throw new TypeError(`the hash of an access token has ${hash.length} bytes`)
  const packed = Buffer.allocUnsafe(TOKEN_BYTES)
  packed.set(hash)
  packed.writeUIntBE(expiresAtMs, HASH_BYTES, TIME_BYTES)
  return packed
}

/** With the newest of `minting`; of those before, shortens what outlives the overlap and leaves out what has ended or is one too many. */
export function addToken(packed: Buffer, minting: Minting, now: number): Buffer {
  const tokens = [packToken(minting.accessTokenHash, minting.accessTokenExpiresAtMs)]
  for (let at = 0; at < packed.length && tokens.length < minting.maxLive; at += TOKEN_BYTES) {
    const token = packed.subarray(at, at + TOKEN_BYTES)
    const expiresAtMs = Math.min(expiryOf(token), now + minting.overlapMs)
    if (expiresAtMs > now) tokens.push(packToken(token.subarray(0, HASH_BYTES), expiresAtMs))
  }
  return Buffer.concat(tokens)
}

/** When the token with this hash ends; undefined when it is not among them. */
export function findExpiry(packed: Buffer, hash: Hash): number | undefined {
  for (let at = 0; at < packed.length; at += TOKEN_BYTES) {
    const token = packed.subarray(at, at + TOKEN_BYTES)
    if (token.subarray(0, HASH_BYTES).equals(hash)) return expiryOf(token)
  }
  return undefined
}

/** When each ends. */
export function expiriesOf(packed: Buffer): number[] {
  const ends: number[] = []
  for (let at = 0; at < packed.length; at += TOKEN_BYTES) ends.push(expiryOf(packed.subarray(at, at + TOKEN_BYTES)))
  return ends
}

export function packTime(atMs: number): Buffer {
  const packed = Buffer.alloc(TIME_BYTES)
  packed.writeUIntBE(Math.max(0, Math.ceil(atMs)), 0, TIME_BYTES)
  return packed
}

function expiryOf(token: Buffer): number {
  return token.readUIntBE(HASH_BYTES, TIME_BYTES)
}
