// Which codes, grants and sessions are too many, as a pure function: facts in, verdict out.

/** A code that is not used yet, a grant or a session; nobody has ended it. */
export interface Open {
  /** When it was issued, granted or started. */
  readonly beganAtMs: number
  readonly expiresAtMs: number
}

/**
 * Those that one more pushes out, where there may be `max` (decision 33). `open`: all of one user, and of one app if they are
 * codes or grants; a store need not read any while there are fewer than `max`.
 */
export function surplusOf<Row extends Open>(open: readonly Row[], max: number, now: number): Row[] {
  // 1. What has expired does not count.
  const live = open.filter(({ expiresAtMs }) => now < expiresAtMs)
  // 2. The oldest go first, as many as make room for one.
  const byAge = live.sort((one, other) => one.beganAtMs - other.beganAtMs)
  return byAge.slice(0, Math.max(0, live.length - (max - 1)))
}
