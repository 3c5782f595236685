import type { PageOf } from '../store/token-store.js'

const DEFAULT_PAGE_SIZE = 100
const MAX_PAGE_SIZE = 1000

/** The page a list request asks for; page tokens are the store's positions as they are. */
export function pageOf(request: { readonly pageSize: number; readonly pageToken: string }): PageOf {
  return {
    limit: Math.min(request.pageSize || DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE),
    after: request.pageToken === '' ? undefined : request.pageToken,
  }
}
