// Whether commits can be acknowledged: a server with synchronous standbys waits for them, without limit, and goes on answering reads.
import type { Flaw } from '../flaw.js'

/** Sends a statement that changes nothing. */
type Ask = (text: string) => Promise<readonly object[]>

/** Other engines have no such setting. */
const NAMES = `SELECT coalesce(current_setting('synchronous_standby_names', true), '') AS names`

/**
 * Any role sees the names of the standbys that are connected, and the waits of its own commits; members of pg_read_all_stats see
 * also which standbys have caught up.
 */
const CONNECTED = `
  SELECT ARRAY(SELECT lower(application_name) FROM pg_stat_replication
      WHERE coalesce(state, 'streaming') = 'streaming') AS connected,
    (SELECT count(*)::int FROM pg_stat_activity
      WHERE wait_event = 'SyncRep' AND state_change < clock_timestamp() - interval '1 second') AS waiting`

interface Connected {
  /** Their names, in lower case. */
  readonly connected: readonly string[]
  /** Commits that have waited for more than a second. */
  readonly waiting: number
}

/** Empty, or the synchronous standbys for which writes wait. */
export async function standbyFlaws(ask: Ask): Promise<Flaw[]> {
  const [{ names }] = (await ask(NAMES)) as [{ names: string }]
  if (names.trim() === '') return []
  const [row] = (await ask(CONNECTED)) as [Connected]
  return judgeStandbys(names, row)
}

/** `list`: the value of synchronous_standby_names. */
export function judgeStandbys(list: string, { connected, waiting }: Connected): Flaw[] {
  const { needed, names } = parseStandbys(list)
  const counted = connected.filter((name) => names.some((one) => one === '*' || one.toLowerCase() === name))
  const missing = names.filter((name) => !connected.includes(name.toLowerCase()))
  const what = (standbys: readonly string[]) => `synchronous standby ${standbys.join(', ')}`
  if (counted.length < needed) {
    const cause = `writes wait for ${needed} of synchronous_standby_names, and ${counted.length} can confirm: they get 503, and those that have begun take effect late; start it, or take it out of synchronous_standby_names`
    return [{ what: what(missing), state: 'missing', cause }]
  }
  if (waiting === 0) return []
  return [
    {
      what: what(names),
      state: 'does not confirm',
      cause: `${waiting} writes have waited for more than a second; mend it, or take it out of synchronous_standby_names`,
    },
  ]
}

/** `a, "b-c"`, `2 (a, b)`, `FIRST 2 (a, b)` or `ANY 2 (a, b)`. */
function parseStandbys(list: string): { readonly needed: number; readonly names: readonly string[] } {
  const parts = /^\s*(?:(?:FIRST|ANY)\s+)?(?<needed>\d+)\s*\((?<members>.*)\)\s*$/is.exec(list)?.groups
  const members = (parts?.members ?? list).matchAll(/"((?:[^"]|"")+)"|[^\s,"]+/g)
  const names = Array.from(members, ([name, quoted]) => quoted?.replaceAll('""', '"') ?? name)
  return { needed: Number(parts?.needed ?? 1), names }
}
