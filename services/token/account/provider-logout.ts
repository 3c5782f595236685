// A provider says that somebody has signed out there.
import { createHash } from 'node:crypto'
import type { EndProviderSessionsRequest } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Call } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { causedBy } from '../../storage/cause.js'
import type { TokenDeps } from '../deps.js'
import { ProviderFailure } from '../oidc/failure.js'
import type { LogoutNotice } from '../oidc/logout-token.js'
import { byWordOf } from '../store/token-store.js'
import { told } from './asking-a-provider.js'

export function endProviderSessions(deps: TokenDeps) {
  return async ({ provider: id, logoutToken }: EndProviderSessionsRequest, call: Call) => {
    const provider = deps.signInMethods.providers.get(id)
    if (!provider) throw new ServiceError(ErrorReason.NOT_FOUND, 'there is no such provider')
    const notice = await told(deps, provider, 'logout', call, provider.readLogoutToken(logoutToken))
    if (notice instanceof ProviderFailure) throw refusal(notice)
    await takenOnce(deps, id, notice, () => {
      const of = { provider: id, subject: notice.subject ?? '', sid: notice.sid ?? '' }
      return deps.store.endProviderSessions(of, deps.now(), byWordOf(id, causedBy('sign_in', call)))
    })
    return {}
  }
}

function refusal({ kind }: ProviderFailure): ServiceError {
  return kind === 'unavailable'
    ? new ServiceError(ErrorReason.PROVIDER_UNAVAILABLE, 'the keys of the provider cannot be had')
    : new ServiceError(ErrorReason.INVALID_TOKEN, 'the logout token is not to be believed')
}

/** A token that is sent again must not end sessions that have begun since; one that could not be obeyed may be sent again. */
async function takenOnce(
  { store }: TokenDeps,
  provider: string,
  { jti, expiresAtMs }: LogoutNotice,
  end: () => Promise<unknown>,
): Promise<void> {
  const digest = createHash('sha256').update(jti).digest('base64url')
  const count = { key: `logout ${provider} ${digest}`, windowEndMs: expiresAtMs }
  const [taken = 0] = await store.countRequests([{ ...count, requests: 1 }])
  if (taken > 1) throw new ServiceError(ErrorReason.INVALID_TOKEN, 'the logout token was taken before')
  try {
    await end()
  } catch (error) {
    await store.countRequests([{ ...count, requests: -1 }]).catch(() => undefined) // expires by itself
    throw error
  }
}
