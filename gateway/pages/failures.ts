// How pages fail: what is the user's, the app's or nobody's mistake is a page with a way on.
import { failureHeaders } from '../answer.js'
import { type Problem, type ProblemType, toProblem } from '../errors.js'
import type { Answer } from '../http.js'
import { FormRefused } from './csrf.js'
import { errorPage } from './error-page.js'
import { fill, type Texts } from './texts.js'
import type { Visit } from './visit.js'

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
    return errorPage(deps.look, {
      ...page,
      ...refusals(t, deps.publicUrl.origin)[error.why],
      outcome: `form_${error.why}`,
      wayOn,
    })
  }
  const problem = toProblem(error)
  if (problem.type === 'remote_server_error') {
    const wayOn = { href, label: t.errors.tryAgain }
    return errorPage(deps.look, {
      ...page,
      status: 503,
      outcome: problem.type,
      headers: failureHeaders(problem.options),
      wayOn,
    })
  }
  if (problem.options.httpStatus !== undefined || problem.kind.status !== 400) throw error
  if (request.method === 'GET' || problem.type !== 'invalid_argument') return badLinkPage(visit, problem)
  const [heading, message] = [t.form.unreadable, t.form.unreadableLead]
  const wayOn = { href, label: t.form.startAgain }
  return errorPage(deps.look, { ...page, status: 400, outcome: problem.type, heading, message, wayOn })
}

/** The app's own mistake: never a redirect, and the developer learns what to change (decisions 19). */
function badLinkPage({ t, language, request, setCookies, deps }: Visit, problem: Problem): Answer {
  const isBare = problem.options.malformed?.what === 'missing' && request.query().isEmpty // typed
  const notes: Partial<Record<ProblemType, string>> = {
    invalid_appid: t.link.invalidAppid,
    invalid_redirect_uri: t.link.invalidRedirectUri,
    invalid_response_type: t.link.invalidResponseType,
    invalid_scope: t.link.invalidScope,
    invalid_state: t.link.invalidState,
    invalid_code_challenge: t.link.invalidCodeChallenge,
  }
  return errorPage(deps.look, {
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
  cross_site: { status: 403, heading: form.crossSite, message: fill(form.crossSiteLead, { address }) },
  hidden_origin: { status: 403, heading: form.hiddenOrigin, message: fill(form.hiddenOriginLead, { address }) },
  expired: { status: 400, heading: form.expired, message: form.expiredLead },
  no_cookies: { status: 403, heading: form.noCookies, message: fill(form.noCookiesLead, { address }) },
  rejected: { status: 403, heading: form.rejected, message: form.rejectedLead },
})
