import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../rpc/service-error.js'

/** A database that cannot be asked. Callers may try again; it says nothing about the credentials they hold. */
export class StoreUnavailable extends ServiceError {
  /** True when the connection was lost around a commit, or the disk did not flush it: the change may or may not last. */
  readonly outcomeUnknown: boolean

  constructor(cause: unknown, outcomeUnknown = false) {
    super(ErrorReason.UNAVAILABLE, 'the database is unavailable', { retryAfterSeconds: 1, cause })
    this.outcomeUnknown = outcomeUnknown
  }
}
