/** A database that cannot be asked. Callers may try again; it says nothing about the credentials they hold. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable'
  /** True when the connection was lost around a commit, or the disk did not flush it: the change may or may not last. */
  readonly outcomeUnknown: boolean

  constructor(cause: unknown, outcomeUnknown = false) {
    super('the database is unavailable', { cause })
    this.outcomeUnknown = outcomeUnknown
  }
}
