// The gateway's one vocabulary of failures and the one translation into it. Everything else throws and forgets.
import { Code, ConnectError } from '@connectrpc/connect'
import { ErrorInfoSchema, RetryInfoSchema } from '../gen/google/rpc/error_details_pb.js'
import { ErrorReason } from '../gen/surveyauth/v1/error_pb.js'
import type { Allowance } from './rates/window-counter.js'

/** Values of `code` in the envelope: closed, clients fail on a tenth (decisions 1). `OK` is the ninth. */
export type FailureCode =
  | 'PermissionDenied'
  | 'InternalServerError'
  | 'RemoteServerError'
  | 'NoRoute'
  | 'InvalidArgument'
  | 'NotFound'
  | 'AlreadyExists'
  | 'ResourceExhausted'

/** What the developer of the calling app can do about it. */
export type Action = 'fix_request' | 'refresh' | 'reauthorize' | 'retry' | 'contact_operator'

export interface ProblemKind {
  readonly code: FailureCode
  readonly status: number
  readonly action: Action
  /** Only a client that has sent valid credentials, a secret or an access token, gets this: they are checked first. */
  readonly isForKnownApp: boolean
}

function kind(code: FailureCode, status: number, action: Action, isForKnownApp = false): ProblemKind {
  return { code, status, action, isForKnownApp }
}
const FOR_KNOWN_APP = true

/** Every `error.type` with its code, status and action (docs/decisions.md, table of failures). */
export const problemKinds = {
  invalid_argument: kind('InvalidArgument', 400, 'fix_request'),
  invalid_appid: kind('InvalidArgument', 400, 'fix_request'),
  invalid_secret: kind('PermissionDenied', 401, 'fix_request'),
  invalid_grant_type: kind('InvalidArgument', 400, 'fix_request'),
  invalid_code: kind('InvalidArgument', 400, 'reauthorize', FOR_KNOWN_APP),
  invalid_refresh_token: kind('PermissionDenied', 401, 'reauthorize'),
  invalid_token: kind('PermissionDenied', 401, 'refresh'),
  claim_error: kind('PermissionDenied', 403, 'fix_request', FOR_KNOWN_APP),
  answers_not_granted: kind('PermissionDenied', 403, 'reauthorize', FOR_KNOWN_APP),
  survey_not_found: kind('NotFound', 404, 'fix_request', FOR_KNOWN_APP),
  request_rate_limited: kind('ResourceExhausted', 429, 'retry'),
  no_route: kind('NoRoute', 404, 'fix_request'),
  method_not_allowed: kind('NoRoute', 405, 'fix_request'),
  remote_server_error: kind('RemoteServerError', 503, 'retry'),
  internal_server_error: kind('InternalServerError', 500, 'contact_operator'),
  // The rest occur on pages only.
  invalid_redirect_uri: kind('InvalidArgument', 400, 'fix_request'),
  invalid_response_type: kind('InvalidArgument', 400, 'fix_request'),
  invalid_scope: kind('InvalidArgument', 400, 'fix_request'),
  invalid_state: kind('InvalidArgument', 400, 'fix_request'),
  invalid_code_challenge: kind('InvalidArgument', 400, 'fix_request'),
  invalid_session: kind('PermissionDenied', 401, 'reauthorize'),
  invalid_credentials: kind('PermissionDenied', 401, 'fix_request'),
  not_found: kind('NotFound', 404, 'fix_request'),
  already_exists: kind('AlreadyExists', 409, 'fix_request'),
  provider_unavailable: kind('RemoteServerError', 503, 'retry'),
  provider_misconfigured: kind('RemoteServerError', 502, 'contact_operator'),
} as const satisfies Record<string, ProblemKind>

export type ProblemType = keyof typeof problemKinds

/** The public name of a service's reason. */
const typesByReason: Record<ErrorReason, ProblemType> = {
  [ErrorReason.UNSPECIFIED]: 'internal_server_error',
  [ErrorReason.INVALID_ARGUMENT]: 'invalid_argument',
  [ErrorReason.INVALID_APPID]: 'invalid_appid',
  [ErrorReason.INVALID_SECRET]: 'invalid_secret',
  [ErrorReason.INVALID_CODE]: 'invalid_code',
  [ErrorReason.INVALID_REFRESH_TOKEN]: 'invalid_refresh_token',
  [ErrorReason.INVALID_TOKEN]: 'invalid_token',
  [ErrorReason.CLAIM_ERROR]: 'claim_error',
  [ErrorReason.SURVEY_NOT_FOUND]: 'survey_not_found',
  [ErrorReason.RATE_LIMITED]: 'request_rate_limited',
  [ErrorReason.UNAVAILABLE]: 'remote_server_error',
  [ErrorReason.INVALID_REDIRECT_URI]: 'invalid_redirect_uri',
  [ErrorReason.INVALID_SCOPE]: 'invalid_scope',
  [ErrorReason.INVALID_SESSION]: 'invalid_session',
  [ErrorReason.INVALID_CREDENTIALS]: 'invalid_credentials',
  [ErrorReason.NOT_FOUND]: 'not_found',
  [ErrorReason.ALREADY_EXISTS]: 'already_exists',
  [ErrorReason.CALLER_NOT_ALLOWED]: 'internal_server_error',
  [ErrorReason.INVALID_RESPONSE_TYPE]: 'invalid_response_type',
  [ErrorReason.INVALID_STATE]: 'invalid_state',
  [ErrorReason.INVALID_CODE_CHALLENGE]: 'invalid_code_challenge',
  [ErrorReason.SIGN_IN_DECIDED]: 'internal_server_error', // these three are the answers of SignInService, which no gateway calls
  [ErrorReason.SIGN_IN_EXPIRED]: 'internal_server_error',
  [ErrorReason.USER_DISABLED]: 'internal_server_error',
  [ErrorReason.PROVIDER_UNAVAILABLE]: 'provider_unavailable',
  [ErrorReason.PROVIDER_MISCONFIGURED]: 'provider_misconfigured',
  [ErrorReason.ANSWERS_NOT_GRANTED]: 'answers_not_granted',
}

/** What is malformed about the parameters of a query or a form, for pages, which say it in their own language. */
export type Malformed =
  | { readonly what: 'missing' | 'repeated' | 'control_characters'; readonly name: string }
  | { readonly what: 'too_long'; readonly name: string; readonly max: number }
  | { readonly what: 'unencoded' | 'not_utf8' }

export interface ProblemOptions {
  /** Status of a failure of HTTP itself (413, 414, 431 …) in place of the kind's; HTTP_ERROR_STATUS leaves it alone. */
  readonly httpStatus?: number
  readonly retryAfterSeconds?: number
  /** The rate that was exceeded, for `RateLimit-*`. */
  readonly allowance?: Allowance
  /** Methods the path does have, for `Allow`. */
  readonly allow?: string
  readonly malformed?: Malformed
  readonly cause?: unknown
}

/** A request that is answered with a failure. `message`: lower case, no full stop, no value of the request. */
export class Problem extends Error {
  override readonly name = 'Problem'

  constructor(
    readonly type: ProblemType,
    message: string,
    readonly options: ProblemOptions = {},
  ) {
    super(message, { cause: options.cause })
  }

  get kind(): ProblemKind {
    return problemKinds[this.type]
  }

  /** Whether HTTP itself refuses the request, whatever a route would make of it. */
  get isOfHttp(): boolean {
    return this.options.httpStatus !== undefined || this.kind.code === 'NoRoute'
  }

  /** Status from the table; with `errorStatus` 200, for old clients, application failures have status 200 (decisions 4). */
  status(errorStatus: 'semantic' | 200): number {
    const status = this.options.httpStatus ?? this.kind.status
    const staysSemantic = errorStatus === 'semantic' || this.isOfHttp || status === 429 || status >= 500
    return staysSemantic ? status : 200
  }
}

export function invalidArgument(message: string, options?: ProblemOptions): Problem {
  return new Problem('invalid_argument', message, options)
}

const RETRY_AFTER_SECONDS = 1 // no better guess when a service cannot be reached; the shortest the header can say

/** Of our services' reasons; those of a proxy between us, for example, mean something else. */
const DOMAIN = 'survey-auth'

/** Codes without a reason that say nothing about the request: the service could not be reached, or not in time. */
const unreachable: readonly Code[] = [Code.Unavailable, Code.DeadlineExceeded]

/** The one translation of what a route throws. Only calls for clients that have left are cancelled. An unexpected error becomes the cause of an `internal_server_error`. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error
  if (error instanceof ConnectError) {
    const info = error.findDetails(ErrorInfoSchema).find(({ domain }) => domain === DOMAIN)
    if (info) return fromReason(info.reason, error)
    if (error.code === Code.Canceled)
      return invalidArgument('the connection was closed before the answer', { httpStatus: 400 })
    if (unreachable.includes(error.code)) return unavailable(RETRY_AFTER_SECONDS)
  }
  return internal(error)
}

function fromReason(reason: string, error: ConnectError): Problem {
  const type = typesByReason[ErrorReason[reason as keyof typeof ErrorReason]] ?? 'internal_server_error' // of a newer service
  if (type === 'internal_server_error') return internal(error)
  if (type === 'remote_server_error') return unavailable(retryAfterSecondsOf(error))
  if (type === 'request_rate_limited') return tooMany(retryAfterSecondsOf(error))
  return new Problem(type, error.rawMessage)
}

function retryAfterSecondsOf(error: ConnectError): number {
  const [info] = error.findDetails(RetryInfoSchema)
  return Number(info?.retryDelay?.seconds ?? RETRY_AFTER_SECONDS)
}

/** The client has used up its allowance under one of the gateway's rates. */
export function rateLimited(allowance: Allowance): Problem {
  return tooMany(allowance.resetSeconds, allowance)
}

function tooMany(retryAfterSeconds: number, allowance?: Allowance): Problem {
  return new Problem('request_rate_limited', 'too many requests, try again later', {
    retryAfterSeconds,
    ...(allowance && { allowance }),
  })
}

function unavailable(retryAfterSeconds: number): Problem {
  return new Problem('remote_server_error', 'a service is unavailable, try again later', { retryAfterSeconds })
}

function internal(cause: unknown): Problem {
  return new Problem('internal_server_error', 'internal error, the operator can find it by the request_id', { cause })
}
