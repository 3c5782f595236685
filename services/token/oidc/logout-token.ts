// OpenID Connect Back-Channel Logout 1.0, §2.4 to 2.6: the provider says that a session, or a user, has signed out there.
import { createRemoteJWKSet, type JWTPayload, jwtVerify } from 'jose'
import type { ServerMetadata } from 'openid-client'
import { ProviderFailure } from './failure.js'
import { providerFailure } from './translate-failure.js'

export interface LogoutNotice {
  /** To be taken once. */
  readonly jti: string
  /** Until when it could be sent again, in ms since 1970 UTC. */
  readonly expiresAtMs: number
  /** Which session, else all of the subject. One of the two is there. */
  readonly sid: string | undefined
  readonly subject: string | undefined
}

const EVENT = 'http://schemas.openid.net/event/backchannel-logout'
/** How old a token may be: providers send it at once. */
const OLDEST_SECONDS = 300

/** Keeps the provider's keys, and asks for them again when one is unknown, at most every 30 s. */
export function createLogoutTokenReader(
  { clientId, timeoutMs }: { readonly clientId: string; readonly timeoutMs: number },
  algorithms: string[],
  clockTolerance: number,
) {
  let keys: { readonly uri: string; readonly set: ReturnType<typeof createRemoteJWKSet> } | undefined

  return async (token: string, { issuer, jwks_uri: uri }: ServerMetadata): Promise<LogoutNotice> => {
    if (!uri) throw new ProviderFailure('misconfigured', 'the provider publishes no keys')
    if (keys?.uri !== uri) keys = { uri, set: createRemoteJWKSet(new URL(uri), { timeoutDuration: timeoutMs }) }
    try {
      const checks = { issuer, audience: clientId, algorithms, clockTolerance, maxTokenAge: OLDEST_SECONDS }
      const { payload } = await jwtVerify(token, keys.set, checks)
      return noticeOf(payload, clockTolerance)
    } catch (error) {
      throw providerFailure(error)
    }
  }
}

function noticeOf(
  { jti, iat = 0, exp = Number.POSITIVE_INFINITY, sub: subject, sid, events, nonce }: JWTPayload,
  clockTolerance: number,
): LogoutNotice {
  const event = (events as Record<string, unknown> | undefined)?.[EVENT]
  if (typeof event !== 'object' || event === null) throw refused('it announces no logout')
  if (nonce !== undefined) throw refused('it has a nonce, as an ID token')
  if (typeof jti !== 'string' || jti === '') throw refused('it has no jti')
  if (subject === undefined && typeof sid !== 'string') throw refused('it names neither sid nor sub')
  const expiresAtMs = (Math.min(exp, iat + OLDEST_SECONDS) + clockTolerance) * 1000
  return { jti, expiresAtMs, subject, sid: typeof sid === 'string' ? sid : undefined }
}

function refused(why: string): ProviderFailure {
  return new ProviderFailure('misconfigured', `a logout token is refused: ${why}`)
}
