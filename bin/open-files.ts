// How many connections a process takes by how many files it may open. Each connection is one, and when none is left nobody is
// answered, at the admin port neither.
import { readFileSync } from 'node:fs'
import type { Config } from './config.js'

/**
 * Files that are not connections of clients: some 40 of Node and SQLite; connections to PostgreSQL, other processes and providers;
 * those of the admin port.
 */
const OTHER_FILES = 150
const MAX_RPC_CONNECTIONS = 1_000
/** Of the files that are left, beside a public port: only our own processes and commands call. */
const RPC_SHARE = 1 / 4

export interface ConnectionLimits {
  readonly http: number
  readonly rpc: number
}

export function connectionLimits(
  { httpMaxConnections }: Pick<Config, 'httpMaxConnections'>,
  maxFiles = maxOpenFiles(),
): ConnectionLimits {
  const left = Math.max(maxFiles - OTHER_FILES, 4) // fewer than one each would be no limit at all
  const rpc = Math.min(MAX_RPC_CONNECTIONS, Math.floor(left * RPC_SHARE))
  return { rpc, http: Math.min(httpMaxConnections, left - rpc) }
}

/** What a process that may open too few files for HTTP_MAX_CONNECTIONS does, and what to set; undefined if it may open enough. */
export function fewOpenFiles(
  config: Pick<Config, 'httpMaxConnections'>,
  maxFiles = maxOpenFiles(),
): string | undefined {
  const { http } = connectionLimits(config, maxFiles)
  if (http === config.httpMaxConnections) return undefined
  return (
    `this process may open ${maxFiles} files, so it takes ${http} connections at a time, not HTTP_MAX_CONNECTIONS (${config.httpMaxConnections}); ` +
    'raise the limit (ulimit -n, LimitNOFILE=) or lower HTTP_MAX_CONNECTIONS'
  )
}

/** Infinity where the system does not tell; Linux does. */
export function maxOpenFiles(): number {
  try {
    const [, soft] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft)
  } catch {
    return Number.POSITIVE_INFINITY
  }
}
