import { Code, ConnectError } from '@connectrpc/connect'
import { ErrorDetailSchema, ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'

/** The gRPC status code of every reason. */
const codes: Record<Exclude<ErrorReason, ErrorReason.UNSPECIFIED>, Code> = {
  [ErrorReason.INVALID_ARGUMENT]: Code.InvalidArgument,
  [ErrorReason.INVALID_APPID]: Code.InvalidArgument,
  [ErrorReason.INVALID_SECRET]: Code.PermissionDenied,
  [ErrorReason.INVALID_CODE]: Code.InvalidArgument,
  [ErrorReason.INVALID_REFRESH_TOKEN]: Code.PermissionDenied,
  [ErrorReason.INVALID_TOKEN]: Code.PermissionDenied,
  [ErrorReason.CLAIM_ERROR]: Code.PermissionDenied,
  [ErrorReason.SURVEY_NOT_FOUND]: Code.NotFound,
  [ErrorReason.RATE_LIMITED]: Code.ResourceExhausted,
  [ErrorReason.UNAVAILABLE]: Code.Unavailable,
  [ErrorReason.INVALID_REDIRECT_URI]: Code.InvalidArgument,
  [ErrorReason.INVALID_SCOPE]: Code.InvalidArgument,
  [ErrorReason.INVALID_SESSION]: Code.Unauthenticated,
  [ErrorReason.INVALID_CREDENTIALS]: Code.PermissionDenied,
  [ErrorReason.NOT_FOUND]: Code.NotFound,
  [ErrorReason.ALREADY_EXISTS]: Code.AlreadyExists,
  [ErrorReason.CALLER_NOT_ALLOWED]: Code.PermissionDenied,
  [ErrorReason.INVALID_RESPONSE_TYPE]: Code.InvalidArgument,
  [ErrorReason.INVALID_STATE]: Code.InvalidArgument,
}

export type Reason = keyof typeof codes

/** A failure the caller can act on. Everything else that is thrown leaves a service as `internal`, without its text. */
export class ServiceError extends Error {
  override readonly name = 'ServiceError'

  /** `message`: one plain sentence for the calling developer, lower case, no full stop, no secrets. */
  constructor(
    readonly reason: Reason,
    message: string,
    readonly options: { retryAfterSeconds?: number; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause })
  }
}

/**
 * The one translation of failures at the RPC boundary: status code and `ErrorDetail` of an expected failure. `tellsCause`: only
 * for callers that run the services, since a cause may name files and addresses. Nobody is told what another service answered.
 */
export function toConnectError(error: ServiceError, { tellsCause = false } = {}): ConnectError {
  const { reason, cause } = error
  const isTold = tellsCause && cause !== undefined && !(cause instanceof ConnectError)
  const message = isTold ? `${error.message}: ${reasonOf(error)}` : error.message
  const retryAfterSeconds = error.options.retryAfterSeconds ?? 0
  return new ConnectError(message, codes[reason], undefined, [
    { desc: ErrorDetailSchema, value: { reason, message, retryAfterSeconds } },
  ])
}

/** The cause of a failure, in one line. Where a name has several addresses, each has an error; that around them says nothing. */
export function reasonOf(error: unknown): string {
  const cause = error instanceof ServiceError ? error.cause : error
  const causes: unknown[] = cause instanceof AggregateError ? cause.errors : [cause]
  const messages = causes.map((one) => (one instanceof Error ? one.message : 'unknown'))
  return messages.join('; ').replace(/\s+/g, ' ')
}
