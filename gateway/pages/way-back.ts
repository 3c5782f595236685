// Addresses that only forms are sent to. Whoever opens one (the address bar shows it above an error page) is led to where its form is.
import type { Answer, GatewayDeps, Route } from '../http.js'
import type { GatewayRequest } from '../request.js'
import { readRequestInProgress } from './authorization-request.js'
import { DISCONNECT_PATH } from './connected-apps.js'
import { guarded } from './failures.js'
import { BEGIN_PATH, SIGN_IN_PATH } from './sign-in.js'
import { SIGN_OUT_PATH } from './sign-out.js'
import { redirectTo } from './view.js'
import { goalHref, openVisit } from './visit.js'
import { ACCOUNT_FORM_PATHS } from './your-account.js'

export const wayBackRoutes: readonly Route[] = [
  SIGN_IN_PATH,
  BEGIN_PATH,
  SIGN_OUT_PATH,
  DISCONNECT_PATH,
  ...ACCOUNT_FORM_PATHS,
].map((path) => ({
  name: 'way_back',
  method: 'GET',
  path,
  kind: 'page',
  answer: leadBack,
}))

function leadBack(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, visit.home, async () => {
    const asked = readRequestInProgress(request.query())
    return redirectTo(goalHref(visit, asked), { outcome: 'way_back', ...(asked ? { appid: asked.appid } : {}) })
  })
}
