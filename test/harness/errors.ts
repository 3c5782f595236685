// The error table of docs/decisions.md, repeated here on purpose: the gateway's own table is under test.

export interface ErrorRow {
  readonly code: string
  readonly status: number
  readonly action: 'fix_request' | 'refresh' | 'reauthorize' | 'retry' | 'contact_operator'
}

export const ERRORS = {
  invalid_argument: { code: 'InvalidArgument', status: 400, action: 'fix_request' },
  invalid_appid: { code: 'InvalidArgument', status: 400, action: 'fix_request' },
  invalid_secret: { code: 'PermissionDenied', status: 401, action: 'fix_request' },
  invalid_grant_type: { code: 'InvalidArgument', status: 400, action: 'fix_request' },
  invalid_code: { code: 'InvalidArgument', status: 400, action: 'reauthorize' },
  invalid_refresh_token: { code: 'PermissionDenied', status: 401, action: 'reauthorize' },
  invalid_token: { code: 'PermissionDenied', status: 401, action: 'refresh' },
  claim_error: { code: 'PermissionDenied', status: 403, action: 'fix_request' },
  answers_not_granted: { code: 'PermissionDenied', status: 403, action: 'reauthorize' },
  survey_not_found: { code: 'NotFound', status: 404, action: 'fix_request' },
  request_rate_limited: { code: 'ResourceExhausted', status: 429, action: 'retry' },
  no_route: { code: 'NoRoute', status: 404, action: 'fix_request' },
  method_not_allowed: { code: 'NoRoute', status: 405, action: 'fix_request' },
  remote_server_error: { code: 'RemoteServerError', status: 503, action: 'retry' },
  internal_server_error: { code: 'InternalServerError', status: 500, action: 'contact_operator' },
} as const satisfies Record<string, ErrorRow>
export type ErrorType = keyof typeof ERRORS

export function isErrorType(text: string): text is ErrorType {
  return text in ERRORS
}
