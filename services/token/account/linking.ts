// Identities that a signed-in user links to their account, and unlinks.
import type { BeginLinkRequest, UnlinkRequest } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Call } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { causedBy } from '../../storage/cause.js'
import type { TokenDeps } from '../deps.js'
import { requireSession } from '../session.js'
import { openWays } from '../sign-in-methods.js'
import { hasJustBegun } from './account-page.js'
import { providerAddress } from './asking-a-provider.js'
import { byPassword } from './sign-in.js'
import { begin } from './sign-in-elsewhere.js'

/** A link is a way into the account for good: whoever finds a browser signed in must not make one. */
export function beginLink(deps: TokenDeps) {
  return async (request: BeginLinkRequest, call: Call): Promise<{ redirectTo: string }> => {
    const session = await requireSession(deps, request.sessionToken)
    const provider = deps.signInMethods.providers.get(request.provider)
    if (!provider) throw new ServiceError(ErrorReason.NOT_FOUND, 'nobody signs in there')
    if (!hasJustBegun(session, deps.now())) await requirePassword(deps, session.username, request, call)
    const asked = { ...request, reauthenticate: false, selectAccount: true }
    const signIn = { ...asked, linkTo: session.userId, appid: '', redirectUri: '' }
    const challenge = await begin(deps, signIn, call)
    return { redirectTo: await providerAddress(deps, provider, asked, challenge, call) }
  }
}

async function requirePassword(
  deps: TokenDeps,
  username: string,
  { password, source }: Pick<BeginLinkRequest, 'password' | 'source'>,
  call: Call,
): Promise<void> {
  if (password === '') throw new ServiceError(ErrorReason.INVALID_CREDENTIALS, 'the session began too long ago')
  await byPassword(deps, { username, password, source }, call, async () => true)
}

export function unlink(deps: TokenDeps) {
  return async ({ sessionToken, provider, subject }: UnlinkRequest, call: Call) => {
    const { userId } = await requireSession(deps, sessionToken)
    const ways = openWays(deps.signInMethods)
    const identity = { provider, subject }
    const verdict = await deps.store.unlinkOwnIdentity(identity, userId, ways, deps.now(), causedBy('user', call))
    if (verdict === 'not_found') throw new ServiceError(ErrorReason.NOT_FOUND, 'there is no such identity of this user')
    if (verdict === 'last_way') throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'the user could no longer sign in')
    return {}
  }
}
