/** What a request says of its app, and what is known of that: the app's row and the end of the secret it was sent with. */
export interface Authentication {
  /** undefined: no such app. */
  readonly app: { readonly isDisabled: boolean; readonly requiresSecretOnRefresh: boolean } | undefined
  /** 0 if the secret is unknown, revoked or another app's, Infinity if it does not expire; undefined if none was sent. */
  readonly secretEndsAtMs: number | undefined
}

/** `app_ended`: the app is unknown or disabled. `secret_ended`: the secret is not good, or none was sent where the app must. */
export type AuthenticationVerdict = 'good' | 'app_ended' | 'secret_ended'

/** Whether the app may ask at all (decisions 9 and 13). Only a refresh may come without a secret. */
export function judgeAuthentication({ app, secretEndsAtMs }: Authentication, now: number): AuthenticationVerdict {
  if (!app || app.isDisabled) return 'app_ended'
  if (secretEndsAtMs === undefined) return app.requiresSecretOnRefresh ? 'secret_ended' : 'good'
  return now < secretEndsAtMs ? 'good' : 'secret_ended'
}

/** As Authentication has it. */
export function endOfSecret(secret: {
  readonly expiresAtMs: number | undefined
  readonly revokedAtMs: number | undefined
}): number {
  return secret.revokedAtMs === undefined ? (secret.expiresAtMs ?? Number.POSITIVE_INFINITY) : 0
}
