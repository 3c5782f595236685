// The forms of our own pages: shown with a signature, and acted upon only when it comes back from our own page.
import type { Answer, GatewayDeps } from '../http.js'
import type { Params } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { type AuthorizationRequest, readRequestInProgress } from './authorization-request.js'
import { checkForm, FormRefused, type FormUse, newFormId, signForm } from './csrf.js'
import { guarded } from './failures.js'
import { originOf, saysOrigin } from './own-origin.js'
import type { HiddenField } from './view.js'
import { goalHref, openVisit, type Visit } from './visit.js'

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
  return guarded(visit, visit.home, async () => {
    const asked = readRequestInProgress(request.query())
    return guarded(visit, goalHref(visit, asked), async () => answer(visit, await readForm(visit), asked))
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

/**
 * Whether a form of our own page was refused for its signature although the browser has a key: two pages opened at once, before
 * it has one, bring one each, and it keeps the last.
 */
export function isOfLostKey({ request }: Visit, error: unknown): boolean {
  return error instanceof FormRefused && error.why === 'rejected' && saysOrigin(request)
}
