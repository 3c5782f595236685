// Log lines about recurring failures: peers and clients retry for as long as they fail.
import type { Log } from './log.js'

const TELL_EVERY_MS = 60_000

interface Told {
  readonly atMs: number
  untold: number
}

/** Warns in at most one line a minute per kind; there must be few kinds. */
export function lineAMinute(log: Pick<Log, 'warning'>): (kind: string, text: string) => void {
  const told = new Map<string, Told>()
  return (kind, text) => {
    const now = performance.now()
    const last = told.get(kind) ?? { atMs: Number.NEGATIVE_INFINITY, untold: 0 }
    last.untold += 1
    if (now - last.atMs >= TELL_EVERY_MS) {
      log.warning(`${text} (${last.untold} since the last line on this)`)
      told.set(kind, { atMs: now, untold: 0 })
    }
  }
}
