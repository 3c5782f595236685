import type { GatewayRequest } from '../http.js'

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]'])

/**
 * Whether a request may come from one of our own pages, by what the browser says. Our pages send no referrer, which makes
 * browsers send `Origin: null`; that counts only beside `Sec-Fetch-Site: same-origin`, because a sandboxed frame elsewhere
 * sends it too. Over plain http, except on loopback, browsers do not send the latter, and a client that sends neither is not
 * a current browser: in both cases the form's signature decides, with a cookie that is sent from our own site only.
 */
export function isFromOwnPage(request: Pick<GatewayRequest, 'header'>, publicUrl: URL): boolean {
  const site = request.header('sec-fetch-site')
  if (site !== undefined && site !== 'same-origin') return false
  const origin = request.header('origin')
  if (origin === undefined) return true
  if (origin === 'null') return site === 'same-origin' || !isTrustworthy(publicUrl)
  return isOwnOrigin(origin, publicUrl)
}

/** Whether the browser states that a request which passed isFromOwnPage() comes from there, rather than stating nothing. */
export function saysOwnPage(request: Pick<GatewayRequest, 'header'>): boolean {
  return request.header('sec-fetch-site') !== undefined || (request.header('origin') ?? 'null') !== 'null'
}

/** As browsers define it (W3C Secure Contexts §3.1): to other addresses they send no Fetch Metadata. */
function isTrustworthy({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || LOOPBACK.has(hostname)
}

/** The public URL's origin; on loopback the other spellings of this machine as well. */
function isOwnOrigin(origin: string, publicUrl: URL): boolean {
  if (origin === publicUrl.origin) return true
  if (!URL.canParse(origin) || !LOOPBACK.has(publicUrl.hostname)) return false
  const { protocol, hostname, port } = new URL(origin)
  return protocol === publicUrl.protocol && LOOPBACK.has(hostname) && port === publicUrl.port
}
