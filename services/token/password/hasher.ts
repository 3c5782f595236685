import { randomBytes } from 'node:crypto'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../../rpc/service-error.js'
import { readStoredHash } from './stored-hash.js'
import { inThread } from './threads.js'

/** What may be done from a place in the queue. */
export interface Hashing {
  /** A salted hash in PHC string format. */
  hash(password: string): Promise<string>
  /** Whether the password matches the hash; for `undefined` it takes as long as for a hash of `hash`, and is false. */
  compare(passwordHash: string | undefined, password: string): Promise<boolean>
}

/** Hashes and compares passwords off the event loop, whatever the Unicode composition of their letters (decisions 39). */
export interface PasswordHasher {
  /**
   * Runs `work` when there is a place for it in the queue.
   * @throws ServiceError RATE_LIMITED when too many are waiting, before `work` begins; else what `work` throws
   */
  inQueue<T>(work: (hashing: Hashing) => Promise<T>): Promise<T>
  /** A salted hash in PHC string format. @throws ServiceError RATE_LIMITED when too many are waiting */
  hash(password: string): Promise<string>
  /** Whether `hash` would make a hash of this algorithm and cost. */
  isOwn(passwordHash: string): boolean
}

/** RFC 8265 §4.2.2: keyboards and systems differ in whether an accented letter is one character or two. */
const composed = (password: string) => password.normalize('NFC')

/** The cost of one argon2id hash: KiB of memory and passes over it. */
export interface PasswordCost {
  readonly memoryCost: number
  readonly timeCost: number
}

// OWASP Password Storage Cheat Sheet: argon2id with 19 MiB, 2 passes, 1 lane.
const OWASP_COST: PasswordCost = { memoryCost: 19_456, timeCost: 2 }

/** What a hash takes on a fast core. A slower one refuses some a second time; with a longer time a faster one would idle. */
const HASH_MS = 20
/** Nobody is told to wait longer, however many were refused: some of them never come again. */
const LONGEST_WAIT_MS = 10_000

/**
 * argon2id in threads of its own, `concurrency` at a time and at most `queueLimit` waiting. Beyond that a sign-in is refused
 * with RATE_LIMITED instead of being queued, and told when there will be time for it: a crowd of which everybody came again
 * at once would mostly be refused again.
 */
export function createPasswordHasher(options: {
  concurrency: number
  queueLimit: number
  /** OWASP's unless given. */
  cost?: PasswordCost | undefined
}): PasswordHasher {
  const argon2id = { ...(options.cost ?? OWASP_COST), parallelism: 1 }
  const absent = randomHash(argon2id)
  const waiting: (() => void)[] = []
  let inside = 0
  let running = 0
  /** Until when the threads have work if those who were refused come again as they were told. */
  let takenUntil = 0

  /** Occupies a place in the queue until `work` has ended. */
  async function inPlace<T>(work: () => Promise<T>): Promise<T> {
    if (inside >= options.concurrency + options.queueLimit) {
      const retryAfterSeconds = Math.ceil(untilFreeMs() / 1_000)
      throw new ServiceError(ErrorReason.RATE_LIMITED, 'too many sign-ins at once', { retryAfterSeconds })
    }
    inside += 1
    try {
      return await work()
    } finally {
      inside -= 1
    }
  }

  /** For one more who is refused, after those before. */
  function untilFreeMs(): number {
    const now = performance.now()
    takenUntil = Math.min(Math.max(takenUntil, now) + HASH_MS / options.concurrency, now + LONGEST_WAIT_MS)
    return takenUntil - now
  }

  async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (running >= options.concurrency) await new Promise<void>((resolve) => waiting.push(resolve))
    else running += 1
    try {
      return await work()
    } finally {
      const next = waiting.shift()
      if (next)
        next() // hands its turn over: `running` stays the same
      else running -= 1
    }
  }

  const hashing: Hashing = {
    hash: (password) => inTurn(() => inThread('argon2Hash', composed(password), argon2id)),
    compare: (passwordHash, password) =>
      inTurn(async () => (await isMatch(passwordHash ?? absent, password)) && passwordHash !== undefined),
  }

  return {
    inQueue: (work) => inPlace(() => work(hashing)),
    hash: (password) => inPlace(() => hashing.hash(password)),
    isOwn: (passwordHash) => readStoredHash(passwordHash).kind === readStoredHash(absent).kind,
  }
}

/** As it was typed, which other systems have hashed, and else composed. */
async function isMatch(passwordHash: string, password: string): Promise<boolean> {
  const stored = readStoredHash(passwordHash)
  if (await stored.matches(password)) return true
  return comparisonsOf(password) === 2 && stored.matches(composed(password))
}

/** How often a wrong password is compared. */
export function comparisonsOf(password: string): number {
  return composed(password) === password ? 1 : 2
}

/** A hash in PHC string format of no password anybody could find. */
function randomHash({ memoryCost, timeCost, parallelism }: PasswordCost & { parallelism: number }): string {
  const [salt, digest] = [16, 32].map((length) => randomBytes(length).toString('base64').replaceAll('=', ''))
  return `$argon2id$v=19$m=${memoryCost},t=${timeCost},p=${parallelism}$${salt}$${digest}`
}
