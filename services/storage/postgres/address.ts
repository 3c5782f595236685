/** Where PostgreSQL is: `postgres://user:password@host[:port][,host2[:port2]…]/database[?sslmode=…]`. */
export interface PostgresAddress {
  /** At least one. Of several, one is the primary and the others are its standbys. */
  readonly hosts: readonly Host[]
  /** The URL for one host, in the driver's own form; all else is the same for every host. */
  urlOf(host: Host): string
  /** Whether others on the network can read what is sent, or, unverified, can pretend to be the server. */
  readonly tls: 'none' | 'unverified' | 'verified'
}

export interface Host {
  /** A name, an IPv4 address or an IPv6 address in brackets. */
  readonly name: string
  readonly port: number
}

const DEFAULT_PORT = 5432
const URL_PARTS = /^postgres(?:ql)?:\/\/(?<login>[^@/?#]*@)?(?<hosts>[^@/?#]+)\/(?<database>[^/?#]+)(?<query>\?[^#]*)?$/
const HOST_PARTS = /^(?<name>\[[0-9A-Fa-f:.]+\]|[^:[\],\s]+)(?::(?<port>\d{1,5}))?$/

/**
 * The driver accepts one host; libpq's URLs may name several. We write to the database, so of several hosts we always want the
 * one that takes writes: `target_session_attrs` may say so; anything else but its default is refused.
 * @throws Error that does not repeat the URL, which holds a password.
 */
export function parseAddress(url: string): PostgresAddress {
  const parts = URL_PARTS.exec(url)?.groups
  if (!parts?.hosts || !parts.database) {
    throw new Error('a PostgreSQL address must be like postgres://user:password@host:5432/database')
  }
  const { login = '', database } = parts
  const hosts = parts.hosts.split(',').map(parseHost)
  const query = new URLSearchParams(parts.query)
  requireWritable(query.get('target_session_attrs'))
  query.delete('target_session_attrs')
  const tail = query.size > 0 ? `?${query}` : ''
  const tls = tlsOf(query)
  return { hosts, tls, urlOf: ({ name, port }) => `postgres://${login}${name}:${port}/${database}${tail}` }
}

/** As the driver takes the parameters: unlike libpq's, its `require` and `verify-ca` are `verify-full`, and `prefer` is too. */
function tlsOf(query: URLSearchParams): PostgresAddress['tls'] {
  const mode = query.get('sslmode') ?? (query.get('ssl') === 'no-verify' ? 'no-verify' : undefined)
  const asksForTls =
    ['sslcert', 'sslkey', 'sslrootcert'].some((name) => query.has(name)) || !['0', null].includes(query.get('ssl'))
  if (mode === 'disable' || (mode === undefined && !asksForTls)) return 'none'
  if (query.get('uselibpqcompat') === 'true' && mode !== 'verify-full') return 'unverified'
  return mode === 'no-verify' ? 'unverified' : 'verified'
}

function parseHost(text: string): Host {
  const parts = HOST_PARTS.exec(text)?.groups
  const port = Number(parts?.port ?? DEFAULT_PORT)
  if (!parts?.name || port < 1 || port > 65_535) {
    throw new Error('each host of a PostgreSQL address must be like host or host:5432')
  }
  return { name: parts.name, port }
}

function requireWritable(targetSessionAttrs: string | null): void {
  if (targetSessionAttrs === null) return
  if (['any', 'read-write', 'primary'].includes(targetSessionAttrs)) return
  throw new Error('target_session_attrs of a PostgreSQL address must be read-write: this service writes')
}
