import { reasonOf } from '../../services/rpc/service-error.js'
import type { Connections } from '../../services/storage/connections.js'
import type { Flaw } from '../../services/storage/flaw.js'
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
  /** What it is, if not `unavailable`. */
  readonly state?: string
}

/** A service in this process, or a connection to one elsewhere. */
export interface Part {
  /** What it lacks to serve now; empty when it can. */
  absent(): Promise<Absence[]>
  close(): Promise<void>
}

/** A service in this process, with its database. */
export interface StorePart extends Part {
  readonly store: 'token' | 'survey'
  /** To its database, if that is a server. */
  connections(): Connections | undefined
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

/** Empty if the database answers the ping, and has no flaws. */
export async function absentUnless(database: string, ping: Promise<readonly Flaw[]>): Promise<Absence[]> {
  return ping.then(
    (flaws) => flaws.map((flaw) => absenceOf(flaw, database)),
    (error: unknown) => [{ what: database, cause: reasonOf(error) }],
  )
}

function absenceOf({ what, state, cause }: Flaw, database: string): Absence {
  return { what: `${what} of the ${database}`, state, cause: `${state}: ${cause}`, isDispensable: true }
}
