import type { GatewayRequest } from '../request.js'

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]'])

/**
 * What the browser says of the page that a request comes from. `Origin: null` says nothing, whatever hides the origin (a sandboxed
 * frame elsewhere sends it as well), unless Fetch Metadata stands beside it. A client that sends neither header is not a current
 * browser: the form's signature decides, with a cookie that is sent from our own site only.
 */
export function originOf(request: Pick<GatewayRequest, 'header'>, publicUrl: URL): 'own' | 'foreign' | 'hidden' {
  const site = request.header('sec-fetch-site')
  if (site !== undefined && site !== 'same-origin') return 'foreign'
  const origin = request.header('origin')
  if (origin === undefined) return 'own'
  if (origin === 'null') return site === undefined ? 'hidden' : 'own'
  return isOwnOrigin(origin, publicUrl) ? 'own' : 'foreign'
}

/** Whether the browser states where a request that counts as our own comes from, rather than stating nothing. */
export function saysOrigin(request: Pick<GatewayRequest, 'header'>): boolean {
  return request.header('sec-fetch-site') !== undefined || request.header('origin') !== undefined
}

/** The public URL's origin; on loopback the other spellings of this machine as well. */
function isOwnOrigin(origin: string, publicUrl: URL): boolean {
  if (origin === publicUrl.origin) return true
  if (!URL.canParse(origin) || !LOOPBACK.has(publicUrl.hostname)) return false
  const { protocol, hostname, port } = new URL(origin)
  return protocol === publicUrl.protocol && LOOPBACK.has(hostname) && port === publicUrl.port
}
