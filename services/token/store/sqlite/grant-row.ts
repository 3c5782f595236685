// Where the row of a grant is. All keys of its tokens begin with the same 8 bytes (services/token/credentials.ts). As a number
// these are the key of its row, so finding it needs no index of tokens, and rows that begin together lie together.
//
// Places are not unique: within a millisecond only their 16 random bits differ. So each aligned group of 16 places is shared by
// all grants whose place is in it, and a grant is recognised by the hash of its token.
//
// In it are its access tokens, packed: newest first, for each 32 bytes of hash and 6 bytes of expiry, in ms since 1970, big-endian.
import type { StoredToken } from '../../../protocol/refresh.js'
import { StoreUnavailable } from '../../../storage/store-unavailable.js'
import type { Hash } from '../token-store.js'

const PLACE_BYTES = 8
const SLOTS = 16n
const SLOT_BITS = 0xfn
const WITHOUT_SIGN = 0x7fff_ffff_ffff_ffffn

/** The place of a hash: its first 8 bytes without the first bit. Never negative; 0 for a shorter hash. */
export function placeNumber(hash: Hash): bigint {
  if (hash.length < PLACE_BYTES) return 0n
  return Buffer.from(hash.buffer, hash.byteOffset, hash.length).readBigUInt64BE() & WITHOUT_SIGN
}

/** A token at another place than its grant would never be found. @throws TypeError */
export function requireOnePlace(tokenHash: Hash, ofGrant: Hash): void {
  for (let at = 0; at < PLACE_BYTES; at++) {
    if (tokenHash[at] !== ofGrant[at]) throw new TypeError('a token is not at the place of its grant')
  }
}

/**
 * Tries the places where a grant of this place may lie, its own first, until `take` says that one was free.
 * @throws StoreUnavailable when all are taken
 */
export function takeSlot(place: bigint, take: (slot: bigint) => boolean): void {
  for (let n = 0n; n < SLOTS; n++) {
    const slot = (place & ~SLOT_BITS) | ((place + n) & SLOT_BITS)
    if (take(slot)) return
  }
  throw new StoreUnavailable(new Error('too many grants began in this moment'))
}

/** SQL: whether a row lies in a slot of the place in the parameter (bound twice if it is `?`). A range of the primary key. */
export const inSlotsOf = (parameter: string) =>
  `place BETWEEN ${parameter} & ~${SLOT_BITS} AND ${parameter} | ${SLOT_BITS}`

const HASH_BYTES = 32
const TIME_BYTES = 6
const TOKEN_BYTES = HASH_BYTES + TIME_BYTES

/** SQL: the expiry of the newest token as packTime writes it, or empty, which sorts first. Such bytes compare as times do. */
export const NEWEST_EXPIRY = `coalesce(substr(access_tokens, ${HASH_BYTES + 1}, ${TIME_BYTES}), x'')`

/** SQL: each token as a row, as in PostgreSQL's table. */
export const TOKENS_ONE_BY_ONE = `
  WITH RECURSIVE token (at) AS (
    SELECT 0 UNION ALL
    SELECT at + ${TOKEN_BYTES} FROM token WHERE at < (SELECT max(length(access_tokens)) FROM grants))
  SELECT substr(access_tokens, at + 1, ${HASH_BYTES}) AS access_token_hash, grant_id,
    (length(access_tokens) - at) / ${TOKEN_BYTES} AS serial,
    ('0x' || hex(substr(access_tokens, at + 1 + ${HASH_BYTES}, ${TIME_BYTES}))) ->> '$' AS expires_at_ms
  FROM grants, token WHERE at < length(access_tokens)`

/** @throws TypeError for a hash of another length, which nobody would find */
export function packTokens(tokens: readonly StoredToken[]): Buffer {
  const packed = Buffer.allocUnsafe(tokens.length * TOKEN_BYTES)
  tokens.forEach(({ hash, expiresAtMs }, index) => {
    if (hash.length !== HASH_BYTES) throw new TypeError(`the hash of an access token has ${hash.length} bytes`)
    packed.set(hash, index * TOKEN_BYTES)
    packed.writeUIntBE(expiresAtMs, index * TOKEN_BYTES + HASH_BYTES, TIME_BYTES)
  })
  return packed
}

/** Their hashes are parts of `packed`. */
export function unpackTokens(packed: Buffer): StoredToken[] {
  const tokens: StoredToken[] = []
  for (let at = 0; at < packed.length; at += TOKEN_BYTES) {
    const end = at + HASH_BYTES
    tokens.push({ hash: packed.subarray(at, end), expiresAtMs: packed.readUIntBE(end, TIME_BYTES) })
  }
  return tokens
}

/** The expiry of the token with this hash; undefined when it is not among them. */
export function findExpiry(packed: Buffer, hash: Hash): number | undefined {
  return unpackTokens(packed).find((token) => Buffer.compare(token.hash, hash) === 0)?.expiresAtMs
}

/** The expiry of each. */
export function expiriesOf(packed: Buffer): number[] {
  return unpackTokens(packed).map(({ expiresAtMs }) => expiresAtMs)
}

export function packTime(atMs: number): Buffer {
  const packed = Buffer.alloc(TIME_BYTES)
  packed.writeUIntBE(Math.max(0, atMs), 0, TIME_BYTES)
  return packed
}

/** 0 if there is none. */
export function unpackTime(packed: Buffer): number {
  return packed.length === 0 ? 0 : packed.readUIntBE(0, TIME_BYTES)
}
