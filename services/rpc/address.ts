// Where an RPC door listens or a client connects. Three forms, and what each may be used for:
//   unix:/path            one machine, guarded by the permissions of the socket file
//   https://host:port     across machines, mTLS
//   http://127.0.0.1:port loopback only, unguarded: every user of the machine can call (tcp:// means the same)
export type Address =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tls'; readonly host: string; readonly port: number }
  | { readonly kind: 'plaintext'; readonly host: string; readonly port: number }

/** For messages. */
export const ADDRESS_FORMS = 'unix:/path, https://host:port or http://127.0.0.1:port'

/** Longest Unix socket path on Linux, in bytes, without the terminating NUL. Node 20 truncates longer ones, and listens there. */
const MAX_SOCKET_PATH = 107

const LOOPBACK = new Set(['localhost', '127.0.0.1', '::1'])

/** @throws Error naming what is wrong, in words for the person who set it. */
export function parseAddress(text: string): Address {
  if (text.startsWith('unix:')) {
    const path = text.slice('unix:'.length).replace(/^\/\/(?=\/)/, '')
    if (path === '') throw new Error('unix: needs a path, for example unix:/run/survey-auth/rpc.sock')
    if (path.includes(',')) throw new Error('must not have a comma in its path: commas separate addresses')
    if (isTooLongForSocket(path)) throw new Error(`is too long for a socket: ${path}`)
    return { kind: 'unix', path }
  }
  const [scheme] = text.split('://', 1)
  if (scheme === 'tcp') return parseAddress(`http${text.slice('tcp'.length)}`)
  if (!URL.canParse(text)) throw new Error(`must be ${ADDRESS_FORMS}`)
  const url = new URL(text)
  if (url.pathname.length > 1 || url.search !== '' || url.hash !== '' || url.username !== '') {
    throw new Error('must be an address without path, query or user')
  }
  const host = url.hostname.replace(/^\[|\]$/g, '')
  if (url.protocol === 'https:') return { kind: 'tls', host, port: portOf(url, 443) }
  if (url.protocol !== 'http:') throw new Error('must start with unix:, https:// or http://')
  if (!LOOPBACK.has(host)) throw new Error(`plaintext is for loopback only, use https:// for ${host}`)
  return { kind: 'plaintext', host, port: portOf(url, 80) }
}

export function isTooLongForSocket(path: string): boolean {
  return Buffer.byteLength(path) > MAX_SOCKET_PATH
}

/** A host in the form that the authority of a URL has: IPv6 addresses in brackets. */
export function hostInUrl(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

/** The inverse of parseAddress. */
export function formatAddress(address: Address): string {
  if (address.kind === 'unix') return `unix:${address.path}`
  return `${address.kind === 'tls' ? 'https' : 'http'}://${hostInUrl(address.host)}:${address.port}`
}

function portOf(url: URL, defaultPort: number): number {
  return url.port === '' ? defaultPort : Number(url.port)
}
