// The apps a user has authorized, and ending their access.
import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt'
import type { ConnectedApp, GetSessionResponse } from '../../gen/surveyauth/v1/account_service_pb.js'
import type { Answer, GatewayDeps, Route } from '../http.js'
import type { Params } from '../query.js'
import { MAX_ID_LENGTH } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { displayFace } from './app-face.js'
import type { FormUse } from './csrf.js'
import { callbackHosts, type DisplayTime, displayName, displayTime, displayUser, initial } from './display.js'
import { guarded } from './failures.js'
import { answerForm, csrfField, requireForm } from './forms.js'
import { signInAgain, signInPage } from './sign-in.js'
import { SIGN_OUT_PATH, signOutUse } from './sign-out.js'
import { type ConnectedAppView, redirectTo, renderPage } from './view.js'
import { APPS_PATH, isProblem, openVisit, readOptional, redirectWith, signedInUser, type Visit } from './visit.js'

export const DISCONNECT_PATH = `${APPS_PATH}/disconnect`

export const connectedAppsRoutes: readonly Route[] = [
  { name: 'connected_apps', method: 'GET', path: APPS_PATH, kind: 'page', answer: show },
  { name: 'disconnect', method: 'POST', path: DISCONNECT_PATH, kind: 'page', answer: disconnect },
]

const MAX_SEARCH_LENGTH = 100
const MAX_SHOWN_NAME_LENGTH = 300 // a longer one is left out of the notice that tells whose access has ended

function show(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, APPS_PATH, async () => {
    const { sessionToken } = visit
    const user = await signedInUser(visit)
    if (!user || sessionToken === undefined) return signInPage(visit, undefined)
    const { apps } = await deps.account.listConnectedApps({ sessionToken }, request.rpc)
    return appsPage(visit, user, apps)
  })
}

function appsPage(visit: Visit, user: GetSessionResponse, apps: readonly ConnectedApp[]): Answer {
  const { language, t, sessionToken, notice, setCookies, deps } = visit
  const search = readOptional(visit.request, 'q', MAX_SEARCH_LENGTH)?.trim() ?? ''
  const found = apps.filter((app) => matches(app, search))
  return renderPage(
    deps.look,
    'connected-apps',
    {
      language,
      title: t.apps.title,
      href: search === '' ? APPS_PATH : `${APPS_PATH}?q=${encodeURIComponent(search)}`,
      isWide: true,
    },
    {
      user: displayUser(user, deps.publicUrl),
      ended: notice?.about === 'disconnected' ? notice.detail : undefined,
      search,
      total: apps.length,
      apps: found.map((app) => appView(visit, app)),
      leave: { action: SIGN_OUT_PATH, hidden: [csrfField(visit, signOutUse(sessionToken, undefined))] },
    },
    { status: 200, outcome: 'connected_apps', setCookies, headers: ['cross-origin-opener-policy', 'same-origin'] },
  )
}

/** Finds an app by what the page shows of it. */
function matches({ appName, appid, redirectUris }: ConnectedApp, search: string): boolean {
  const folded = (text: string) => text.normalize('NFKC').toLowerCase()
  return [appName, appid, ...callbackHosts(redirectUris)].some((text) => folded(text).includes(folded(search)))
}

function appView(visit: Visit, app: ConnectedApp): ConnectedAppView {
  const name = displayName(app.appName, app.appid)
  const shown = (time: Timestamp | undefined): DisplayTime => displayTime(time ? timestampMs(time) : 0, visit.language)
  return {
    name,
    initial: initial(name),
    face: displayFace(app.face, app.appid, visit.t),
    appid: app.appid,
    hosts: callbackHosts(app.redirectUris),
    firstUse: shown(app.createTime),
    lastUse: shown(app.lastUseTime ?? app.createTime),
    readsAnswers: app.readsAnswers,
    answersRead: app.answersReadTime && shown(app.answersReadTime),
    expiry: shown(app.expireTime),
    disconnect: [
      { name: 'grant_id', value: app.grantId },
      { name: 'app_name', value: name },
      csrfField(visit, disconnectUse(visit.sessionToken, app.grantId)),
    ],
  }
}

/** A grant that is already gone leads to the same page, which shows what is true now. */
function disconnect(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  return answerForm(request, deps, async (visit, form) => {
    const grantId = form.required('grant_id', MAX_ID_LENGTH)
    const { sessionToken } = visit
    if (sessionToken === undefined) return signInAgain(visit, undefined, 'signedOut')
    requireForm(visit, form, disconnectUse(sessionToken, grantId))
    try {
      await deps.account.disconnectApp({ sessionToken, grantId }, request.rpc)
      const notice = { about: 'disconnected', detail: readName(form) } as const
      return redirectWith(visit, APPS_PATH, notice, { outcome: 'disconnected' })
    } catch (error) {
      if (isProblem(error, 'invalid_session')) return signInAgain(visit, undefined, 'signedOut')
      if (isProblem(error, 'not_found')) return redirectTo(APPS_PATH, { outcome: 'not_connected' })
      throw error
    }
  })
}

function disconnectUse(sessionToken: string | undefined, grantId: string): FormUse {
  return { form: 'disconnect', sessionToken, about: [grantId] }
}

/** As the form had it, which is as the user saw it; '' if the form had none. */
function readName(form: Params): string {
  const name = form.first('app_name') ?? ''
  return name.length > MAX_SHOWN_NAME_LENGTH ? '' : displayName(name, '')
}
