// Everything the gateway serves, and what serves a path.
import { answerRoute, answersRoute } from './api/answers.js'
import { accessTokenRoute } from './api/exchange.js'
import { providerLogoutRoute } from './api/provider-logout.js'
import { refreshTokenRoute } from './api/refresh.js'
import { legacySurveyRoute, surveyRoute } from './api/survey.js'
import { surveysRoute } from './api/surveys.js'
import { userRoute } from './api/user.js'
import type { Route } from './http.js'
import { pageRoutes } from './pages/page-routes.js'

/** The endpoints of spec 4.2 to 4.5, of which the detail has another path, and those of answers. */
export const apiRoutes: readonly Route[] = [
  accessTokenRoute,
  refreshTokenRoute,
  userRoute,
  surveysRoute,
  surveyRoute,
  legacySurveyRoute,
  answersRoute,
  answerRoute,
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
/** Of the paths with parameters: a segment that is not empty in place of each. */
const patterns = new Map(
  paths
    .filter((path) => path.includes(PARAMETER))
    .map((path) => [path, new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(PARAMETER, '([^/]+)')}$`)]),
)

/** What serves a path. Paths match byte for byte: nothing is decoded, merged, lower-cased or cut off. */
export function findResource(path: string): Resource | undefined {
  const known = resources.get(path)
  if (known) return known
  for (const [of, pattern] of patterns) if (pattern.test(path)) return resources.get(of)
  return undefined
}

/** The parameters of a path that matched `route`, in their order. */
export function pathParametersOf(path: string, route: Route): readonly string[] {
  return patterns.get(route.path)?.exec(path)?.slice(1) ?? []
}

function resourceAt(path: string): Resource {
  const ofPath = routes.filter((route) => route.path === path)
  const byMethod = new Map(ofPath.map((route) => [route.method as string, route]))
  const kind = ofPath.some((route) => route.kind === 'page') ? 'page' : 'api'
  const get = byMethod.get('GET')
  if (get && kind === 'page') byMethod.set('HEAD', get) // a page only renders; an endpoint would act (decisions 30)
  return { kind, byMethod, allow: [...byMethod.keys()].join(', ') }
}
