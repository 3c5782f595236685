// The ways in which users of this service sign in.
import type { OpenWays } from '../protocol/unlinking.js'
import { PROVIDER_FAILURES, type ProviderFailure } from './oidc/failure.js'
import type { Provider } from './oidc/provider.js'

export interface SignInMethods {
  /** By username and password. */
  readonly password: boolean
  /** The platform's own sign-in page. */
  readonly platform: URL | undefined
  /** By id, in the order of their buttons. */
  readonly providers: ReadonlyMap<string, Provider>
}

export const openWays = ({ password, platform, providers }: SignInMethods): OpenWays => {
  return { password, platform: platform !== undefined, providers: [...providers.keys()] }
}

export const PROVIDER_STEPS = ['begin', 'complete', 'logout'] as const
export const PROVIDER_OUTCOMES = ['ok', ...PROVIDER_FAILURES] as const

/** What came of asking a provider. */
export interface ProviderEvent {
  readonly provider: string
  readonly step: (typeof PROVIDER_STEPS)[number]
  readonly outcome: (typeof PROVIDER_OUTCOMES)[number]
  /** For the operator; undefined when all is well. */
  readonly failure: ProviderFailure | undefined
  readonly requestId: string
}
