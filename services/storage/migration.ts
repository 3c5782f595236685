/** One step of a schema's history. Released steps never change; a new one expands, a later release contracts. */
export interface Migration {
  /** From 1, without gaps. */
  readonly version: number
  readonly name: string
  readonly sql: string
}
