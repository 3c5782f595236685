// The files pages refer to: the only answers of the service that may be cached. At the address of another version, which a page
// from another gateway has during a rolling update, they are served but not cached.
import { createHash } from 'node:crypto'
import { Problem } from '../errors.js'
import type { Answer, Route } from '../http.js'
import { MAX_ID_LENGTH } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { APP_LOGOS, type Asset, PATHS, versionOf } from './asset.js'
import { isProblem } from './visit.js'

const KEPT = 'public, max-age=31536000, immutable' // a year, the longest that caches are asked to honour

/**
 * The policy is for whoever opens one by itself: a logo may hold styles, and neither scripts nor anything from elsewhere. In a page
 * that page's own policy holds.
 */
const POLICY = ['content-security-policy', "default-src 'none'; style-src 'unsafe-inline'; sandbox"]

const ownAssets: readonly Route[] = (['style', 'script', 'logo'] as const).map((kind) => ({
  name: 'asset',
  method: 'GET',
  path: PATHS[kind],
  kind: 'page',
  answer: async (request, { look }) => answerWith(look[kind], request),
}))

const appLogoRoute: Route = {
  name: 'app_logo',
  method: 'GET',
  path: `${APP_LOGOS}:id`,
  kind: 'page',
  async answer(request, { account }) {
    const [appid = ''] = request.pathParameters
    try {
      if (appid.length > MAX_ID_LENGTH) throw noSuchLogo()
      const { contentType, logo } = await account.getAppLogo({ appid }, request.rpc)
      const version = versionOf(createHash('sha256').update(logo).digest('base64url'))
      return answerWith({ contentType, body: logo, version }, request)
    } catch (error) {
      throw isProblem(error, 'not_found') ? noSuchLogo() : error
    }
  },
}

export const assetRoutes: readonly Route[] = [...ownAssets, appLogoRoute]

const noSuchLogo = () => new Problem('no_route', 'nothing is served at this path')

function answerWith({ contentType, version, body }: Omit<Asset, 'href'>, request: GatewayRequest): Answer {
  const caching = request.query().optional('v', 35) === version ? KEPT : 'no-store'
  const headers = [...POLICY, 'content-type', contentType, 'cache-control', caching]
  return { status: 200, headers, body, outcome: 'asset' }
}
