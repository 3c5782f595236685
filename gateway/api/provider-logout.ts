// OpenID Connect Back-Channel Logout 1.0, §2.5 to 2.8: a provider's server says that somebody has signed out there.

import { toProblem } from '../errors.js'
import type { Answer, GatewayDeps, Route } from '../http.js'
import type { GatewayRequest } from '../request.js'

const MAX_LOGOUT_TOKEN_LENGTH = 16_384
/** What providers must not keep, as the specification says. */
const NO_STORE = ['cache-control', 'no-store']

export const providerLogoutRoute: Route = {
  name: 'oidc_backchannel_logout',
  method: 'POST',
  path: '/connect/oidc/:id/backchannel-logout',
  kind: 'api',
  answer: endSessions,
}

/** What cannot be asked right now is no 400: the provider may send the token again. */
async function endSessions(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  try {
    const logoutToken = (await request.form()).required('logout_token', MAX_LOGOUT_TOKEN_LENGTH)
    await deps.account.endProviderSessions({ provider: request.pathParameters[0] ?? '', logoutToken }, request.rpc)
    return { status: 200, headers: NO_STORE, body: '', outcome: 'ok' }
  } catch (error) {
    const { type, message, isOfHttp } = toProblem(error)
    if (isOfHttp || !REFUSALS.includes(type)) throw error
    const body = JSON.stringify({ error: 'invalid_request', error_description: message })
    return { status: 400, headers: [...NO_STORE, 'content-type', 'application/json'], body, outcome: type }
  }
}

const REFUSALS: readonly string[] = ['invalid_argument', 'invalid_token', 'not_found']
