// One request to a page: who asks, in which language, with which forms; and how every page deals with failures.
import type { ConnectedApp, GetSessionResponse } from '../../gen/surveyauth/v1/account_service_pb.js'
import { failureHeaders } from '../envelope.js'
import { type Problem, type ProblemType, toProblem } from '../errors.js'
import type { Answer, GatewayDeps, GatewayRequest } from '../http.js'
import type { Params } from '../query.js'
import { readSecretCookie, setLanguageCookie, setSecretCookie } from './cookies.js'
import { checkForm, type FormUse, isFormKey, newFormId, newFormKey, signForm } from './csrf.js'
import { errorPage } from './error-page.js'
import { type Language, languageOf, toLanguage } from './language.js'
import { isFromOwnPage, saysOwnPage } from './own-origin.js'
import { type Texts, texts } from './texts.js'
import type { HiddenField } from './view.js'

export const APPS_PATH = '/connect/apps'

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
  /** Cookies to set with whatever page is the answer. */
  readonly setCookies: readonly string[]
}

export function openVisit(request: GatewayRequest, deps: GatewayDeps): Visit {
  const cookies = request.header('cookie')
  const chosen = chosenLanguage(request)
  const language = chosen ?? languageOf(request)
  const sentKey = readSecretCookie(deps.publicUrl, cookies, 'form_key')
  const hadFormKey = isFormKey(sentKey)
  const formKey = hadFormKey ? sentKey : newFormKey(deps.randomBytes)
  return {
    request,
    deps,
    language,
    t: texts[language],
    sessionToken: readSecretCookie(deps.publicUrl, cookies, 'session'),
    formKey,
    hadFormKey,
    setCookies: [
      ...(hadFormKey ? [] : [setSecretCookie(deps.publicUrl, 'form_key', formKey)]),
      // Chosen by the switch, or by somebody's link, which need not be what the user wants from then on.
      ...(chosen ? [setLanguageCookie(deps.publicUrl, chosen, isFromOwnPage(request, deps.publicUrl))] : []),
    ],
  }
}

/** The user of the session; undefined when nobody is signed in. */
export async function signedInUser(visit: Visit): Promise<GetSessionResponse | undefined> {
  const { sessionToken, deps, request } = visit
  if (sessionToken === undefined) return undefined
  return unlessSignedOut(deps.account.getSession({ sessionToken }, request.rpc))
}

/** What the user of the session has granted to this app; undefined when that is nothing, or nobody is signed in. */
export async function connectedApp(visit: Visit, appid: string): Promise<ConnectedApp | undefined> {
  const { sessionToken, deps, request } = visit
  if (sessionToken === undefined) return undefined
  const listed = await unlessSignedOut(deps.account.listConnectedApps({ sessionToken, appid }, request.rpc))
  return listed?.apps[0]
}

async function unlessSignedOut<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch (error) {
    if (isProblem(error, 'invalid_session')) return undefined
    throw error
  }
}

/** Whether this is what a service says; that a client has left, HTTP says. */
export function isProblem(error: unknown, type: ProblemType): boolean {
  const problem = toProblem(error)
  return problem.type === type && !problem.isOfHttp
}

/** Why a form is not acted upon; guarded() turns it into an answer. */
export class FormRefused extends Error {
  constructor(readonly why: 'cross_site' | 'expired' | 'no_cookies' | 'rejected') {
    super(`form refused: ${why}`)
  }
}

/** The fields of a form that comes from our own pages. */
export async function readForm(visit: Visit): Promise<Params> {
  if (!isFromOwnPage(visit.request, visit.deps.publicUrl)) throw new FormRefused('cross_site')
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

/**
 * Whether a form of our own page was refused for its signature although the browser has a key: two pages opened at once, before
 * it has one, bring one each, and it keeps the last.
 */
export function isOfLostKey({ request }: Visit, error: unknown): boolean {
  return error instanceof FormRefused && error.why === 'rejected' && saysOwnPage(request)
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
    const wayOn = { href, label: t.form.startAgain }
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
  const isBare = problem.options.malformed?.what === 'missing' && request.query().isEmpty // typed, or of an answer to a form
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
