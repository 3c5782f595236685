// Where the row of a grant is. All keys of its tokens begin with the same 8 bytes (services/token/credentials.ts), and these,
// as a number, are the key of its row: no index of tokens is needed to find it, and what begins together lies together.
//
// A place says nothing about who else has it: 16 bits of it are random, in each millisecond. So every 16 places that
// follow each other are shared by the grants that belong to any of them, and a grant is told by its token's hash.
import { StoreUnavailable } from '../../../store/store-unavailable.js'
import type { Hash } from '../token-store.js'

const PLACE_BYTES = 8
const SLOTS = 16n
const SLOT_BITS = 0xfn
const WITHOUT_SIGN = 0x7fff_ffff_ffff_ffffn

/** The place of a hash: its first 8 bytes without the first bit. Never negative; 0 for what is shorter. */
export function placeNumber(hash: Hash): bigint {
  if (hash.length < PLACE_BYTES) return 0n
  return Buffer.from(hash.buffer, hash.byteOffset, hash.length).readBigUInt64BE() & WITHOUT_SIGN
}

/** A token elsewhere than its grant would never be found. @throws TypeError */
export function requireOnePlace(accessTokenHash: Hash, refreshTokenHash: Hash): void {
  for (let at = 0; at < PLACE_BYTES; at++) {
    if (accessTokenHash[at] !== refreshTokenHash[at]) {
      throw new TypeError('an access token is not at the place of its grant')
    }
  }
}

/**
 * Has the first free one of the places where a grant of this place may be, its own first, taken by `take`, which says
 * whether it was free. @throws StoreUnavailable when all are taken
 */
export function takeSlot(place: bigint, take: (slot: bigint) => boolean): bigint {
  for (let n = 0n; n < SLOTS; n++) {
    const slot = (place & ~SLOT_BITS) | ((place + n) & SLOT_BITS)
    if (take(slot)) return slot
  }
  throw new StoreUnavailable(new Error('too many grants began in this moment'))
}

/** Whether a grant of this place may be there. */
export function isInSlotOf(slot: bigint, place: bigint): boolean {
  return (slot & ~SLOT_BITS) === (place & ~SLOT_BITS)
}

/** SQL: whether a row is in a slot of the place that the parameter names, or that is bound twice. A range of the primary key. */
export const inSlotsOf = (parameter: string) =>
  `place BETWEEN ${parameter} & ~${SLOT_BITS} AND ${parameter} | ${SLOT_BITS}`
