// One request to a page: who asks, in which language, with which forms; and how every page deals with failures.
import type { GetSessionResponse } from '../../gen/surveyauth/v1/account_service_pb.js'
import { failureHeaders } from '../envelope.js'
import { type Problem, type ProblemType, toProblem } from '../errors.js'
import type { Answer, GatewayDeps } from '../http.js'
import type { Params } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { type AuthorizationRequest, authorizeHref, readRequestInProgress } from './authorization-request.js'
import { clearOwnCookie, readOwnCookie, setLanguageCookie, setOwnCookie } from './cookies.js'
import { checkForm, type FormUse, newFormId, newFormKey, signForm } from './csrf.js'
import { errorPage } from './error-page.js'
import { type Language, languageOf, toLanguage } from './language.js'
import { type Notice, readNotice, writeNotice } from './notice.js'
import { originOf, saysOrigin } from './own-origin.js'
import { type Texts, texts } from './texts.js'
import { type HiddenField, type Rendered, redirectTo } from './view.js'

export const APPS_PATH = '/connect/apps'

/** Where signing in and out leads. */
export function goalHref(asked: AuthorizationRequest | undefined): string {
  return asked ? authorizeHref(asked) : APPS_PATH
}

export interface Visit {
  readonly request: GatewayRequest
  readonly deps: GatewayDeps
  readonly language: Language
  readonly t: Texts
  readonly sessionToken: string | undefined
  /** Signs this browser's forms. Kept as long as the browser keeps it, so that forms in other tabs stay valid. */
  readonly formKey: string
  /** False when the browser sent no key, so that it cannot show a form of ours. */
  readonly hadFormKey: boolean
  /** What the form has done whose answer led here. */
  readonly notice: Notice | undefined
  /** Cookies to set with whatever page is the answer. */
  readonly setCookies: readonly string[]
}

export function openVisit(request: GatewayRequest, deps: GatewayDeps): Visit {
  const cookies = request.header('cookie')
  const chosen = chosenLanguage(request)
  const language = chosen ?? languageOf(request)
  const sentKey = readOwnCookie(deps.publicUrl, cookies, 'form_key')
  const formKey = sentKey ?? newFormKey(deps.randomBytes)
  const notice = request.method === 'POST' ? undefined : readNotice(readOwnCookie(deps.publicUrl, cookies, 'notice'))
  return {
    request,
    deps,
    language,
    t: texts[language],
    sessionToken: readOwnCookie(deps.publicUrl, cookies, 'session'),
    formKey,
    hadFormKey: sentKey !== undefined,
    notice,
    setCookies: [
      ...(sentKey === undefined ? [setOwnCookie(deps.publicUrl, 'form_key', formKey)] : []),
      ...(notice ? [clearOwnCookie(deps.publicUrl, 'notice')] : []),
      // Chosen by the switch, or by somebody's link, which need not be what the user wants from then on.
      ...(chosen ? [setLanguageCookie(deps.publicUrl, chosen, originOf(request, deps.publicUrl) === 'own')] : []),
    ],
  }
}

/** The user of the session, with what connects them to `appid` if that is given; undefined when nobody is signed in. */
export async function signedInUser(visit: Visit, appid = ''): Promise<GetSessionResponse | undefined> {
  const { sessionToken, deps, request } = visit
  if (sessionToken === undefined) return undefined
  return deps.account.getSession({ sessionToken, appid }, request.rpc).catch((error) => {
    if (isProblem(error, 'invalid_session')) return undefined
    throw error
  })
}

export function isProblem(error: unknown, type: ProblemType): boolean {
  const problem = toProblem(error)
  return problem.type === type && !problem.isOfHttp
}

/** Why a form is not acted upon; guarded() turns it into an answer. */
export class FormRefused extends Error {
  constructor(readonly why: 'cross_site' | 'hidden_origin' | 'expired' | 'no_cookies' | 'rejected') {
    super(`form refused: ${why}`)
  }
}

/**
 * Answers a form of our own pages. Whatever fails leads back to where the form is: the authorization request that its address
 * keeps, undefined when none is in progress, or the connected apps.
 */
export function answerForm(
  request: GatewayRequest,
  deps: GatewayDeps,
  answer: (visit: Visit, form: Params, asked: AuthorizationRequest | undefined) => Promise<Answer>,
): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, APPS_PATH, async () => {
    const asked = readRequestInProgress(request.query())
    return guarded(visit, goalHref(asked), async () => answer(visit, await readForm(visit), asked))
  })
}

async function readForm(visit: Visit): Promise<Params> {
  const origin = originOf(visit.request, visit.deps.publicUrl)
  if (origin !== 'own') throw new FormRefused(origin === 'hidden' ? 'hidden_origin' : 'cross_site')
  return visit.request.form()
}

/** Signs a form that is about to be shown. */
export function csrfField(visit: Visit, use: FormUse): HiddenField {
  const { deps, formKey } = visit
  const now = deps.now()
  return { name: 'csrf', value: signForm(formKey, use, newFormId(deps.randomBytes, now), now) }
}

/** The id of a form that we made for this use. @throws FormRefused for any other, which guarded() answers. */
export function requireForm(visit: Visit, form: Params, use: FormUse): string {
  if (!visit.hadFormKey) throw new FormRefused('no_cookies')
  const check = checkForm(visit.formKey, use, form.optional('csrf', 512), visit.deps.now())
  if ('refused' in check) throw new FormRefused(check.refused)
  return check.formId
}

/** Answers a form: the page at `href` says what has happened. */
export function redirectWith(visit: Visit, href: string, notice: Notice, rendered: Omit<Rendered, 'status'>): Answer {
  const setCookies = [
    ...visit.setCookies,
    ...(rendered.setCookies ?? []),
    setOwnCookie(visit.deps.publicUrl, 'notice', writeNotice(notice)),
  ]
  return redirectTo(href, { ...rendered, setCookies })
}

/**
 * Whether a form of our own page was refused for its signature although the browser has a key: two pages opened at once, before
 * it has one, bring one each, and it keeps the last.
 */
export function isOfLostKey({ request }: Visit, error: unknown): boolean {
  return error instanceof FormRefused && error.why === 'rejected' && saysOrigin(request)
}

/**
 * Answers, or shows a page about the failure with a way on that loses nothing. Any other failure is rethrown to the server,
 * which answers it with a general error page and logs it if it is unexpected.
 */
export async function guarded(visit: Visit, wayOn: string, answer: () => Promise<Answer>): Promise<Answer> {
  try {
    return await answer()
  } catch (error) {
    return failurePage(visit, wayOn, error)
  }
}

function failurePage(visit: Visit, href: string, error: unknown): Answer {
  const { t, language, request, setCookies, deps } = visit
  const page = { language, requestId: request.requestId, setCookies }
  if (error instanceof FormRefused) {
    const base = error.why === 'cross_site' ? deps.publicUrl.origin : '' // the form may be from another address of this service
    const wayOn = { href: base + href, label: t.form.startAgain }
    return errorPage({ ...page, ...refusals(t, deps.publicUrl.origin)[error.why], outcome: `form_${error.why}`, wayOn })
  }
  const problem = toProblem(error)
  if (problem.type === 'remote_server_error') {
    const wayOn = { href, label: t.errors.tryAgain }
    return errorPage({ ...page, status: 503, outcome: problem.type, headers: failureHeaders(problem.options), wayOn })
  }
  if (problem.options.httpStatus !== undefined || problem.kind.status !== 400) throw error
  if (request.method === 'GET' || problem.type !== 'invalid_argument') return badLinkPage(visit, problem)
  const [heading, message] = [t.form.unreadable, t.form.unreadableLead]
  const wayOn = { href, label: t.form.startAgain }
  return errorPage({ ...page, status: 400, outcome: problem.type, heading, message, wayOn })
}

/** The app's own mistake: never a redirect, and the developer learns what to change (decisions 19). */
function badLinkPage({ t, language, request, setCookies }: Visit, problem: Problem): Answer {
  const isBare = problem.options.malformed?.what === 'missing' && request.query().isEmpty // typed
  const notes: Partial<Record<ProblemType, string>> = {
    invalid_appid: t.link.invalidAppid,
    invalid_redirect_uri: t.link.invalidRedirectUri,
    invalid_response_type: t.link.invalidResponseType,
    invalid_scope: t.link.invalidScope,
    invalid_state: t.link.invalidState,
  }
  return errorPage({
    status: 400,
    outcome: problem.type,
    requestId: request.requestId,
    language,
    setCookies,
    heading: isBare ? t.link.bare : t.link.title,
    message: isBare ? t.link.bareLead : t.link.lead,
    developerNote: notes[problem.type] ?? t.link.malformed(problem),
    wayOn: null,
  })
}

const refusals = ({ form }: Texts, address: string) => ({
  cross_site: { status: 403, heading: form.crossSite, message: form.crossSiteLead(address) },
  hidden_origin: { status: 403, heading: form.hiddenOrigin, message: form.hiddenOriginLead(address) },
  expired: { status: 400, heading: form.expired, message: form.expiredLead },
  no_cookies: { status: 403, heading: form.noCookies, message: form.noCookiesLead(address) },
  rejected: { status: 403, heading: form.rejected, message: form.rejectedLead },
})

export function chosenLanguage(request: GatewayRequest): Language | undefined {
  return toLanguage(readOptional(request, 'lang'))
}

/** A parameter that only changes how a page looks: a malformed query counts as none. */
export function readOptional(request: GatewayRequest, name: string, maxLength = 35): string | undefined {
  try {
    return request.query().optional(name, maxLength)
  } catch {
    return undefined
  }
}
