// Where the processes of a service are: at its addresses, or, where the name in one has several IP addresses, at each of these.
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { type Address, formatAddress } from './address.js'

export interface Place {
  readonly address: Address
  /** undefined when the address says it all. */
  readonly ip: string | undefined
  /** For messages; each place has its own. */
  readonly url: string
}

/** All that `getaddrinfo` finds. */
export type LookUp = (host: string) => Promise<readonly { readonly address: string; readonly family: number }[]>

export class Places {
  /** By the last look; before the first, the addresses as they are. */
  known: readonly Place[]
  readonly #addresses: readonly Address[]
  readonly #lookUp: LookUp
  #looking: Promise<void> | undefined
  #hasLooked = false

  constructor(addresses: readonly Address[], lookUp: LookUp = (host) => lookup(host, { all: true })) {
    this.#addresses = addresses
    this.#lookUp = lookUp
    this.known = addresses.map((address) => placeAt(address))
  }

  /** Where they are by the last look that ended; another begins. Only the first is waited for: names may take long to fail. */
  async look(): Promise<readonly Place[]> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined
      this.#hasLooked = true
    })
    if (!this.#hasLooked) await this.#looking
    return this.known
  }

  async #look(): Promise<void> {
    const found = await Promise.all(this.#addresses.map((address) => this.#placesOf(address)))
    this.known = found.flat()
  }

  async #placesOf(address: Address): Promise<readonly Place[]> {
    if (address.kind !== 'tls' || isIP(address.host) !== 0) return [placeAt(address)]
    try {
      const ips = severalOf(await this.#lookUp(address.host))
      return ips.length === 0 ? [placeAt(address)] : ips.map((ip) => placeAt(address, ip))
    } catch {
      return this.known.filter((place) => place.address === address) // who still serves there says so
    }
  }
}

/** Of one family, since a process may have an address of each; none unless there are several. */
function severalOf(found: Awaited<ReturnType<LookUp>>): readonly string[] {
  const ofFamily = (family: number) => [
    ...new Set(found.filter((one) => one.family === family).map((one) => one.address)),
  ]
  return [ofFamily(4), ofFamily(6)].find((ips) => ips.length > 1) ?? []
}

function placeAt(address: Address, ip?: string): Place {
  const url = formatAddress(address)
  return { address, ip, url: ip === undefined ? url : `${url} (${ip})` }
}
