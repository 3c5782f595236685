// What openid-client, jose and fetch throw, in the words of failure.ts.
import {
  AuthorizationResponseError,
  ClientError,
  ResponseBodyError,
  WWWAuthenticateChallengeError,
} from 'openid-client'
import { ProviderFailure, type ProviderFailureKind } from './failure.js'

const LONGEST_DETAIL = 200

/** @param secrets what the provider was told, and may repeat: not in the detail */
export function providerFailure(error: unknown, secrets: readonly string[] = []): ProviderFailure {
  if (error instanceof ProviderFailure) return error
  return new ProviderFailure(kindOf(error), withoutSecrets(detailOf(error), secrets).slice(0, LONGEST_DETAIL))
}

/** JWTs, and other codes and tokens that we do not know: names of hosts have dots, and words of people are shorter. */
const LIKE_A_SECRET = /\beyJ[\w.-]+|[\w~+/=-]{24,}/g

function withoutSecrets(text: string, secrets: readonly string[]): string {
  const known = secrets.filter((secret) => secret !== '')
  return known.reduce((left, secret) => left.replaceAll(secret, '***'), text).replaceAll(LIKE_A_SECRET, '***')
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
  if (error instanceof WWWAuthenticateChallengeError) {
    const told = error.cause.flatMap(({ parameters }) => [parameters.error, parameters.error_description])
    return [`${error.status}, other credentials are wanted`, ...told].filter(Boolean).join(': ')
  }
  if (!(error instanceof Error)) return 'unknown'
  const isQuotation = error.cause instanceof SyntaxError // of what could not be parsed
  const cause = error.cause instanceof Error && !isQuotation ? `: ${error.cause.message}` : ''
  return `${error.message}${cause}`
}
