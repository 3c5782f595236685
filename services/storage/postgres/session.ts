// What must hold while our statements run: on a connection of our own, for as long as it lasts. A pooler may send each transaction
// to another connection, which others use too, so behind one the same is set by each transaction for itself.
import type pg from 'pg'

export interface SessionTimes {
  /** Longest run of one statement, in ms. */
  readonly statementTimeoutMs: number
  /** Longest wait for a lock, in ms. */
  readonly lockTimeoutMs: number
}

const IDLE_IN_TRANSACTION_MS = 5_000 // after that, a process that stopped in a transaction loses its locks
/**
 * Settings for plans that read whole tables or indexes. Every statement has its index, and asks it for a few rows. A planner
 * that knows a table only from when it was small would read all of it, and keep that plan until its statistics are renewed: so
 * it is told that this is expensive, where there are such settings.
 */
const DEAR = ['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin']

/** The settings as SQL that each transaction must begin with; empty when the connection has them. */
export async function prepareSession(client: pg.ClientBase, times: SessionTimes): Promise<string> {
  const [{ rows: servers }, { rows: dear }] = await Promise.all([
    client.query<{ pid: number; level: string }>(
      `SELECT pg_backend_pid() AS pid, current_setting('synchronous_commit') AS level`,
    ),
    client.query<{ name: string }>('SELECT name FROM pg_settings WHERE name = ANY ($1)', [DEAR]),
  ])
  const settings = [
    `statement_timeout = ${times.statementTimeoutMs}`,
    `lock_timeout = ${times.lockTimeoutMs}`,
    `idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION_MS}`,
    // remote_apply waits for the standby even longer than on does; the other levels acknowledge what a crash can undo.
    ...(servers[0]?.level === 'remote_apply' ? [] : ['synchronous_commit = on']),
    ...dear.map(({ name }) => `${name} = off`),
  ]
  if (servers[0]?.pid !== announcedPid(client)) return settings.map((setting) => `SET LOCAL ${setting}`).join('; ')
  await client.query(settings.map((setting) => `SET ${setting}`).join('; '))
  return ''
}

/** Of the process that serves the connection, as its other end has said at login. A pooler says a number of its own. */
function announcedPid(client: pg.ClientBase): unknown {
  return 'processID' in client ? client.processID : undefined
}
