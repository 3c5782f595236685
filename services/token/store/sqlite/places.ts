// Where the row of a grant is. All keys of its tokens begin with the same 8 bytes (services/token/credentials.ts). As a number
// these are the key of its row, so finding it needs no index of tokens, and rows that begin together lie together.
//
// Places are not unique: within a millisecond only their 16 random bits differ. So each aligned group of 16 places is shared by
// all grants whose place is in it, and a grant is recognised by the hash of its token.
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
