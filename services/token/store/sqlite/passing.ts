import type { Connection } from '../../../storage/sqlite/open.js'

/** Removes from a copy what matters only for minutes or to one browser: unused codes and sessions, which a restore must not bring back. */
export function removePassing(copy: Connection): void {
  copy.exec('DELETE FROM grants WHERE created_at_ms IS NULL; DELETE FROM sessions')
}
