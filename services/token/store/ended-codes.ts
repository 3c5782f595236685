// SQL of both stores about codes that are ended before they expire, as revoking, disabling and one code too many do. Their rows
// stay, as those of expired ones: the form that a code was issued for may be sent again, and would get the same code again.

/** Their expiry: a minute before they were issued, so that it is past by the clocks of all processes. */
export const ENDED_AT = 'issued_at_ms - 60000'

/** The expiry of any other. */
export const IS_NOT_ENDED = 'expires_at_ms > issued_at_ms'
