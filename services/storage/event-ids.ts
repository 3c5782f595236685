import { randomBytes } from 'node:crypto'

/**
 * Makes ids of audit events, which sort by time, then by order of creation within a process: 12 hex digits of ms, 8 of a count,
 * 16 that differ between processes. They are unique without asking the database and tell nothing.
 */
export function eventIds(): (now: number) => string {
  const writer = randomBytes(8).toString('hex')
  let count = 0
  return (now) => {
    count = (count + 1) >>> 0
    return firstIdAt(now) + count.toString(16).padStart(8, '0') + writer
  }
}

/** Whether the text has the form of these ids, or of one with a number after it: one of several events that share an id. */
export const isEventId = (text: string) => /^[0-9a-f]{36}\d*$/.test(text)

/** Sorts before the ids of all events at `atMs` and after those of all earlier ones. */
export function firstIdAt(atMs: number): string {
  return Math.max(0, Math.floor(atMs)).toString(16).padStart(12, '0')
}
