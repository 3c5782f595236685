// Signing in at the platform's own page or at a provider: the browser leaves with a challenge, and comes back with an answer, which
// the token service verifies and ties to the key of this browser.
import {
  type CompleteSignInResponse,
  type ListSignInMethodsResponse,
  CompleteSignInResponse_Outcome as Outcome,
} from '../../gen/surveyauth/v1/account_service_pb.js'
import { browserName } from '../browser-name.js'
import { toProblem } from '../errors.js'
import type { Answer, GatewayDeps, Route } from '../http.js'
import { parseQuery } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { networkOf } from '../source.js'
import { type AuthorizationRequest, callbackHref, readRequestInProgress } from './authorization-request.js'
import { setOwnCookie } from './cookies.js'
import { errorPage } from './error-page.js'
import { guarded } from './failures.js'
import { redirectTo } from './view.js'
import { ACCOUNT_PATH, APPS_PATH, goalHref, openVisit, redirectWith, type Visit } from './visit.js'

/** Where somebody signs in who does not type a password here: a provider, or the platform if empty. */
export interface Elsewhere {
  readonly provider: string
  /** Whether the person wants to choose another account there. */
  readonly selectAccount?: boolean | undefined
  /** Whether the person wants to prove anew who they are. */
  readonly reauthenticate?: boolean | undefined
}

const RETURN_PATH = '/connect/sign-in/return'

export const returnRoutes: readonly Route[] = [
  { name: 'sign_in_return', method: 'GET', path: RETURN_PATH, kind: 'page', answer: comeBackFromPlatform },
  {
    name: 'oidc_callback',
    method: 'GET',
    path: '/connect/oidc/:id/callback',
    kind: 'page',
    answer: comeBackFromProvider,
  },
]

/** Where to go at once, because there is nothing to choose; undefined when there is. */
export function onlyWay({ password, platform, providers }: ListSignInMethodsResponse): string | undefined {
  const elsewhere = [...(platform ? [''] : []), ...providers.map(({ provider }) => provider)]
  return !password && elsewhere.length === 1 ? elsewhere[0] : undefined
}

/** Sends the browser there. @throws what BeginSignIn throws, but for a provider that cannot be asked: that is a page */
export async function leaveFor(
  visit: Visit,
  asked: AuthorizationRequest | undefined,
  { provider, selectAccount = false, reauthenticate = false }: Elsewhere,
  setCookies: readonly string[] = visit.setCookies,
): Promise<Answer> {
  const { deps, request } = visit
  const signIn = { ...(asked && { appid: asked.appid, redirectUri: asked.redirectUri }), selectAccount, reauthenticate }
  return leave(visit, provider, goalHref(visit, asked), async (where) => {
    const { redirectTo: address } = await deps.account.beginSignIn({ ...signIn, ...where }, request.rpc)
    return redirectTo(address, { outcome: 'sign_in_elsewhere', setCookies, ...appOf(asked) })
  })
}

/** Sends the browser to a provider for an identity to link. @throws what BeginLink throws, but for a provider that cannot be asked */
export function leaveToLink(
  visit: Visit,
  provider: string,
  proof: { readonly sessionToken: string; readonly password: string },
): Promise<Answer> {
  const { deps, request, setCookies } = visit
  return leave(visit, provider, ACCOUNT_PATH, async (where) => {
    const { redirectTo: address } = await deps.account.beginLink({ ...proof, ...where }, request.rpc)
    return redirectTo(address, { outcome: 'link', setCookies })
  })
}

/** What both ways of leaving have in common. */
interface Where {
  readonly provider: string
  readonly language: string
  readonly browserKey: string
  readonly source: string
  readonly returnUri: string
  readonly restartUri: string
}

async function leave(
  visit: Visit,
  provider: string,
  goal: string,
  begin: (where: Where) => Promise<Answer>,
): Promise<Answer> {
  const { deps, request, language, formKey } = visit
  const { origin } = deps.publicUrl
  const path = provider === '' ? RETURN_PATH : `/connect/oidc/${provider}/callback`
  try {
    return await begin({
      provider,
      language,
      browserKey: formKey,
      source: networkOf(request.source),
      returnUri: origin + path,
      restartUri: origin + goal,
    })
  } catch (error) {
    const { type, options } = toProblem(error)
    if (type === 'provider_unavailable') return pageAbout(visit, 'providerUnavailable', goal, options.retryAfterSeconds)
    if (type === 'provider_misconfigured') return pageAbout(visit, 'providerMisconfigured', goal)
    throw error
  }
}

function comeBackFromPlatform(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  return comeBack(request, deps, async (browser) => {
    const verifier = request.query().optional('verifier', 128)
    return deps.account.completeSignIn({ verifier, ...browser }, await request.rpcForClient())
  })
}

function comeBackFromProvider(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  return comeBack(request, deps, async (browser) => {
    const brought = { provider: request.pathParameters[0] ?? '', parameters: request.queryText }
    return deps.account.completeSignIn({ ...brought, ...browser }, await request.rpcForClient())
  })
}

type Browser = { readonly browserKey: string; readonly previousSessionToken: string; readonly browser: string }

function comeBack(
  request: GatewayRequest,
  deps: GatewayDeps,
  complete: (browser: Browser) => Promise<CompleteSignInResponse>,
): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, APPS_PATH, async () => {
    const browserKey = visit.hadFormKey ? visit.formKey : ''
    const browser = browserName(request.header('user-agent'))
    const completed = await complete({ browserKey, previousSessionToken: visit.sessionToken ?? '', browser })
    return answerTo(visit, completed)
  })
}

async function answerTo(visit: Visit, { outcome, sessionToken, restartUri }: CompleteSignInResponse): Promise<Answer> {
  const { deps } = visit
  const goal = hrefOf(restartUri)
  if (outcome === Outcome.SIGNED_IN) {
    const setCookies = [...visit.setCookies, setOwnCookie(deps.publicUrl, 'session', sessionToken)]
    return redirectTo(goal, { outcome: 'signed_in', setCookies })
  }
  if (outcome === Outcome.LINKED)
    return redirectWith(visit, goal, { about: 'linked', detail: '' }, { outcome: 'linked' })
  if (outcome === Outcome.CANCELLED && goal === ACCOUNT_PATH && visit.sessionToken !== undefined)
    return redirectTo(goal, { outcome: 'cancelled', setCookies: visit.setCookies })
  if (outcome === Outcome.CANCELLED)
    return (await refusedAccess(visit, restartUri)) ?? pageAbout(visit, 'cancelled', goal)
  return pageAbout(visit, pages[outcome] ?? 'unknown', goal)
}

/** Tells the app that the person does not want to, as if they had refused access; undefined when no app has asked. */
async function refusedAccess({ deps, request }: Visit, restartUri: string): Promise<Answer | undefined> {
  const asked = readRequestInProgress(parseQuery(new URL(restartUri).search.slice(1)))
  if (!asked) return undefined
  await deps.token.checkAuthorizationRequest(asked, request.rpc)
  return redirectTo(callbackHref(asked, { error: 'access_denied' }), { outcome: 'cancelled', ...appOf(asked) })
}

/** An address of ours without its origin; the connected apps if there is none. */
function hrefOf(uri: string): string {
  if (uri === '') return APPS_PATH
  const { pathname, search, hash } = new URL(uri)
  return pathname + search + hash
}

type Page = keyof Visit['t']['signInElsewhere']

const pages: Partial<Record<Outcome, Page>> = {
  [Outcome.NOT_ALLOWED]: 'notAllowed',
  [Outcome.NO_ACCOUNT]: 'noAccount',
  [Outcome.USER_DISABLED]: 'userDisabled',
  [Outcome.IDENTITY_TAKEN]: 'identityTaken',
  [Outcome.EXPIRED]: 'expired',
  [Outcome.OTHER_BROWSER]: 'otherBrowser',
  [Outcome.PROVIDER_UNAVAILABLE]: 'providerUnavailable',
  [Outcome.PROVIDER_MISCONFIGURED]: 'providerMisconfigured',
}

const statuses: Partial<Record<Page, number>> = {
  cancelled: 200,
  providerUnavailable: 503,
  providerMisconfigured: 502,
  expired: 400,
  unknown: 400,
}

/** Nothing has happened, and this is why; with a way to begin anew. */
function pageAbout(visit: Visit, page: Page, href: string, retryAfterSeconds = 1): Answer {
  const { t, language, request, setCookies, deps } = visit
  const [heading = '', message = ''] = t.signInElsewhere[page]
  const status = statuses[page] ?? 403
  return errorPage(deps.look, {
    status,
    outcome: `sign_in_${page.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`,
    requestId: request.requestId,
    language,
    heading,
    message,
    setCookies,
    wayOn: { href, label: t.errors.tryAgain },
    ...(status === 503 && { headers: ['retry-after', String(retryAfterSeconds)] }),
  })
}

/** For the log: the app that the sign-in is for. */
function appOf(asked: AuthorizationRequest | undefined): { readonly appid?: string } {
  return asked ? { appid: asked.appid } : {}
}
