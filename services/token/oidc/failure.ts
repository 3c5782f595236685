// Why a sign-in through a provider fails, as far as the person and the operator can do something about it.
import { AuthorizationResponseError, ClientError, ResponseBodyError } from 'openid-client'

export type ProviderFailureKind =
  /** The provider was not reached in time, or says that it cannot answer. */
  | 'unavailable'
  /** It signs with keys that are not known yet; they are asked for, and the next sign-in finds them. */
  | 'keys_changed'
  /** Its settings and ours differ, or what it sends must not be believed. */
  | 'misconfigured'
  /** The person, or the provider, said no. */
  | 'denied'
  /** The person lacks a claim that is required. */
  | 'not_allowed'
  /** The provider knows the code no longer. */
  | 'expired'

export class ProviderFailure extends Error {
  override readonly name = 'ProviderFailure'

  /** @param detail for the operator only: it may contain what the provider sent */
  constructor(
    readonly kind: ProviderFailureKind,
    readonly detail: string,
  ) {
    super(`${kind}: ${detail}`)
  }
}

const LONGEST_DETAIL = 200

/** Of what openid-client, jose and fetch throw. */
export function providerFailure(error: unknown): ProviderFailure {
  if (error instanceof ProviderFailure) return error
  return new ProviderFailure(kindOf(error), detailOf(error).slice(0, LONGEST_DETAIL))
}

const DENIED = [
  'access_denied',
  'login_required',
  'consent_required',
  'interaction_required',
  'account_selection_required',
]
const NO_ANSWER = ['OAUTH_TIMEOUT', 'OAUTH_ABORT']

function kindOf(error: unknown): ProviderFailureKind {
  if (error instanceof AuthorizationResponseError) {
    if (DENIED.includes(error.error)) return 'denied'
    return ['temporarily_unavailable', 'server_error'].includes(error.error) ? 'unavailable' : 'misconfigured'
  }
  if (error instanceof ResponseBodyError) {
    if (error.error === 'invalid_grant') return 'expired'
    return isServerError(error.status) ? 'unavailable' : 'misconfigured'
  }
  if (error instanceof ClientError) {
    const answer = error.cause
    if (answer instanceof Response) return isServerError(answer.status) ? 'unavailable' : 'misconfigured'
    if (error.code === 'OAUTH_KEY_SELECTION_FAILED') return 'keys_changed'
    return NO_ANSWER.includes(error.code ?? '') ? 'unavailable' : 'misconfigured'
  }
  return isNetworkError(error) ? 'unavailable' : 'misconfigured'
}

function isServerError(status: number): boolean {
  return status >= 500 || status === 429
}

/** fetch throws a TypeError with a cause when it gets no answer. */
function isNetworkError(error: unknown): boolean {
  return (
    error instanceof Error && (error.cause instanceof Error || ['TimeoutError', 'JWKSTimeout'].includes(error.name))
  )
}

function detailOf(error: unknown): string {
  if (error instanceof AuthorizationResponseError || error instanceof ResponseBodyError) {
    return [error.error, error.error_description].filter(Boolean).join(': ')
  }
  if (!(error instanceof Error)) return 'unknown'
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : ''
  return `${error.message}${cause}`
}
