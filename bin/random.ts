// Random bytes from the operating system's generator, fetched a few KiB at a time: a call for 32 of them costs 2 to 3 µs,
// and an exchange needs five.
import { randomFillSync } from 'node:crypto'

const POOL_BYTES = 4096

/** A generator like `crypto.randomBytes`: what it returned is kept nowhere else, not even in the pool. */
export function pooledRandomBytes(): (size: number) => Uint8Array {
  const pool = new Uint8Array(POOL_BYTES)
  let used = POOL_BYTES
  return (size) => {
    if (size > POOL_BYTES) return randomFillSync(new Uint8Array(size))
    if (used + size > POOL_BYTES) {
      randomFillSync(pool)
      used = 0
    }
    const bytes = pool.slice(used, used + size)
    pool.fill(0, used, used + size)
    used += size
    return bytes
  }
}
