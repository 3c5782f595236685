// Whether a janitor may believe the clock. What it removes is gone for good, and a clock may be wrong: the database records as of
// when it was last cleaned up, and a clock that is far from that is believed once it has kept saying so for hours.

/** How long a janitor waits for a clock that has jumped to be corrected. */
export const CLOCK_WAIT_MS = 6 * 3_600_000
/** A clock this far from the last clean-up is believed at once; nothing that ended since is removed so soon. */
const USUAL_STEP_MS = 86_400_000
/** How accurately the last clean-up is recorded: often enough that a process which waits sees that another one does not. */
const RECORD_AFTER_MS = 3_600_000

/** What a database remembers of its clean-ups. */
export interface CleanUps {
  /** As of when it was last cleaned up, by the clock of who did it; undefined if it never was. */
  lastCleanUp(): Promise<number | undefined>
  recordCleanUp(atMs: number): Promise<void>
}

export interface CleanUpClockOptions {
  readonly store: CleanUps
  /** ms since 1970 UTC. */
  readonly now: () => number
  /** ms since some moment; never goes back and does not jump. */
  readonly elapsed?: (() => number) | undefined
  /** Told in each round: when the last clean-up was if the janitor waits, undefined if it does not. */
  readonly onWaiting?: ((lastMs: number | undefined) => void) | undefined
}

export interface CleanUpTime {
  readonly isBelieved: boolean
  /** As of when the janitor judges what has ended. */
  readonly asOfMs: number
  /** How far the clock is behind the last clean-up; negative if it is ahead. */
  readonly behindMs: number
}

export class CleanUpClock {
  readonly #options: CleanUpClockOptions
  readonly #elapsed: () => number
  /** As last seen; undefined before the first round. */
  #seen: { readonly lastMs: number | undefined } | undefined
  /** Since when it is unchanged: a process whose clock alone has jumped sees others record theirs, and waits on. */
  #unchangedSince: number

  constructor(options: CleanUpClockOptions) {
    this.#options = options
    this.#elapsed = options.elapsed ?? (() => performance.now())
    this.#unchangedSince = this.#elapsed()
  }

  /** The time of a round that begins now. @throws StoreUnavailable */
  async begin(): Promise<CleanUpTime> {
    const { store, onWaiting } = this.#options
    const lastMs = await store.lastCleanUp()
    this.#see(lastMs)
    const now = this.#options.now()
    const isBelieved = mayBelieve(lastMs, now, this.#elapsed() - this.#unchangedSince)
    onWaiting?.(isBelieved ? undefined : lastMs)
    if (isBelieved && (lastMs === undefined || Math.abs(now - lastMs) >= RECORD_AFTER_MS)) {
      await store.recordCleanUp(now)
      this.#see(now)
    }
    return { isBelieved, asOfMs: isBelieved ? now : Math.min(now, lastMs ?? now), behindMs: (lastMs ?? now) - now }
  }

  #see(lastMs: number | undefined): void {
    if (this.#seen && this.#seen.lastMs !== lastMs) this.#unchangedSince = this.#elapsed()
    this.#seen = { lastMs }
  }
}

/** Whether a janitor may act on a clock that shows `now`, `waitedMs` after it first did so. */
function mayBelieve(lastMs: number | undefined, now: number, waitedMs: number): boolean {
  return lastMs === undefined || Math.abs(now - lastMs) <= USUAL_STEP_MS || waitedMs >= CLOCK_WAIT_MS
}
