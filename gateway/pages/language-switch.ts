// The language switch of error pages, which must not repeat what they were asked for, not even in a link. The browser names
// the page it comes from and is led back there, with the choice in a cookie.
import type { Route } from '../http.js'
import { partsWithoutLanguage, SWITCH_PATH } from './language.js'
import { redirectTo } from './view.js'
import { openVisit } from './visit.js'

export const languageSwitchRoute: Route = {
  name: 'language',
  method: 'GET',
  path: SWITCH_PATH,
  kind: 'page',
  answer: async (request, deps) => {
    const { setCookies } = openVisit(request, deps)
    return redirectTo(pathOf(request.header('referer')) ?? '/', { outcome: 'language', setCookies })
  },
}

/** Path and query alone, so that it leads to a page of ours whoever named it; without that page's own choice of a language. */
function pathOf(referrer = ''): string | undefined {
  if (!/^https?:/i.test(referrer) || !URL.canParse(referrer)) return undefined // the path of any other address may be one itself
  const { pathname, search } = new URL(referrer)
  if (pathname === SWITCH_PATH) return undefined
  const query = partsWithoutLanguage(search.slice(1)).join('&')
  const path = pathname.replace(/^\/+/, '/') // two slashes would lead to another host
  return query === '' ? path : `${path}?${query}`
}
