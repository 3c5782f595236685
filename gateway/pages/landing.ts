import type { Route } from '../http.js'
import { renderPage } from './view.js'
import { openVisit } from './visit.js'

/** What this service is, for whoever types its address. */
export const landingRoute: Route = {
  name: 'landing',
  method: 'GET',
  path: '/',
  kind: 'page',
  answer: async (request, deps) => {
    const { language, t, setCookies } = openVisit(request, deps)
    const frame = { language, title: t.landing.title, href: '/' }
    return renderPage(deps.look, 'landing', frame, {}, { status: 200, outcome: 'landing', setCookies })
  },
}
