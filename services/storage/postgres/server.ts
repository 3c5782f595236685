// What a server says of itself on a new connection.
import pg from 'pg'

export interface Server {
  readonly takesWrites: boolean
  /**
   * Each promotion begins a timeline with a higher number: of two servers that take writes, the one on the lower was left
   * behind. 0 when the server has none.
   */
  readonly timeline: number
  /** Tells servers apart: two addresses may lead to one. */
  readonly startedAt: string
}

/** Nothing but what every engine with PostgreSQL's protocol has. */
const WRITABLE = `SELECT current_setting('transaction_read_only') = 'off' AS "takesWrites"`

/** The name of the log file in use begins with the timeline, at once after a promotion; pg_control_checkpoint() lags for minutes. */
const PLACE = `
  SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END AS "logFile",
    pg_postmaster_start_time()::text AS "startedAt"`

export async function describe(client: pg.ClientBase): Promise<Server> {
  const [{ rows }, place] = await Promise.all([
    client.query<{ takesWrites: boolean }>(WRITABLE),
    client.query<{ logFile: string | null; startedAt: string }>(PLACE).catch(unlessRefused),
  ])
  const { logFile, startedAt = '' } = place?.rows[0] ?? {}
  const timeline = logFile ? Number.parseInt(logFile.slice(0, 8), 16) : 0
  return { takesWrites: rows[0]?.takesWrites === true, timeline, startedAt }
}

/** Other engines lack these functions. */
function unlessRefused(error: unknown): undefined {
  if (!(error instanceof pg.DatabaseError)) throw error
}
