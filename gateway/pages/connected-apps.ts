// The apps a user has authorized, and ending their access.
import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt'
import type { ConnectedApp, GetSessionResponse } from '../../gen/surveyauth/v1/account_service_pb.js'
import { MAX_ID_LENGTH } from '../bounds.js'
import type { Answer, GatewayDeps, GatewayRequest, Route } from '../http.js'
import type { FormUse } from './csrf.js'
import { type DisplayTime, displayName, displayTime, displayUser, initial } from './display.js'
import { isFromOwnPage } from './own-origin.js'
import { signInAgain, signInPage } from './sign-in.js'
import { signOutUse } from './sign-out.js'
import { type ConnectedAppView, redirectTo, renderPage } from './view.js'
import {
  APPS_PATH,
  csrfField,
  guarded,
  isProblem,
  openVisit,
  readForm,
  readOptional,
  requireForm,
  signedInUser,
  type Visit,
} from './visit.js'

export const connectedAppsRoutes: readonly Route[] = [
  { name: 'connected_apps', method: 'GET', path: APPS_PATH, kind: 'page', answer: show },
  { name: 'disconnect', method: 'POST', path: `${APPS_PATH}/disconnect`, kind: 'page', answer: disconnect },
]

const DISCONNECTED_HREF = `${APPS_PATH}?disconnected=1`

function show(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, APPS_PATH, async () => {
    const { sessionToken } = visit
    const user = await signedInUser(visit)
    if (!user || sessionToken === undefined) {
      const done = hasJust(visit, 'signed_out') ? visit.t.signIn.signOutDone : undefined
      return signInPage(visit, undefined, { status: 200, outcome: 'sign_in', done })
    }
    const { apps } = await deps.account.listConnectedApps({ sessionToken }, request.rpc)
    return appsPage(visit, user, apps)
  })
}

function appsPage(visit: Visit, user: GetSessionResponse, apps: readonly ConnectedApp[]): Answer {
  const { language, t, sessionToken, setCookies } = visit
  const hasEnded = hasJust(visit, 'disconnected')
  return renderPage(
    'connected-apps',
    {
      language,
      title: t.apps.title,
      languageHref: (to) => `${APPS_PATH}?lang=${to}`,
      isWide: true,
      address: hasEnded ? APPS_PATH : undefined, // it says so once, not again when it is reloaded
    },
    {
      ...displayUser(user),
      wasDisconnected: hasEnded,
      apps: apps.map((app) => appView(visit, app)),
      signOut: [csrfField(visit, signOutUse(sessionToken, undefined))],
    },
    { status: 200, outcome: 'connected_apps', setCookies, headers: { 'cross-origin-opener-policy': 'same-origin' } },
  )
}

/** Whether our own form led here, as far as browsers tell (decisions 23): an app could link here when nothing has happened. */
function hasJust({ request, deps }: Visit, happened: 'disconnected' | 'signed_out'): boolean {
  return readOptional(request, happened) === '1' && isFromOwnPage(request, deps.publicUrl)
}

function appView(visit: Visit, app: ConnectedApp): ConnectedAppView {
  const name = displayName(app.appName, app.appid)
  const shown = (time: Timestamp | undefined): DisplayTime => displayTime(time ? timestampMs(time) : 0, visit.language)
  return {
    name,
    initial: initial(name),
    scope: visit.t.apps.scopes[app.scope] ?? app.scope,
    firstUse: shown(app.createTime),
    lastUse: shown(app.lastUseTime ?? app.createTime),
    expiry: shown(app.expireTime),
    disconnect: [
      { name: 'grant_id', value: app.grantId },
      csrfField(visit, disconnectUse(visit.sessionToken, app.grantId)),
    ],
  }
}

/** A grant that is already gone leads to the same page, which shows what is true now. */
function disconnect(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, APPS_PATH, async () => {
    const form = await readForm(visit)
    const grantId = form.required('grant_id', MAX_ID_LENGTH)
    const { sessionToken } = visit
    if (sessionToken === undefined) return signInAgain(visit, undefined, visit.t.signIn.signedOut)
    requireForm(visit, form, disconnectUse(sessionToken, grantId))
    try {
      await deps.account.disconnectApp({ sessionToken, grantId }, request.rpc)
      return redirectTo(DISCONNECTED_HREF, { outcome: 'disconnected' })
    } catch (error) {
      if (isProblem(error, 'invalid_session')) return signInAgain(visit, undefined, visit.t.signIn.signedOut)
      if (isProblem(error, 'not_found')) return redirectTo(APPS_PATH, { outcome: 'not_connected' })
      throw error
    }
  })
}

function disconnectUse(sessionToken: string | undefined, grantId: string): FormUse {
  return { form: 'disconnect', sessionToken, about: [grantId] }
}
