// A sign-in answers no earlier than the slowest comparison takes: otherwise the time would tell who exists, and whose password
// another system has hashed.
import { setTimeout } from 'node:timers/promises'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../../rpc/service-error.js'
import { isOver, type Until } from '../../storage/cause.js'
import { behindAll, type TokenStore } from '../store/token-store.js'
import type { PasswordHasher } from './hasher.js'
import { readStoredHash } from './stored-hash.js'

/** Nobody waits longer for the sake of others. */
const LONGEST_MS = 500
/** By how much a comparison may take longer than one before it, on a machine that has other work to do. */
const MARGIN = 1.25
/** Of one source, besides the one whose turn it is: the last answer of them all comes before the gateway gives up. */
const MOST_WAITING = 7

export interface Timed extends Until {
  /** As the sign-in limiter has it. */
  readonly source: string
  /** That a wrong password of its kind takes. */
  readonly comparisons: number
}

export interface TimeFloor {
  /**
   * What `attempt` answers, when its time has come. Attempts of one source are made one after the other: how long one waits for
   * a thread would tell what the others had to compare.
   * @throws ServiceError RATE_LIMITED when too many are waiting, before `attempt` begins; else what `attempt` throws
   */
  kept<T>(timed: Timed, attempt: () => Promise<T>): Promise<T>
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
  /** Attempts of each source that has any. */
  const lines = new Map<string, { inside: number; last: Promise<unknown> }>()

  function raiseTo(slowestMs: number): void {
    if (slowestMs > floorMs) floorMs = Math.min(slowestMs * MARGIN, LONGEST_MS)
  }

  async function timed<T>(comparisons: number, attempt: () => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    const answer = await attempt()
    const tookMs = performance.now() - startedAt
    if (floorMs > 0) raiseTo(tookMs / comparisons)
    const leftMs = floorMs * comparisons - tookMs
    if (leftMs > 0) await wait(leftMs)
    return answer
  }

  /** After all others of the source, unless nobody waits for it any longer by then. */
  async function inLine<T>({ source, ...until }: Timed, attempt: () => Promise<T>): Promise<T> {
    const line = lines.get(source) ?? { inside: 0, last: Promise.resolve() }
    if (line.inside > MOST_WAITING) throw tooMany()
    lines.set(source, line)
    line.inside += 1
    const turn = line.last.then(() => {
      if (isOver(until)) throw tooMany()
      return attempt()
    })
    line.last = turn.catch(() => undefined)
    try {
      return await turn
    } finally {
      line.inside -= 1
      if (line.inside === 0) lines.delete(source)
    }
  }

  function tooMany(): ServiceError {
    const retryAfterSeconds = Math.ceil((floorMs * MOST_WAITING) / 1_000) || 1
    return new ServiceError(ErrorReason.RATE_LIMITED, 'too many sign-ins of this source at once', { retryAfterSeconds })
  }

  function comparisonMs(passwordHash: string): Promise<number> {
    return passwords.inQueue(async ({ compare }) => {
      const startedAt = performance.now()
      await compare(passwordHash, 'not the password of anybody')
      return performance.now() - startedAt
    })
  }

  return {
    kept(of, attempt) {
      return floorMs === 0 ? attempt() : inLine(of, () => timed(of.comparisons, attempt))
    },

    async measure() {
      const inUse = new Map<string, number>()
      for await (const { kind, passwordHash } of passwordHashKinds(store)) {
        if (!passwords.isOwn(passwordHash)) inUse.set(kind, measured.get(kind) ?? (await comparisonMs(passwordHash)))
      }
      measured = inUse
      floorMs = 0
      raiseTo(Math.max(0, ...measured.values()))
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
