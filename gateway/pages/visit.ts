// One request to a page: who asks, in which language, and what they have just done.
import type { GetSessionResponse, SignInProvider } from '../../gen/surveyauth/v1/account_service_pb.js'
import { type ProblemType, toProblem } from '../errors.js'
import type { Answer, GatewayDeps } from '../http.js'
import type { GatewayRequest } from '../request.js'
import { type AuthorizationRequest, authorizeHref, withRequest } from './authorization-request.js'
import { clearOwnCookie, readOwnCookie, setLanguageCookie, setOwnCookie } from './cookies.js'
import { newFormKey } from './csrf.js'
import { type Language, languageOf, toLanguage } from './language.js'
import { type Notice, readNotice, writeNotice } from './notice.js'
import { originOf } from './own-origin.js'
import type { Texts } from './texts.js'
import { type Rendered, redirectTo } from './view.js'

export const APPS_PATH = '/connect/apps'
export const ACCOUNT_PATH = '/connect/account'

/** Where signing in and out leads. */
export function goalHref({ home }: Pick<Visit, 'home'>, asked: AuthorizationRequest | undefined): string {
  return asked ? authorizeHref(asked) : home
}

/** An address to which a form is sent, which leads to the goal from there. */
export function withGoal({ home }: Pick<Visit, 'home'>, path: string, asked: AuthorizationRequest | undefined): string {
  return asked || home === APPS_PATH ? withRequest(path, asked) : `${path}?goal=account`
}

/** Of a provider, in the language of the page. */
export function labelOf({ language }: Pick<Visit, 'language'>, { labelEn, labelZh }: SignInProvider): string {
  return language === 'zh' ? labelZh : labelEn
}

export interface Visit {
  readonly request: GatewayRequest
  readonly deps: GatewayDeps
  readonly language: Language
  readonly t: Texts
  readonly sessionToken: string | undefined
  /** Which of our pages it is about when no authorization is in progress. */
  readonly home: typeof APPS_PATH | typeof ACCOUNT_PATH
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
    t: deps.look.texts[language],
    home: homeOf(request),
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

function homeOf(request: GatewayRequest): Visit['home'] {
  const isAccount = request.path.startsWith(ACCOUNT_PATH) || readOptional(request, 'goal') === 'account'
  return isAccount ? ACCOUNT_PATH : APPS_PATH
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

/** Answers a form: the page at `href` says what has happened. */
export function redirectWith(visit: Visit, href: string, notice: Notice, rendered: Omit<Rendered, 'status'>): Answer {
  const setCookies = [
    ...visit.setCookies,
    ...(rendered.setCookies ?? []),
    setOwnCookie(visit.deps.publicUrl, 'notice', writeNotice(notice)),
  ]
  return redirectTo(href, { ...rendered, setCookies })
}

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
