/** What an operator should mend about a database although it answers. */
export interface Flaw {
  /** What has it, for example `host db1:5432`. */
  readonly what: string
  /** In a few words, what is wrong with that. */
  readonly state: string
  /** What follows, and what to do. */
  readonly cause: string
}
