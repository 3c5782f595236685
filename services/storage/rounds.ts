export interface Rounds<Result> {
  /** Runs a round now, after the one in progress if any. */
  run(): Promise<Result>
  /** Stops after the one in progress, if any. */
  stop(): Promise<void>
}

export interface RoundsOptions<Result> {
  /** Ends early once `isStopped` says so. */
  readonly round: (isStopped: () => boolean) => Promise<Result>
  /** How often a round begins, in ms, unless one is still in progress. */
  readonly everyMs: number
  /** Called when a scheduled round failed; the next one tries again. */
  readonly onError: (error: unknown) => void
}

/** Runs `round` periodically, in rounds that never overlap, and keeps no process alive. */
export function startRounds<Result>({ round, everyMs, onError }: RoundsOptions<Result>): Rounds<Result> {
  let last: Promise<unknown> = Promise.resolve()
  let inProgress = 0
  let isStopped = false

  function run(): Promise<Result> {
    inProgress += 1
    const next = last
      .then(() => round(() => isStopped))
      .finally(() => {
        inProgress -= 1
      })
    last = next.catch(() => undefined)
    return next
  }

  const timer = setInterval(() => {
    if (inProgress === 0) run().catch(onError)
  }, everyMs)
  timer.unref()

  return {
    run,
    async stop() {
      isStopped = true
      clearInterval(timer)
      await last
    },
  }
}
