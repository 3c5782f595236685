// SQL that both stores share about codes ended before they expire: by a revocation, by disabling, or because there were too
// many. Their rows stay, like those of expired codes: the form of a code may be sent again, and would get the same code again.

/** The expiry they are given: a minute before they were issued, which is past by the clock of every process. */
export const ENDED_AT = 'issued_at_ms - 60000'

/** True of any other code. */
export const IS_NOT_ENDED = 'expires_at_ms > issued_at_ms'

/**
 * No code lives longer, so those that can still be used are found among those issued since then, and a revocation looks at no
 * more of what a user or an app has left. If the clock is this far ahead during a revocation and is right again before a code
 * expires, that code stays good.
 */
export const MAX_CODE_TTL_MS = 3_600_000
