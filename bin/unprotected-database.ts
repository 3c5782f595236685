import { parseAddress } from '../services/storage/postgres/address.js'
import { isLoopback } from './loopback.js'

/** What others on the network could do to the connections to a PostgreSQL database, and what to set; undefined if nothing. */
export function unprotectedDatabase(url: string): string | undefined {
  const { hosts, tls } = parseAddress(url)
  const far = hosts.filter(({ name }) => !isLoopback(name) && !/^%2f/i.test(name)) // such a name is a folder of sockets
  if (tls === 'verified' || far.length === 0) return undefined
  const where = far.map(({ name, port }) => `${name}:${port}`).join(' and ')
  const what =
    tls === 'none'
      ? `what is sent to ${where} is not encrypted`
      : `whoever answers as ${where} is believed without a check`
  return `${what}: add sslmode=verify-full to the address`
}
