import type { Connection } from '../../../sqlite/open.js'

/**
 * Removes from a copy, of whatever version, what matters only for minutes or to one browser: unused codes and sessions, which
 * a restore must not bring back.
 */
export function removePassing(copy: Connection): void {
  const hasCodes = copy.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'codes'`).get() !== undefined // up to version 3
  copy.exec(hasCodes ? 'DELETE FROM codes' : 'DELETE FROM grants WHERE created_at_ms IS NULL')
  copy.exec('DELETE FROM sessions')
}
