import type { Answer, GatewayDeps, GatewayRequest, Route } from '../http.js'
import { type AuthorizationRequest, readRequestInProgress, requestValues } from './authorization-request.js'
import { clearSecretCookie } from './cookies.js'
import type { FormUse } from './csrf.js'
import { goalHref } from './sign-in.js'
import { redirectTo } from './view.js'
import { APPS_PATH, guarded, openVisit, readForm, requireForm } from './visit.js'

export const signOutRoute: Route = {
  name: 'sign_out',
  method: 'POST',
  path: '/connect/sign-out',
  kind: 'page',
  answer: signOut,
}

/** Where signing out leads when nothing is in progress: a page that says so. */
const SIGNED_OUT_HREF = `${APPS_PATH}?signed_out=1`

/** Ends the session. With an authorization in progress ("switch account") the browser returns to it, signed out. */
function signOut(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, APPS_PATH, async () => {
    const form = await readForm(visit)
    const asked = readRequestInProgress(form)
    const goal = goalHref(asked)
    const next = asked ? goal : SIGNED_OUT_HREF
    return guarded(visit, goal, async () => {
      const { sessionToken } = visit
      if (sessionToken === undefined) return redirectTo(next, { outcome: 'signed_out' })
      requireForm(visit, form, signOutUse(sessionToken, asked))
      await deps.account.signOut({ sessionToken }, request.rpc)
      return redirectTo(next, { outcome: 'signed_out', setCookies: [clearSecretCookie(deps.publicUrl, 'session')] })
    })
  })
}

export function signOutUse(sessionToken: string | undefined, asked: AuthorizationRequest | undefined): FormUse {
  return { form: 'sign_out', sessionToken, about: requestValues(asked) }
}
