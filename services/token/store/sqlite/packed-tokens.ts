// The access tokens of a grant as its row has them: newest first, of each 32 bytes of hash and 6 of when it ends, in ms since
// 1970 with the highest byte first.
import type { Hash, Minting } from '../token-store.js'

const HASH_BYTES = 32
const TIME_BYTES = 6
const TOKEN_BYTES = HASH_BYTES + TIME_BYTES

/** What the row of a new grant has. */
export function packToken(hash: Hash, expiresAtMs: number): Buffer {
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
    if (expiresAtMs <= now) continue
    token.writeUIntBE(expiresAtMs, HASH_BYTES, TIME_BYTES)
    tokens.push(token)
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

/** How many they are, and when the last of them ends: 0 when there is none. */
export function countTokens(packed: Buffer): { readonly count: number; readonly lastEndMs: number } {
  const count = packed.length / TOKEN_BYTES
  const ends = Array.from({ length: count }, (_, n) => expiryOf(packed.subarray(n * TOKEN_BYTES)))
  return { count, lastEndMs: Math.max(0, ...ends) }
}

function expiryOf(token: Buffer): number {
  return token.readUIntBE(HASH_BYTES, TIME_BYTES)
}
