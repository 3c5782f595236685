// Whether an access token is good, as a pure function. TokenService asks it of what the store has found.

/** An access token as it is presented to a data endpoint. */
export interface PresentedAccessToken {
  readonly appid: string
  /** Its own expiry, or the end of its overlap when it was replaced. */
  readonly expiresAtMs: number
  /** Grant revoked, app disabled or user disabled. */
  readonly isRevoked: boolean
}

/** Whether this app may use the token now (decisions 11 and 16). */
export function isGoodFor(appid: string, token: PresentedAccessToken | undefined, now: number): boolean {
  return token !== undefined && token.appid === appid && !token.isRevoked && now < token.expiresAtMs
}
