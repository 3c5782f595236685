import { LAST_USE_RESOLUTION_MS, type TokenStore } from './store/token-store.js'

/** Collects last uses of grants and secrets and writes them periodically, so that reading a token writes nothing. */
export interface UseRecorder {
  grantUsed(grantId: string, now: number, knownLastUseMs: number): void
  answersRead(grantId: string, now: number, knownLastReadMs: number): void
  /** Whether the use will be written. */
  secretUsed(secretId: string, now: number, knownLastUseMs: number | undefined): boolean
  /** Writes what was collected; keeps it if the store is unavailable. */
  flush(): Promise<void>
}

/** Last uses are recorded to the minute: one that differs by less is not worth a write. */
function isAbout(atMs: number | undefined, now: number): boolean {
  return atMs !== undefined && Math.abs(now - atMs) < LAST_USE_RESOLUTION_MS
}

/** Beyond this, uses are dropped until the next flush: a last use is worth less than unbounded memory. */
const MAX_COLLECTED = 100_000

export function createUseRecorder(store: TokenStore): UseRecorder {
  let grants = new Map<string, number>()
  let answers = new Map<string, number>()
  let secrets = new Map<string, number>()

  const collect = (into: Map<string, number>, id: string, now: number, knownMs: number | undefined) => {
    if (isAbout(knownMs, now)) return false
    if (isAbout(into.get(id), now)) return true
    if (into.size >= MAX_COLLECTED && !into.has(id)) return false
    into.set(id, now)
    return true
  }

  /** Restores what was not written. Uses collected since are later and win; the bound applies. */
  const putBack = (taken: ReadonlyMap<string, number>, since: Map<string, number>) => {
    for (const [id, atMs] of taken) if (!since.has(id) && since.size < MAX_COLLECTED) since.set(id, atMs)
  }

  return {
    grantUsed: (grantId, now, knownMs) => collect(grants, grantId, now, knownMs),
    answersRead: (grantId, now, knownMs) => collect(answers, grantId, now, knownMs),
    secretUsed: (secretId, now, knownMs) => collect(secrets, secretId, now, knownMs),
    async flush() {
      if (grants.size === 0 && answers.size === 0 && secrets.size === 0) return
      const taken = { grants, answers, secrets }
      grants = new Map()
      answers = new Map()
      secrets = new Map()
      try {
        await store.recordUses(taken)
      } catch (error) {
        putBack(taken.grants, grants)
        putBack(taken.answers, answers)
        putBack(taken.secrets, secrets)
        throw error
      }
    },
  }
}
