/**
 * The database is of another kind, of a newer program, or set up so that a power cut can undo acknowledged writes. Nothing was
 * changed, and waiting does not help. The message names the database and the reason.
 */
export class DatabaseRefused extends Error {
  override readonly name = 'DatabaseRefused'
}
