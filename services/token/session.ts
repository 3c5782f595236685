import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../rpc/service-error.js'
import { hashCredential } from './credentials.js'
import type { TokenDeps } from './deps.js'
import type { Hash, SessionRow } from './store/token-store.js'

export const invalidSession = () => new ServiceError(ErrorReason.INVALID_SESSION, 'nobody is signed in')

/** Activity is recorded again when the last record is older than this or than a quarter of the idle time. */
const TOUCH_AFTER_MS = 60_000

/** The live session of this token; counts as activity. @throws ServiceError INVALID_SESSION */
export async function requireSession(
  deps: TokenDeps,
  sessionToken: string,
): Promise<SessionRow & { readonly sessionHash: Hash }> {
  const sessionHash = hashCredential('session', sessionToken)
  const session = sessionHash && (await deps.store.findSession(sessionHash))
  if (!session) throw invalidSession()
  const now = deps.now()
  const idleMs = deps.rules.sessionIdleSeconds * 1000
  const unseenMs = now - session.lastSeenAtMs
  if (now >= session.expiresAtMs || unseenMs >= idleMs) throw invalidSession()
  if (unseenMs >= Math.min(TOUCH_AFTER_MS, idleMs / 4)) await deps.store.touchSession(sessionHash, now)
  return { ...session, sessionHash }
}
