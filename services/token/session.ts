import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { judgeSession } from '../protocol/sessions.js'
import { ServiceError } from '../rpc/service-error.js'
import { StoreUnavailable } from '../storage/store-unavailable.js'
import { hashCredential } from './credentials.js'
import type { TokenDeps } from './deps.js'
import type { Hash, SessionRow } from './store/token-store.js'

export const invalidSession = () => new ServiceError(ErrorReason.INVALID_SESSION, 'nobody is signed in')

type LiveSession = SessionRow & { readonly sessionHash: Hash }

/** The live session of this token; counts as activity. @throws ServiceError INVALID_SESSION */
export async function requireSession(deps: TokenDeps, sessionToken: string): Promise<LiveSession> {
  const session = await liveSession(deps, sessionToken)
  if (!session) throw invalidSession()
  return session
}

/** The same, or undefined. */
export async function liveSession(deps: TokenDeps, sessionToken: string): Promise<LiveSession | undefined> {
  const sessionHash = hashCredential('session', sessionToken)
  const session = sessionHash && (await deps.store.findSession(sessionHash))
  if (!session) return undefined
  const now = deps.now()
  const verdict = judgeSession(session, deps.rules.sessionIdleSeconds * 1000, now)
  if (verdict === 'ended') return undefined
  if (verdict === 'goes_on_and_is_touched') await deps.store.touchSession(sessionHash, now).catch(unlessUnavailable)
  return { ...session, sessionHash }
}

/** A database that takes no writes can answer reads: whoever is signed in has them, and is seen the next time. */
function unlessUnavailable(error: unknown): void {
  if (!(error instanceof StoreUnavailable)) throw error
}
