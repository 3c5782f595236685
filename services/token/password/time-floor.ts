// A sign-in answers no earlier than the slowest comparison takes: otherwise the time would tell who exists, and whose password
// another system has hashed.
import { setTimeout } from 'node:timers/promises'
import { behindAll, type TokenStore } from '../store/token-store.js'
import type { PasswordHasher } from './hasher.js'
import { readStoredHash } from './stored-hash.js'

/** Nobody waits longer for the sake of others. */
const LONGEST_MS = 500

export interface TimeFloor {
  /**
   * Fulfils when an answer to what began then may be given.
   * @param startedAt by performance.now()
   * @param comparisons that a wrong password of its kind takes
   */
  since(startedAt: number, comparisons?: number): Promise<void>
  /** Measures how long a comparison takes with each algorithm and cost in use that has not been measured before. */
  measure(): Promise<void>
}

export function createTimeFloor(
  store: Pick<TokenStore, 'findPasswordHash'>,
  passwords: Pick<PasswordHasher, 'inQueue' | 'isOwn'>,
  wait: (ms: number) => Promise<unknown> = setTimeout,
): TimeFloor {
  let measured: ReadonlyMap<string, number> = new Map()
  let floorMs = 0

  function comparisonMs(passwordHash: string): Promise<number> {
    return passwords.inQueue(async ({ compare }) => {
      const startedAt = performance.now()
      await compare(passwordHash, 'not the password of anybody')
      return performance.now() - startedAt
    })
  }

  return {
    async since(startedAt, comparisons = 1) {
      const leftMs = floorMs * comparisons - (performance.now() - startedAt)
      if (leftMs > 0) await wait(leftMs)
    },

    async measure() {
      const inUse = new Map<string, number>()
      for await (const { kind, passwordHash } of passwordHashKinds(store)) {
        if (!passwords.isOwn(passwordHash)) inUse.set(kind, measured.get(kind) ?? (await comparisonMs(passwordHash)))
      }
      measured = inUse
      floorMs = Math.min(Math.max(0, ...measured.values()), LONGEST_MS)
    },
  }
}

/** Each algorithm and cost in use, with a hash of it. */
export async function* passwordHashKinds(store: Pick<TokenStore, 'findPasswordHash'>) {
  let passwordHash = await store.findPasswordHash('')
  while (passwordHash !== undefined) {
    const { kind, beginning } = readStoredHash(passwordHash)
    yield { kind, beginning, passwordHash }
    passwordHash = await store.findPasswordHash(behindAll(beginning))
  }
}
