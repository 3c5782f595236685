// What the handlers of TokenService, AccountService and AdminService share. Nothing here is global: bin/ composes it.
import type { ReplayEffect } from '../protocol/codes.js'
import type { PasswordHasher } from './password/hasher.js'
import type { TimeFloor } from './password/time-floor.js'
import type { SignInLimiter } from './sign-in-limiter.js'
import type { ProviderEvent, SignInMethods } from './sign-in-methods.js'
import type { TokenStore } from './store/token-store.js'
import type { UseRecorder } from './use-recorder.js'

/** Lifetimes and caps, all configurable; decisions 7 to 16 and 49. */
export interface TokenRules {
  readonly codeTtlSeconds: number
  readonly accessTokenTtlSeconds: number
  readonly refreshTokenTtlSeconds: number
  readonly accessTokenOverlapSeconds: number
  readonly codeReplayGraceSeconds: number
  readonly sessionIdleSeconds: number
  readonly sessionTtlSeconds: number
  readonly maxLiveCodesPerUserAndApp: number
  readonly maxGrantsPerUserAndApp: number
  readonly maxSessionsPerUser: number
  /** Whether apps that ask for it may read answers. */
  readonly answers: 'on' | 'off'
}

export interface TokenDeps {
  readonly store: TokenStore
  readonly rules: TokenRules
  /** ms since 1970 UTC. */
  readonly now: () => number
  readonly randomBytes: (size: number) => Uint8Array
  readonly passwords: PasswordHasher
  readonly timeFloor: TimeFloor
  readonly signInLimiter: SignInLimiter
  readonly signInMethods: SignInMethods
  readonly uses: UseRecorder
  /** Called for each replay of a used code. */
  readonly onReplayed?: ((effect: ReplayEffect) => void) | undefined
  /** Called for each step of a sign-in at a provider. */
  readonly onProvider?: ((event: ProviderEvent) => void) | undefined
}
