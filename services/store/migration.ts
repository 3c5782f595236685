/** One step of a schema's history. Released steps never change; a new one expands, a later release contracts. */
export interface Migration {
  /** From 1, without gaps. */
  readonly version: number
  readonly name: string
  readonly sql: string
}

/** The database is of another kind, or of a newer program: nothing was changed, and waiting does not help. */
export class SchemaMismatch extends Error {
  override readonly name = 'SchemaMismatch'
}
