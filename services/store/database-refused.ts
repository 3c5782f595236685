/**
 * The database is of another kind, of a newer program, or set up such that a power cut takes back what was acknowledged:
 * nothing was changed, and waiting does not help. The message names it and says which.
 */
export class DatabaseRefused extends Error {
  override readonly name = 'DatabaseRefused'
}
