import { reasonOf } from '../../services/rpc/service-error.js'
import type { Rounds } from '../../services/storage/rounds.js'
import type { Config } from '../config.js'

const DAY_MS = 86_400_000

/** Something that this process needs, and that does not answer. */
export interface Absence {
  /** For example `token database`. */
  readonly what: string
  /** For operators only: a line from a driver or a peer. */
  readonly cause: string
  /** Whether this process is ready all the same: what others run, and only some requests need, would be no better for its restart. */
  readonly isDispensable?: true
}

/** A service in this process, or a connection to one elsewhere. */
export interface Part {
  /** What it lacks to serve now; empty when it can. */
  absent(): Promise<Absence[]>
  close(): Promise<void>
}

/** A service in this process, with its database. */
export interface StorePart extends Part {
  /** For a process that serves: a command may have other times in its settings, and would remove by them. */
  startJanitor(): Rounds<unknown>
}

/** The times that the janitors of both databases share. */
export function janitorTimes({ janitorIntervalSeconds, keepAuditDays }: Config) {
  return { everyMs: janitorIntervalSeconds * 1000, keepAuditMs: keepAuditDays * DAY_MS }
}

/** With its first round under way: what a clock that was ahead has issued ends in time from the start on. */
export function begun<Result>(janitor: Rounds<Result>, onError: (error: unknown) => void): Rounds<Result> {
  janitor.run().catch(onError)
  return janitor
}

/** Empty if `what` answers the ping. */
export async function absentUnless(what: string, ping: Promise<unknown>): Promise<Absence[]> {
  return ping.then(
    () => [],
    (error: unknown) => [{ what, cause: reasonOf(error) }],
  )
}
