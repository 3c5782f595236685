// The files pages refer to: the only answers of the service that may be cached. At the address of another version, which a page
// from another gateway has during a rolling update, they are served but not cached.
import type { Route } from '../http.js'
import { PATHS } from './asset.js'

const KEPT = 'public, max-age=31536000, immutable' // a year, the longest that caches are asked to honour

/**
 * The policy is for whoever opens one by itself: a logo may hold styles, and neither scripts nor anything from elsewhere. In a page
 * that page's own policy holds.
 */
const HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}

export const assetRoutes: readonly Route[] = (['style', 'script', 'logo'] as const).map((kind) => ({
  name: 'asset',
  method: 'GET',
  path: PATHS[kind],
  kind: 'page',
  answer: async (request, { look }) => {
    const { contentType, version, body } = look[kind]
    const caching = request.query().optional('v', 35) === version ? KEPT : 'no-store'
    const headers = { ...HEADERS, 'content-type': contentType, 'cache-control': caching }
    return { status: 200, headers, body, outcome: 'asset' }
  },
}))
