// The authorization page (spec 4.1). GET only shows; a confirmed POST of the shown form issues the code.
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { GetSessionResponse } from '../../gen/surveyauth/v1/account_service_pb.js'
import { invalidArgument } from '../errors.js'
import type { Answer, GatewayDeps, Route } from '../http.js'
import type { Params } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { displayFace } from './app-face.js'
import {
  AUTHORIZE_PATH,
  type AuthorizationRequest,
  authorizeHref,
  callbackHref,
  readAuthorizationRequest,
  requestValues,
  withRequest,
} from './authorization-request.js'
import { consentOf, consentTo } from './consent.js'
import { FormRefused, type FormUse } from './csrf.js'
import { callbackHost, displayDay, displayDuration, displayName, displayUser, initial } from './display.js'
import { guarded } from './failures.js'
import { answerForm, csrfField, requireForm } from './forms.js'
import { type SignInGoal, signInAgain, signInPage } from './sign-in.js'
import { SIGN_OUT_PATH, signOutUse } from './sign-out.js'
import { fill } from './texts.js'
import { redirectTo, renderPage } from './view.js'
import { isProblem, openVisit, signedInUser, type Visit } from './visit.js'

export const authorizationRoutes: readonly Route[] = [
  { name: 'authorize', method: 'GET', path: AUTHORIZE_PATH, kind: 'page', answer: show },
  { name: 'decide', method: 'POST', path: AUTHORIZE_PATH, kind: 'page', answer: decide },
]

/** The request is checked before anything is shown, signed in or not. */
function show(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, '', async () => {
    const asked = readAuthorizationRequest(request.query())
    const goal = { asked, app: await deps.token.checkAuthorizationRequest(asked, request.rpc) }
    const user = await signedInUser(visit, asked.appid)
    if (!user) return signInPage(visit, goal)
    return authorizationPage(visit, goal, user)
  })
}

function authorizationPage(visit: Visit, { asked, app }: SignInGoal, user: GetSessionResponse): Answer {
  const { language, t, sessionToken, setCookies } = visit
  const appName = displayName(app.appName, asked.appid)
  const frame = {
    language,
    title: fill(t.authorization.title, { app: appName }),
    href: authorizeHref(asked),
    expectsFragment: true,
  }
  const { permissions, consentVersion, lines } = consentTo(app.permissions, t)
  const view = {
    appName,
    appInitial: initial(appName),
    face: displayFace(app.face, asked.appid, t),
    callbackHost: callbackHost(asked.redirectUri),
    user: displayUser(user, visit.deps.publicUrl),
    lines,
    mayNot: permissions.length > 0 ? t.authorization.mayNot : [t.authorization.notAnswers, ...t.authorization.mayNot],
    duration: displayDuration(app.refreshTokenTtlSeconds, language),
    connectedSince: user.connectTime && displayDay(timestampMs(user.connectTime), language),
    areAnswersNew: permissions.some((permission) => !user.permissions.includes(permission)),
    decision: {
      action: withRequest(AUTHORIZE_PATH, asked),
      hidden: [
        { name: 'consent_version', value: consentVersion },
        csrfField(visit, decisionUse(sessionToken, asked, consentVersion)),
      ],
    },
    leave: {
      action: withRequest(SIGN_OUT_PATH, asked),
      hidden: [csrfField(visit, signOutUse(sessionToken, asked))],
    },
  }
  const rendered = { status: 200, outcome: 'authorization', appid: asked.appid, setCookies }
  return { ...renderPage(visit.deps.look, 'authorization', frame, view, rendered), countsForApp: true }
}

function decide(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  return answerForm(request, deps, (visit, form, asked = readAuthorizationRequest(request.query())) =>
    decideOn(visit, form, asked),
  )
}

async function decideOn(visit: Visit, form: Params, asked: AuthorizationRequest): Promise<Answer> {
  const { deps, request, sessionToken } = visit
  const signedOut = sessionToken === undefined && visit.hadFormKey // in another tab: the form died with the session
  const consentVersion = form.optional('consent_version', 64)
  const requestId = signedOut ? '' : requireForm(visit, form, decisionUse(sessionToken, asked, consentVersion))
  await deps.token.checkAuthorizationRequest(asked, request.rpc)
  if (sessionToken === undefined) return signInAgain(visit, asked, 'sessionEnded')
  const decision = form.optional('decision', 16)
  if (decision === 'cancel') return leave(asked, { error: 'access_denied' }, 'cancelled')
  if (decision !== 'confirm') throw invalidArgument('decision is neither confirm nor cancel')
  const consent = consentOf(consentVersion, Object.values(deps.look.texts))
  if (!consent) throw new FormRefused('expired') // its words have changed
  try {
    const { permissions } = consent
    const { appid, redirectUri, scope, codeChallenge } = asked
    const { code } = await deps.token.issueCode(
      { sessionToken, requestId, appid, redirectUri, scope, codeChallenge, permissions, consentVersion },
      await request.rpcForClient(),
    )
    return leave(asked, { code }, 'confirmed')
  } catch (error) {
    if (isProblem(error, 'invalid_session')) return signInAgain(visit, asked, 'sessionEnded')
    if (isProblem(error, 'invalid_argument')) throw new FormRefused('expired') // it was confirmed too often
    throw error
  }
}

function leave(asked: AuthorizationRequest, result: { code: string } | { error: string }, outcome: string): Answer {
  return redirectTo(callbackHref(asked, result), { outcome, appid: asked.appid })
}

function decisionUse(sessionToken: string | undefined, asked: AuthorizationRequest, consentVersion: string): FormUse {
  return { form: 'authorization', sessionToken, about: [...requestValues(asked), consentVersion] }
}
