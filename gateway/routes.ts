// Everything the gateway serves, and what serves a path.
import { accessTokenRoute } from './api/exchange.js'
import { providerLogoutRoute } from './api/provider-logout.js'
import { refreshTokenRoute } from './api/refresh.js'
import { legacySurveyRoute, surveyRoute } from './api/survey.js'
import { surveysRoute } from './api/surveys.js'
import { userRoute } from './api/user.js'
import type { Route } from './http.js'
import { pageRoutes } from './pages/page-routes.js'

/** The endpoints of spec 4.2 to 4.5; the last is another path of the one before. */
export const apiRoutes: readonly Route[] = [
  accessTokenRoute,
  refreshTokenRoute,
  userRoute,
  surveysRoute,
  surveyRoute,
  legacySurveyRoute,
]

export const routes: readonly Route[] = [...apiRoutes, providerLogoutRoute, ...pageRoutes]

/** Route name of a path where nothing is served. */
export const NO_ROUTE = 'none'

const PARAMETER = ':id'

/** The routes of one path, by method. */
export interface Resource {
  readonly kind: Route['kind']
  readonly byMethod: ReadonlyMap<string, Route>
  /** Methods it has, as `Allow` lists them. */
  readonly allow: string
}

const paths = [...new Set(routes.map(({ path }) => path))]
const resources = new Map(paths.map((path) => [path, resourceAt(path)]))
const patterns = [...resources].flatMap(([path, resource]) => (path.includes(PARAMETER) ? [{ path, resource }] : []))

/** What serves a path. Paths match byte for byte: nothing is decoded, merged, lower-cased or cut off. */
export function findResource(path: string): Resource | undefined {
  return resources.get(path) ?? patterns.find((pattern) => parameterIn(path, pattern.path) !== '')?.resource
}

/** The parameter of a path that matched `route`; empty for a route without one. */
export function pathParameterOf(path: string, route: Route): string {
  return parameterIn(path, route.path)
}

/** The segment of `path` where `pattern` has its parameter; empty when they do not match. */
function parameterIn(path: string, pattern: string): string {
  const at = pattern.indexOf(PARAMETER)
  const [before, after] = [pattern.slice(0, at), pattern.slice(at + PARAMETER.length)]
  if (at === -1 || !path.startsWith(before) || !path.endsWith(after)) return ''
  const segment = path.slice(before.length, path.length - after.length)
  return segment.includes('/') ? '' : segment
}

function resourceAt(path: string): Resource {
  const ofPath = routes.filter((route) => route.path === path)
  const byMethod = new Map(ofPath.map((route) => [route.method as string, route]))
  const kind = ofPath.some((route) => route.kind === 'page') ? 'page' : 'api'
  const get = byMethod.get('GET')
  if (get && kind === 'page') byMethod.set('HEAD', get) // a page only renders; an endpoint would act (decisions 30)
  return { kind, byMethod, allow: [...byMethod.keys()].join(', ') }
}
