import type { ListSignInMethodsResponse } from '../../gen/surveyauth/v1/account_service_pb.js'
import type { CheckAuthorizationRequestResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { browserName } from '../browser-name.js'
import { toProblem } from '../errors.js'
import type { Answer, GatewayDeps, Route } from '../http.js'
import type { Params } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { networkOf } from '../source.js'
import { type AuthorizationRequest, requestValues } from './authorization-request.js'
import { setOwnCookie } from './cookies.js'
import { FormRefused, type FormUse } from './csrf.js'
import { displayName, displayWait } from './display.js'
import { answerForm, csrfField, isOfLostKey, requireForm } from './forms.js'
import { isOfSignIn, type Notice, type SignInNotice } from './notice.js'
import { leaveFor, onlyWay } from './sign-in-elsewhere.js'
import { fill } from './texts.js'
import { type ButtonView, type Message, type Rendered, redirectTo, renderPage } from './view.js'
import { chosenLanguage, goalHref, isProblem, labelOf, redirectWith, type Visit, withGoal } from './visit.js'

/** Where a sign-in leads: the authorization it interrupts, with its checked app; undefined for the connected apps. */
export interface SignInGoal {
  readonly asked: AuthorizationRequest
  readonly app: CheckAuthorizationRequestResponse
}

/**
 * The answer to GET: a page that says what the form has done whose answer led here. Where there is one way to sign in, and that is
 * elsewhere, the browser is sent there, unless there is something to say.
 */
export async function signInPage(visit: Visit, goal: SignInGoal | undefined): Promise<Answer> {
  const { deps, request } = visit
  const methods = await deps.account.listSignInMethods({}, request.rpc)
  const notice = isOfSignIn(visit.notice) ? visit.notice : undefined
  const provider = onlyWay(methods)
  if (provider !== undefined && !notice) return leaveFor(visit, goal?.asked, { provider })
  const message = notice && messageOf(notice, visit)
  const username = isSignOut(notice) ? '' : (notice?.detail ?? '')
  return renderSignIn(visit, goal, methods, username, message, { status: 200, outcome: 'sign_in' })
}

/** What the page says before anybody has typed a name. */
const isSignOut = (notice: Notice | undefined) => notice?.about === 'signOutDone' || notice?.about === 'signOutDoneHere'

function messageOf({ about, detail }: SignInNotice, { t }: Visit): Message | undefined {
  switch (about) {
    case 'typed':
      return undefined
    case 'failed':
    case 'incomplete':
      return { kind: 'alert', text: t.signIn[about] }
    case 'signOutDone':
      return { kind: 'done', text: t.signIn[about] }
    case 'signOutDoneHere':
      return { kind: 'done', text: fill(t.signIn[about], { place: detail || t.signIn.thePlatform }) }
    default:
      return { kind: 'notice', text: t.signIn[about] }
  }
}

function renderSignIn(
  visit: Visit,
  goal: SignInGoal | undefined,
  methods: ListSignInMethodsResponse,
  username: string,
  message: Message | undefined,
  rendered: Rendered,
): Answer {
  const { language, t, setCookies, request, deps } = visit
  const signInForm = {
    action: withGoal(visit, SIGN_IN_PATH, goal?.asked),
    hidden: [csrfField(visit, signInUse(goal?.asked))],
  }
  return renderPage(
    deps.look,
    'sign-in',
    {
      language,
      title: t.signIn.title,
      href: goalHref(visit, goal?.asked),
      ...(methods.password && { switchForm: 'sign-in' }),
      expectsFragment: goal !== undefined && request.method !== 'POST', // the page is at the app's own link
    },
    {
      appName: goal && displayName(goal.app.appName, goal.asked.appid),
      username,
      message,
      form: methods.password ? signInForm : undefined,
      elsewhere: waysElsewhere(visit, methods, goal?.asked, isSignOut(visit.notice) ? 'select_account' : undefined),
    },
    { ...rendered, setCookies, ...appOf(goal?.asked) },
  )
}

/** Of the person who signs in elsewhere: another account, or to prove anew who they are. */
const WISHES = ['select_account', 'reauthenticate'] as const

/** A button for each way to sign in elsewhere, with what it asks for there. */
export function waysElsewhere(
  visit: Visit,
  { platform, providers }: Pick<ListSignInMethodsResponse, 'platform' | 'providers'>,
  asked: AuthorizationRequest | undefined,
  wish: (typeof WISHES)[number] | undefined,
): ButtonView[] {
  const { t } = visit
  const named = providers.map((at) => {
    return { provider: at.provider, label: fill(t.signIn.with, { place: labelOf(visit, at) }) }
  })
  const all = [...(platform ? [{ provider: '', label: t.signIn.atPlatform }] : []), ...named]
  const wished = wish ? [{ name: wish, value: '1' }] : []
  return all.map(({ provider, label }) => {
    const hidden = [{ name: 'provider', value: provider }, ...wished, csrfField(visit, signInUse(asked))]
    return { label, form: { action: withGoal(visit, BEGIN_PATH, asked), hidden } }
  })
}

export const SIGN_IN_PATH = '/connect/sign-in'
export const BEGIN_PATH = '/connect/sign-in/elsewhere'

export const signInRoutes: readonly Route[] = [
  { name: 'sign_in', method: 'POST', path: SIGN_IN_PATH, kind: 'page', answer: signIn },
  { name: 'sign_in_elsewhere', method: 'POST', path: BEGIN_PATH, kind: 'page', answer: beginElsewhere },
]

function beginElsewhere(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  return answerForm(request, deps, async (visit, form, asked) => {
    const refusal = refusalOf(visit, form, asked)
    if (refusal) return refusal
    const [selectAccount, reauthenticate] = WISHES.map((wish) => form.optional(wish, 1) === '1')
    return leaveFor(visit, asked, { provider: form.optional('provider', 32), selectAccount, reauthenticate })
  })
}

/** The language switch sends the form, so that the username is kept; the password is not looked at. */
function signIn(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  return answerForm(request, deps, async (visit, form, asked) => {
    if (chosenLanguage(request)) return askAgain(visit, asked, 'typed', readTyped(form, 'username', 128), 'sign_in')
    const refusal = refusalOf(visit, form, asked)
    const goal = asked && { asked, app: await deps.token.checkAuthorizationRequest(asked, request.rpc) }
    return refusal ?? tryPassword(visit, form, goal)
  })
}

/** The answer to a form of ours that a fresh one can replace; undefined for a valid form. guarded() answers any other refusal. */
function refusalOf(visit: Visit, form: Params, asked: AuthorizationRequest | undefined): Answer | undefined {
  try {
    requireForm(visit, form, signInUse(asked))
    return undefined
  } catch (error) {
    const username = readTyped(form, 'username', 128)
    if (error instanceof FormRefused && error.why === 'expired')
      return askAgain(visit, asked, 'formExpired', username, 'form_expired')
    if (!isOfLostKey(visit, error)) throw error
    return askAgain(visit, asked, 'formReplaced', username, 'form_rejected')
  }
}

async function tryPassword(visit: Visit, form: Params, goal: SignInGoal | undefined): Promise<Answer> {
  const { deps, request, sessionToken } = visit
  const username = readTyped(form, 'username', 128)?.trim() // phones put a space after a word
  const password = readTyped(form, 'password', 1024)
  const failed = (about: 'incomplete' | 'failed') => askAgain(visit, goal?.asked, about, username, 'sign_in_failed')
  if (username === '' || password === '') return failed('incomplete')
  if (username === undefined || password === undefined) return failed('failed')
  try {
    const previousSessionToken = sessionToken ?? ''
    const browser = browserName(request.header('user-agent'))
    const typed = { username, password, source: networkOf(request.source), previousSessionToken, browser }
    const session = await deps.account.signIn(typed, await request.rpcForClient())
    const cookie = setOwnCookie(deps.publicUrl, 'session', session.sessionToken)
    return redirectTo(goalHref(visit, goal?.asked), {
      outcome: 'signed_in',
      setCookies: [cookie],
      ...appOf(goal?.asked),
    })
  } catch (error) {
    if (isProblem(error, 'invalid_credentials') || isProblem(error, 'invalid_argument')) return failed('failed')
    const problem = toProblem(error)
    if (problem.type !== 'request_rate_limited') throw error
    const methods = await deps.account.listSignInMethods({}, request.rpc)
    return tooMany(visit, goal, methods, username, problem.options.retryAfterSeconds ?? 1)
  }
}

/** Answers a form whose session has ended meanwhile, in another tab for example: it was not acted upon, as the page says. */
export function signInAgain(
  visit: Visit,
  asked: AuthorizationRequest | undefined,
  about: SignInNotice['about'],
): Answer {
  return askAgain(visit, asked, about, '', 'sign_in')
}

function askAgain(
  visit: Visit,
  asked: AuthorizationRequest | undefined,
  about: SignInNotice['about'],
  username = '',
  outcome: string,
): Answer {
  return redirectWith(visit, goalHref(visit, asked), { about, detail: username }, { outcome, ...appOf(asked) })
}

/** Not a redirect: the status and `Retry-After` are for programs as well. */
function tooMany(
  visit: Visit,
  goal: SignInGoal | undefined,
  methods: ListSignInMethodsResponse,
  username: string,
  seconds: number,
): Answer {
  const text = fill(visit.t.signIn.rateLimited, { wait: displayWait(seconds, visit.language) })
  const rendered = { status: 429, outcome: 'request_rate_limited', headers: ['retry-after', String(seconds)] }
  return renderSignIn(visit, goal, methods, username, { kind: 'notice', text }, rendered)
}

/** What was typed; undefined when no account can have it, which the page does not distinguish from a wrong one. */
function readTyped(form: Params, name: string, maxLength: number): string | undefined {
  try {
    return form.optional(name, maxLength)
  } catch {
    return undefined
  }
}

/** For the log: the app that the sign-in is for. */
function appOf(asked: AuthorizationRequest | undefined): { readonly appid?: string } {
  return asked ? { appid: asked.appid } : {}
}

function signInUse(asked: AuthorizationRequest | undefined): FormUse {
  return { form: 'sign_in', sessionToken: undefined, about: requestValues(asked) }
}
