import type { CheckAuthorizationRequestResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { toProblem } from '../errors.js'
import type { Answer, GatewayDeps, GatewayRequest, Route } from '../http.js'
import type { Params } from '../query.js'
import { networkOf } from '../source.js'
import {
  type AuthorizationRequest,
  authorizeHref,
  readRequestInProgress,
  requestFields,
  requestValues,
} from './authorization-request.js'
import { setSecretCookie } from './cookies.js'
import type { FormUse } from './csrf.js'
import { displayName, displayWait } from './display.js'
import { redirectTo, renderPage } from './view.js'
import {
  APPS_PATH,
  chosenLanguage,
  csrfField,
  FormRefused,
  guarded,
  isOfLostKey,
  isProblem,
  openVisit,
  readForm,
  requireForm,
  type Visit,
} from './visit.js'

/** Where a sign-in leads: the authorization it interrupts, with its checked app; undefined for the connected apps. */
export interface SignInGoal {
  readonly asked: AuthorizationRequest
  readonly app: CheckAuthorizationRequestResponse
}

interface Attempt {
  readonly status: number
  readonly outcome: string
  readonly alert?: string
  readonly notice?: string
  /** What has just been done, said once. */
  readonly done?: string | undefined
  readonly username?: string
  readonly headers?: Readonly<Record<string, string>>
}

export function signInPage(visit: Visit, goal: SignInGoal | undefined, attempt: Attempt): Answer {
  const { language, t, setCookies } = visit
  const answersForm = visit.request.method === 'POST'
  const saysOnce = answersForm || attempt.done !== undefined
  return renderPage(
    'sign-in',
    {
      language,
      title: t.signIn.title,
      href: goalHref(goal?.asked),
      switchForm: 'sign-in',
      expectsFragment: goal !== undefined && !answersForm, // the page is at the app's own link
      address: saysOnce ? goalHref(goal?.asked) : undefined,
    },
    {
      appName: goal && displayName(goal.app.appName, goal.asked.appid),
      username: attempt.username ?? '',
      alert: attempt.alert,
      notice: attempt.notice,
      done: attempt.done,
      isWrong: attempt.outcome === 'sign_in_failed',
      hidden: [...requestFields(goal?.asked), csrfField(visit, signInUse(goal?.asked))],
    },
    { ...attempt, setCookies, ...appOf(goal) },
  )
}

export const signInRoute: Route = {
  name: 'sign_in',
  method: 'POST',
  path: '/connect/sign-in',
  kind: 'page',
  answer: signIn,
}

function signIn(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, APPS_PATH, async () => {
    const form = await readForm(visit)
    const asked = readRequestInProgress(form)
    return guarded(visit, goalHref(asked), async () => {
      if (chosenLanguage(request)) return inOtherLanguage(visit, form, asked)
      const refusal = refusalOf(visit, form, asked)
      const goal = asked && { asked, app: await deps.token.checkAuthorizationRequest(asked, request.rpc) }
      return refusal ? signInPage(visit, goal, refusal) : tryPassword(visit, form, goal)
    })
  })
}

/** The language switch sends the form, so that the username is kept; the password is not looked at. */
async function inOtherLanguage(visit: Visit, form: Params, asked: AuthorizationRequest | undefined): Promise<Answer> {
  const goal = asked && { asked, app: await visit.deps.token.checkAuthorizationRequest(asked, visit.request.rpc) }
  const username = readTyped(form, 'username', 128) ?? ''
  return signInPage(visit, goal, { status: 200, outcome: 'sign_in', username })
}

/** The refusal of a form of ours that a fresh one can replace; undefined for a valid form. guarded() answers any other refusal. */
function refusalOf(visit: Visit, form: Params, asked: AuthorizationRequest | undefined): Attempt | undefined {
  try {
    requireForm(visit, form, signInUse(asked))
    return undefined
  } catch (error) {
    const username = readTyped(form, 'username', 128) ?? ''
    if (error instanceof FormRefused && error.why === 'expired')
      return { status: 400, outcome: 'form_expired', username, notice: visit.t.signIn.formExpired }
    if (!isOfLostKey(visit, error)) throw error
    return { status: 403, outcome: 'form_rejected', username, notice: visit.t.signIn.formReplaced }
  }
}

async function tryPassword(visit: Visit, form: Params, goal: SignInGoal | undefined): Promise<Answer> {
  const { deps, request, t, sessionToken } = visit
  const username = readTyped(form, 'username', 128)?.trim() // phones put a space after a word
  const password = readTyped(form, 'password', 1024)
  const attempt = { status: 401, outcome: 'sign_in_failed', username: username ?? '' }
  if (username === '' || password === '') return signInPage(visit, goal, { ...attempt, alert: t.signIn.incomplete })
  const failed = { ...attempt, alert: t.signIn.failed }
  if (username === undefined || password === undefined) return signInPage(visit, goal, failed)
  try {
    const previousSessionToken = sessionToken ?? ''
    const typed = { username, password, source: networkOf(request.source), previousSessionToken }
    const session = await deps.account.signIn(typed, await request.rpcForClient())
    const cookie = setSecretCookie(deps.publicUrl, 'session', session.sessionToken)
    return redirectTo(goalHref(goal?.asked), { outcome: 'signed_in', setCookies: [cookie], ...appOf(goal) })
  } catch (error) {
    if (isProblem(error, 'invalid_credentials') || isProblem(error, 'invalid_argument'))
      return signInPage(visit, goal, failed)
    const problem = toProblem(error)
    if (problem.type !== 'request_rate_limited') throw error
    return signInPage(visit, goal, { ...attempt, ...tooMany(visit, problem.options.retryAfterSeconds ?? 1) })
  }
}

/** Answers a form whose session has ended meanwhile, in another tab for example: it was not acted upon, as `notice` says. */
export function signInAgain(visit: Visit, goal: SignInGoal | undefined, notice: string): Answer {
  return signInPage(visit, goal, { status: 401, outcome: 'sign_in', notice })
}

function tooMany(visit: Visit, seconds: number): Attempt {
  const alert = visit.t.signIn.rateLimited(displayWait(seconds, visit.language))
  return { status: 429, outcome: 'request_rate_limited', alert, headers: { 'retry-after': String(seconds) } }
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
function appOf(goal: SignInGoal | undefined): { readonly appid?: string } {
  return goal ? { appid: goal.asked.appid } : {}
}

function signInUse(asked: AuthorizationRequest | undefined): FormUse {
  return { form: 'sign_in', sessionToken: undefined, about: requestValues(asked) }
}

/** Where signing in and out leads. */
export function goalHref(asked: AuthorizationRequest | undefined): string {
  return asked ? authorizeHref(asked) : APPS_PATH
}
