/** The connections of a process to a database that is a server. */
export interface Connections {
  readonly inUse: number
  readonly idle: number
  /** Callers that wait for one. */
  readonly waiting: number
}
