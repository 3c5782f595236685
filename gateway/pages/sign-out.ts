import type { Answer, GatewayDeps, Route } from '../http.js'
import type { GatewayRequest } from '../request.js'
import { type AuthorizationRequest, requestValues } from './authorization-request.js'
import { clearOwnCookie } from './cookies.js'
import type { FormUse } from './csrf.js'
import { answerForm, requireForm } from './forms.js'
import type { Notice } from './notice.js'
import { leaveFor, onlyWay } from './sign-in-elsewhere.js'
import { goalHref, labelOf, redirectWith } from './visit.js'

export const SIGN_OUT_PATH = '/connect/sign-out'

export const signOutRoute: Route = {
  name: 'sign_out',
  method: 'POST',
  path: SIGN_OUT_PATH,
  kind: 'page',
  answer: signOut,
}

/** Ends the session. With an authorization in progress ("switch account") the browser returns to it, signed out. */
function signOut(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  return answerForm(request, deps, async (visit, form, asked) => {
    const { sessionToken } = visit
    let notice: Notice = { about: 'signOutDone', detail: '' }
    if (sessionToken !== undefined) {
      requireForm(visit, form, signOutUse(sessionToken, asked))
      const { way } = await deps.account.signOut({ sessionToken }, request.rpc)
      if (way && !way.password) {
        notice = { about: 'signOutDoneHere', detail: way.provider ? labelOf(visit, way.provider) : '' }
      }
    }
    const setCookies = [clearOwnCookie(deps.publicUrl, 'session')]
    const provider = asked && onlyWay(await deps.account.listSignInMethods({}, request.rpc))
    if (provider !== undefined) return leaveFor(visit, asked, { provider, selectAccount: true }, setCookies)
    return redirectWith(visit, goalHref(visit, asked), notice, { outcome: 'signed_out', setCookies })
  })
}

export function signOutUse(sessionToken: string | undefined, asked: AuthorizationRequest | undefined): FormUse {
  return { form: 'sign_out', sessionToken, about: requestValues(asked) }
}
