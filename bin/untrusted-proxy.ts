import type { Config } from './config.js'

/** What goes wrong behind a proxy that is not trusted, and what to set; undefined unless one must be there, as https shows. */
export function untrustedProxy({ publicUrl, trustedProxies }: Config): string | undefined {
  const hasProxy = publicUrl.protocol === 'https:' // the gateway speaks no TLS
  if (!hasProxy || trustedProxies.length > 0) return undefined
  return (
    'PUBLIC_URL is https, so a proxy is in front, and TRUSTED_PROXIES is not set: everybody counts as one address, and wrong passwords ' +
    'of one person keep everybody from signing in; set TRUSTED_PROXIES to the address that the proxy connects from'
  )
}
