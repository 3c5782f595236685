// A sign-in that goes on elsewhere, at the platform or at a provider, as pure functions: facts in, verdict out.
//
//   pending → accepted → done
//           ↘ rejected

export type SignInState = 'pending' | 'accepted' | 'rejected' | 'done'

/** How long the whole may take: to find a password, a phone, a captcha. */
export const SIGN_IN_TTL_MS = 30 * 60_000

/** How long the verifier is good that the browser carries back: one redirect. */
export const VERIFIER_TTL_MS = 60_000

/** How fresh the authentication must be where it was asked for anew. */
export const FRESH_AUTHENTICATION_MS = 5 * 60_000

/** How many may be in progress, and from one source; many people may share a source. */
export const MAX_SIGN_INS = { inAll: 100_000, ofSource: 1_000 } as const

export function judgeBeginning(open: { readonly inAll: number; readonly ofSource: number }): 'begun' | 'too_many' {
  return open.inAll < MAX_SIGN_INS.inAll && open.ofSource < MAX_SIGN_INS.ofSource ? 'begun' : 'too_many'
}

export interface StoredSignIn {
  readonly state: SignInState
  /** Where it goes on: a provider, or the platform if empty. */
  readonly provider: string
  readonly expiresAtMs: number
  readonly asksToReauthenticate: boolean
  /** Who was accepted, by the id that they have there; empty before. */
  readonly subject: string
}

/** A person who has signed in there, or a rejection. */
export interface Decision {
  readonly provider: string
  /** Empty for a rejection. */
  readonly subject: string
  /** When the person proved who they are; 0 if nobody says. */
  readonly authenticatedAtMs: number
}

export type DecisionVerdict = 'decided' | 'not_found' | 'expired' | 'decided_otherwise' | 'not_fresh' | 'user_disabled'

/** `isUserDisabled`: whether the person is a user who is disabled or deleted. */
export function judgeDecision(
  signIn: StoredSignIn | undefined,
  { provider, subject, authenticatedAtMs }: Decision,
  isUserDisabled: boolean,
  now: number,
): DecisionVerdict {
  // 1. Only the place where it goes on decides it.
  if (!signIn || signIn.provider !== provider) return 'not_found'
  // 2. What the browser has come back with is final.
  if (signIn.state === 'done') return 'decided_otherwise'
  if (now >= signIn.expiresAtMs) return 'expired'
  // 3. The same decision may be sent again, since its answer may have been lost; another one may not.
  const decided = signIn.state === 'rejected' ? '' : signIn.subject
  if (signIn.state !== 'pending' && decided !== subject) return 'decided_otherwise'
  if (subject === '') return 'decided'
  // 4. The person is who they are now, if that was asked for, and may sign in.
  if (signIn.asksToReauthenticate && now - authenticatedAtMs > FRESH_AUTHENTICATION_MS) return 'not_fresh'
  return isUserDisabled ? 'user_disabled' : 'decided'
}

export interface ReturnedSignIn extends StoredSignIn {
  /** 0 once it is used up. */
  readonly verifierExpiresAtMs: number
  /** Whom the identity is to be linked to; empty for a sign-in. */
  readonly linkTo: string
  /** Whether somebody who is no user yet becomes one. */
  readonly mayCreate: boolean
}

export interface ReturnFacts {
  /** Whether this is the browser that began. */
  readonly isSameBrowser: boolean
  /** Whose the identity or external_id is, be the user deleted. */
  readonly owner: { readonly userId: string; readonly isDisabled: boolean } | undefined
  /** Whether the browser is signed in as the user to link to, who is not disabled. */
  readonly isLinkedToHere: boolean
}

/** All but the first two use the verifier up. */
export type ReturnVerdict =
  | 'unknown'
  | 'other_browser'
  | 'expired'
  | 'rejected'
  | 'user_disabled'
  | 'identity_taken'
  | 'no_account'
  | 'linked'
  | 'signed_in'
  | 'created'

/** `signIn`: undefined when no verifier is like that. */
export function judgeReturn(
  signIn: ReturnedSignIn | undefined,
  { isSameBrowser, owner, isLinkedToHere }: ReturnFacts,
  now: number,
): ReturnVerdict {
  if (!signIn) return 'unknown'
  // 1. Before anything is used up: nobody finishes, or spoils, what another browser has begun.
  if (!isSameBrowser) return 'other_browser'
  if (signIn.verifierExpiresAtMs === 0) return 'unknown'
  if (now >= signIn.verifierExpiresAtMs || now >= signIn.expiresAtMs) return 'expired'
  if (signIn.state !== 'accepted') return 'rejected'
  // 2. To link: whoever began is still signed in, and the identity is nobody else's.
  if (signIn.linkTo !== '') {
    if (!isLinkedToHere) return 'expired'
    return owner && owner.userId !== signIn.linkTo ? 'identity_taken' : 'linked'
  }
  // 3. To sign in: the user may, or is made.
  if (owner) return owner.isDisabled ? 'user_disabled' : 'signed_in'
  return signIn.mayCreate ? 'created' : 'no_account'
}
