/** Activity is recorded again when the last record is older than this or than a quarter of the idle time. */
const TOUCH_AFTER_MS = 60_000

export interface StoredSession {
  readonly lastSeenAtMs: number
  readonly expiresAtMs: number
}

/** Whether a session may go on: it ends at its end, whatever happens, and when nothing happened for `idleMs`. */
export function judgeSession(
  { lastSeenAtMs, expiresAtMs }: StoredSession,
  idleMs: number,
  now: number,
): 'ended' | 'goes_on' | 'goes_on_and_is_touched' {
  const unseenMs = now - lastSeenAtMs
  if (now >= expiresAtMs || unseenMs >= idleMs) return 'ended'
  return unseenMs >= Math.min(TOUCH_AFTER_MS, idleMs / 4) ? 'goes_on_and_is_touched' : 'goes_on'
}
