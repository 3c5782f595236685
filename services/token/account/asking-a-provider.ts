// Asking an OpenID Provider: where the browser is sent, and what the answers are checked against.
import { createHmac } from 'node:crypto'
import type { BeginSignInRequest } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Call } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import type { TokenDeps } from '../deps.js'
import { ProviderFailure } from '../oidc/failure.js'
import type { Provider, SignInSecrets } from '../oidc/provider.js'
import type { ProviderEvent } from '../sign-in-methods.js'

/** @throws ServiceError PROVIDER_UNAVAILABLE, PROVIDER_MISCONFIGURED */
export async function providerAddress(
  deps: TokenDeps,
  provider: Provider,
  asked: Pick<BeginSignInRequest, 'browserKey' | 'returnUri' | 'reauthenticate' | 'selectAccount'>,
  challenge: string,
  call: Call,
): Promise<string> {
  const secrets = secretsOf(challenge, asked.browserKey)
  const address = await told(deps, provider, 'begin', call, provider.authorizationUrl(asked.returnUri, secrets, asked))
  if (address instanceof URL) return address.href
  const isOff = address.kind === 'unavailable'
  const reason = isOff ? ErrorReason.PROVIDER_UNAVAILABLE : ErrorReason.PROVIDER_MISCONFIGURED
  throw new ServiceError(
    reason,
    isOff ? 'the provider cannot be asked' : 'the provider is not set up as this service expects',
  )
}

/**
 * Nonce and PKCE verifier follow from what comes back with the browser, its key and the state: nothing of them is stored, and in
 * another browser neither can be had.
 */
export function secretsOf(state: string, browserKey: string): SignInSecrets {
  const derived = (what: string) => createHmac('sha256', browserKey).update(`${what} ${state}`).digest('base64url')
  return { state, nonce: derived('nonce'), codeVerifier: derived('code_verifier') }
}

/** What the provider answers, or why it does not; either is told to the observer. */
export async function told<T>(
  { onProvider }: TokenDeps,
  { settings }: Provider,
  step: ProviderEvent['step'],
  { requestId }: Call,
  asked: Promise<T>,
): Promise<T | ProviderFailure> {
  const event = { provider: settings.id, step, requestId }
  try {
    const answer = await inTime(asked, settings.timeoutMs)
    onProvider?.({ ...event, outcome: 'ok', failure: undefined })
    return answer
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error
    onProvider?.({ ...event, outcome: error.kind, failure: error })
    return error
  }
}

/** Of all requests of a step together: the gateway does not wait for long either, and would not know why. */
function inTime<T>(asked: Promise<T>, timeoutMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new ProviderFailure('unavailable', `it took more than ${timeoutMs} ms`))
    const timer = setTimeout(late, timeoutMs)
    asked.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
