// Everything the gateway serves, and what serves a path.
import { accessTokenRoute } from './api/exchange.js'
import { refreshTokenRoute } from './api/refresh.js'
import { surveyRoute } from './api/survey.js'
import { surveysRoute } from './api/surveys.js'
import { userRoute } from './api/user.js'
import type { Route } from './http.js'
import { pageRoutes } from './pages/page-routes.js'

/** The endpoints of spec 4.2 to 4.5. */
export const apiRoutes: readonly Route[] = [accessTokenRoute, refreshTokenRoute, userRoute, surveyRoute, surveysRoute]

export const routes: readonly Route[] = [...apiRoutes, ...pageRoutes]

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

/** Finds what serves a path. Paths match byte for byte: nothing is decoded, merged, lower-cased or cut off. */
export class Router {
  readonly #exact = new Map<string, Resource>()
  readonly #patterns: { readonly path: string; readonly resource: Resource }[] = []

  constructor(routes: readonly Route[]) {
    for (const [path, ofPath] of groupByPath(routes)) {
      const resource = toResource(ofPath)
      if (path.includes(PARAMETER)) this.#patterns.push({ path, resource })
      else this.#exact.set(path, resource)
    }
  }

  find(path: string): Resource | undefined {
    return this.#exact.get(path) ?? this.#patterns.find((pattern) => parameterIn(path, pattern.path) !== '')?.resource
  }
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

function groupByPath(routes: readonly Route[]): Map<string, Route[]> {
  const groups = new Map<string, Route[]>()
  for (const route of routes) {
    const group = groups.get(route.path)
    if (group) group.push(route)
    else groups.set(route.path, [route])
  }
  return groups
}

function toResource(routes: readonly Route[]): Resource {
  const byMethod = new Map<string, Route>()
  for (const route of routes) {
    if (byMethod.has(route.method)) throw new Error(`two routes for ${route.method} ${route.path}`)
    byMethod.set(route.method, route)
  }
  const kind = routes.some((route) => route.kind === 'page') ? 'page' : 'api'
  const get = byMethod.get('GET')
  if (get && kind === 'page') byMethod.set('HEAD', get) // a page only renders; an endpoint would act (decisions 30)
  return { kind, byMethod, allow: [...byMethod.keys()].join(', ') }
}
