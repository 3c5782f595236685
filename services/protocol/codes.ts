// Whether a code may be issued and redeemed, and what a replay does, as pure functions: facts in, verdict out.
import { type Authentication, type AuthenticationVerdict, judgeAuthentication } from './authentication.js'

export type StoredCode =
  | {
      readonly isUsed: false
      readonly redirectUri: string
      /** Empty for none. */
      readonly codeChallenge: string
      readonly expiresAtMs: number
      /** Before its expiry: by a revocation, by disabling, or because there were too many. */
      readonly isEnded: boolean
      readonly isUserLive: boolean
    }
  | { readonly isUsed: true; readonly usedAtMs: number; readonly expiresAtMs: number }

/** `exists_live`: the form was confirmed before, and its code is still unused and good. */
export type IssuingVerdict =
  | 'issued'
  | 'exists_live'
  | 'exists_ended'
  | 'app_ended'
  | 'redirect_uri_ended'
  | 'session_ended'

export interface IssuingFacts {
  /** undefined: no such app. */
  readonly app: { readonly isDisabled: boolean; readonly redirectUris: readonly string[] } | undefined
  /** Whether the session is open, and of this user, who is not disabled. */
  readonly isSessionOpen: boolean
  /** The code of the same form, if it was confirmed before. */
  readonly existing: StoredCode | undefined
}

/** What an app asks of whoever exchanges the code (RFC 7636); each is empty when it was not sent. */
export interface AskedChallenge {
  readonly codeChallenge: string
  readonly codeChallengeMethod: string
}

/** decisions 43: only S256, which is not the default of the RFC and so must be named. */
export function isChallengeGood({ codeChallenge, codeChallengeMethod }: AskedChallenge, isRequired: boolean): boolean {
  if (codeChallenge === '') return codeChallengeMethod === '' && !isRequired
  return codeChallengeMethod === 'S256' && /^[\w-]{43}$/.test(codeChallenge)
}

/** decisions 8 and 31. */
export function judgeIssuing(
  { app, isSessionOpen, existing }: IssuingFacts,
  redirectUri: string,
  now: number,
): IssuingVerdict {
  // 1. The app may still be sent codes, at this address.
  if (!app || app.isDisabled) return 'app_ended'
  if (!app.redirectUris.includes(redirectUri)) return 'redirect_uri_ended'
  // 2. The session has not been ended; whether it has expired was judged when the call began.
  if (!isSessionOpen) return 'session_ended'
  // 3. The form yields one code as long as that is good.
  if (!existing) return 'issued'
  return isGood(existing, now) ? 'exists_live' : 'exists_ended'
}

/** What a replay does: within the grace; before the code's expiry, with its grant alive or not; after the expiry. */
export const REPLAY_EFFECTS = ['forgiven', 'revoked_grant', 'already_revoked', 'too_late'] as const
export type ReplayEffect = (typeof REPLAY_EFFECTS)[number]

/** How the audit event of a replay says it. */
export const REPLAY_NOTES: Readonly<Record<ReplayEffect, string>> = {
  forgiven: 'within the grace: forgiven',
  revoked_grant: 'ends the grant',
  already_revoked: 'the grant had already ended',
  too_late: 'after its expiry: without effect',
}

export type RedemptionVerdict =
  | Exclude<AuthenticationVerdict, 'good'>
  | 'redeemed'
  /** Unknown, expired, ended, another app's, another redirect_uri's or code_verifier's, or its user is disabled. */
  | 'refused'
  | ReplayVerdict
export type ReplayVerdict = 'forgiven' | 'too_late' | 'ends_grant'

export interface AskedRedemption {
  /** undefined: not sent, so not compared. */
  readonly redirectUri: string | undefined
  /** Of the code_verifier that was sent; empty if none was. */
  readonly codeChallenge: string
  /** How long after the exchange a replay is forgiven. */
  readonly replayGraceMs: number
}

/** decisions 8 to 10 and 43. `code`: undefined when the app has none like it. */
export function judgeRedemption(
  authentication: Authentication,
  code: StoredCode | undefined,
  { redirectUri, codeChallenge, replayGraceMs }: AskedRedemption,
  now: number,
): RedemptionVerdict {
  // 1. The app is authenticated before its code is looked at.
  const app = judgeAuthentication(authentication, now)
  if (app !== 'good') return app
  // 2. The code is one of this app.
  if (!code) return 'refused'
  // 3. A used one is a replay: forgiven, with effect while the code would have lived, or too late.
  if (code.isUsed) {
    if (now < code.usedAtMs + replayGraceMs) return 'forgiven'
    return now < code.expiresAtMs ? 'ends_grant' : 'too_late'
  }
  // 4. An unused one is good, for this redirect_uri, whoever began the flow, and a user who is not disabled.
  if (!isGood(code, now)) return 'refused'
  if (redirectUri !== undefined && redirectUri !== code.redirectUri) return 'refused'
  if (codeChallenge !== code.codeChallenge) return 'refused' // also a verifier without a challenge: RFC 9700 §4.8.2
  return code.isUserLive ? 'redeemed' : 'refused'
}

/** What the replay has done, once its grant is known. */
export function replayEffect(verdict: ReplayVerdict, isGrantRevoked: boolean): ReplayEffect {
  if (verdict !== 'ends_grant') return verdict
  return isGrantRevoked ? 'already_revoked' : 'revoked_grant'
}

/** Unused, unexpired and not ended. */
function isGood(code: StoredCode, now: number): boolean {
  return !code.isUsed && !code.isEnded && now < code.expiresAtMs
}
