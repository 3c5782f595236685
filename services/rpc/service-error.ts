import { Code, ConnectError } from '@connectrpc/connect'
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { StoreRefused } from '../storage/store-refused.js'
import { StoreUnavailable } from '../storage/store-unavailable.js'
import type { Violation } from './validation.js'

/** The gRPC status code of every reason. */
const codes: Record<Exclude<ErrorReason, ErrorReason.UNSPECIFIED>, Code> = {
  [ErrorReason.INVALID_ARGUMENT]: Code.InvalidArgument,
  [ErrorReason.INVALID_APPID]: Code.InvalidArgument,
  [ErrorReason.INVALID_SECRET]: Code.Unauthenticated,
  [ErrorReason.INVALID_CODE]: Code.Unauthenticated,
  [ErrorReason.INVALID_REFRESH_TOKEN]: Code.Unauthenticated,
  [ErrorReason.INVALID_TOKEN]: Code.Unauthenticated,
  [ErrorReason.CLAIM_ERROR]: Code.PermissionDenied,
  [ErrorReason.SURVEY_NOT_FOUND]: Code.NotFound,
  [ErrorReason.RATE_LIMITED]: Code.ResourceExhausted,
  [ErrorReason.UNAVAILABLE]: Code.Unavailable,
  [ErrorReason.INVALID_REDIRECT_URI]: Code.InvalidArgument,
  [ErrorReason.INVALID_SCOPE]: Code.InvalidArgument,
  [ErrorReason.INVALID_SESSION]: Code.Unauthenticated,
  [ErrorReason.INVALID_CREDENTIALS]: Code.Unauthenticated,
  [ErrorReason.NOT_FOUND]: Code.NotFound,
  [ErrorReason.ALREADY_EXISTS]: Code.AlreadyExists,
  [ErrorReason.CALLER_NOT_ALLOWED]: Code.PermissionDenied,
  [ErrorReason.INVALID_RESPONSE_TYPE]: Code.InvalidArgument,
  [ErrorReason.INVALID_STATE]: Code.InvalidArgument,
  [ErrorReason.INVALID_CODE_CHALLENGE]: Code.InvalidArgument,
  [ErrorReason.SIGN_IN_DECIDED]: Code.FailedPrecondition,
  [ErrorReason.SIGN_IN_EXPIRED]: Code.FailedPrecondition,
  [ErrorReason.USER_DISABLED]: Code.PermissionDenied,
  [ErrorReason.PROVIDER_UNAVAILABLE]: Code.Unavailable,
  [ErrorReason.PROVIDER_MISCONFIGURED]: Code.FailedPrecondition,
  [ErrorReason.ANSWERS_NOT_GRANTED]: Code.PermissionDenied,
}

export type Reason = keyof typeof codes

/** A failure the caller can act on. Everything else that is thrown leaves a service as `internal`, without its text. */
export class ServiceError extends Error {
  override readonly name = 'ServiceError'

  /** `message`: one plain sentence for the calling developer, lower case, no full stop, no secrets. */
  constructor(
    readonly reason: Reason,
    message: string,
    readonly options: {
      readonly retryAfterSeconds?: number
      /** The field of the request that is wrong. */
      readonly violation?: Violation
      /** For programs, beside the reason. */
      readonly metadata?: Readonly<Record<string, string>>
      readonly cause?: unknown
    } = {},
  ) {
    super(message, { cause: options.cause })
  }
}

/** The one translation of what a store throws, which knows nothing of RPC; anything else is returned as it is. */
export function ofStore(error: unknown): unknown {
  if (error instanceof StoreRefused) return new ServiceError(ErrorReason.INVALID_ARGUMENT, error.message)
  if (!(error instanceof StoreUnavailable)) return error
  return new ServiceError(ErrorReason.UNAVAILABLE, error.message, { retryAfterSeconds: 1, cause: error.cause })
}

/** Who defines the reasons, in `google.rpc.ErrorInfo`. */
const DOMAIN = 'survey-auth'

/**
 * The one translation of failures at the RPC boundary: status code and details (error.proto) of an expected failure. `tellsCause`:
 * only for callers that run the services, since a cause may name files and addresses. Nobody is told what another service answered.
 */
export function toConnectError(error: ServiceError, { tellsCause = false } = {}): ConnectError {
  const { reason, cause } = error
  const { violation, retryAfterSeconds, metadata = {} } = error.options
  const isTold = tellsCause && cause !== undefined && !(cause instanceof ConnectError)
  const message = isTold ? `${error.message}: ${reasonOf(error)}` : error.message
  const info = { reason: ErrorReason[reason], domain: DOMAIN, metadata }
  const details: OutgoingDetail[] = [{ desc: ErrorInfoSchema, value: info }]
  if (retryAfterSeconds) {
    details.push({ desc: RetryInfoSchema, value: { retryDelay: { seconds: BigInt(retryAfterSeconds) } } })
  }
  if (violation) details.push({ desc: BadRequestSchema, value: { fieldViolations: [violation] } })
  return new ConnectError(message, codes[reason], undefined, details)
}

/** The reason that a service gave for a failure; undefined for an unexpected one. */
export function reasonIn(error: ConnectError): Reason | undefined {
  const info = error.findDetails(ErrorInfoSchema).find(({ domain }) => domain === DOMAIN)
  const reason = ErrorReason[info?.reason as keyof typeof ErrorReason]
  return reason === ErrorReason.UNSPECIFIED ? undefined : reason
}

type OutgoingDetail = NonNullable<ConstructorParameters<typeof ConnectError>[3]>[number]

/** The cause of a failure, in one line. Where a name has several addresses, each has an error; that around them says nothing. */
export function reasonOf(error: unknown): string {
  const isAround = error instanceof ServiceError || error instanceof StoreUnavailable
  const cause = isAround ? error.cause : error
  const causes: unknown[] = cause instanceof AggregateError ? cause.errors : [cause]
  const messages = causes.map((one) => (one instanceof Error ? one.message : 'unknown'))
  return messages.join('; ').replace(/\s+/g, ' ')
}
