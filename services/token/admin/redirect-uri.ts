import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../../rpc/service-error.js'

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]'])
/** Parameters that the redirect adds: an app would read one that was there before instead. */
const ADDED = ['code', 'state', 'error']
const VISIBLE_ASCII = /^[!-~]+$/
const PORT = /:\d*$/

/**
 * Decisions 20: absolute, https (http on loopback), one host in its normal form, no fragment, no userinfo, none of the
 * parameters that the redirect adds.
 * @throws ServiceError INVALID_ARGUMENT
 */
export function requireRegistrable(redirectUri: string): void {
  const problem = whyNotRegistrable(redirectUri)
  if (problem) throw new ServiceError(ErrorReason.INVALID_ARGUMENT, `redirect_uri ${problem}`)
}

/** What is wrong with it, to be read after its name. */
export function whyNotRegistrable(redirectUri: string): string | undefined {
  if (!VISIBLE_ASCII.test(redirectUri)) return 'must be ASCII without spaces or control characters'
  if (redirectUri.includes('#')) return 'must not have a fragment'
  if (redirectUri.includes('\\')) return 'must not have a backslash'
  if (!/^https?:\/\/[^/?]/.test(redirectUri))
    return 'must be an absolute address: https://, or http:// on localhost, 127.0.0.1 and [::1]'
  if (!URL.canParse(redirectUri)) return 'is not a valid address'
  const [, , authority = ''] = redirectUri.split(/[/?]/, 3)
  if (authority.includes('@')) return 'must not have a user name or password'
  if (authority.includes('*')) return 'must name one host, without a wildcard'
  const url = new URL(redirectUri)
  if (authority.replace(PORT, '').toLowerCase() !== url.hostname) return `must name its host as ${url.hostname}`
  if (url.protocol === 'http:' && !LOOPBACK.has(url.hostname)) {
    return 'must use https, except on localhost, 127.0.0.1 and [::1]'
  }
  if (ADDED.some((name) => url.searchParams.has(name))) {
    return 'must not have code, state or error in its query, since the answer adds parameters of these names'
  }
  return undefined
}
