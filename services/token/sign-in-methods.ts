// The ways in which users of this service sign in.
import type { ProviderFailure, ProviderFailureKind } from './oidc/failure.js'
import type { Provider } from './oidc/provider.js'

export interface SignInMethods {
  /** By username and password. */
  readonly password: boolean
  /** The platform's own sign-in page. */
  readonly platform: URL | undefined
  /** By id, in the order of their buttons. */
  readonly providers: ReadonlyMap<string, Provider>
}

/** What came of asking a provider. */
export interface ProviderEvent {
  readonly provider: string
  readonly step: 'begin' | 'complete'
  readonly outcome: 'ok' | ProviderFailureKind
  /** For the operator; undefined when all is well. */
  readonly failure: ProviderFailure | undefined
  readonly requestId: string
}
