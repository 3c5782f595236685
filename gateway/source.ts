import type { IncomingMessage } from 'node:http'
import { BlockList, isIP, isIPv4, SocketAddress } from 'node:net'

const MAPPED_IPV4 = '::ffff:'

/** Whether an address is that of a trusted proxy. */
export type IsProxy = (address: string) => boolean

/** By the addresses and networks (`10.1.0.0/16`) of trusted proxies. */
export function proxiesAmong(listed: readonly string[]): IsProxy {
  const addresses = new Set(listed)
  const networks = listed.filter((one) => one.includes('/')).map((network) => network.split('/'))
  if (networks.length === 0) return (address) => addresses.has(address)
  const inNetworks = new BlockList()
  for (const [address = '', bits] of networks) inNetworks.addSubnet(address, Number(bits), familyOf(address))
  return (address) => addresses.has(address) || (isIP(address) !== 0 && inNetworks.check(address, familyOf(address)))
}

function familyOf(address: string) {
  return isIPv4(address) ? 'ipv4' : 'ipv6'
}

/**
 * IP address of the client. X-Forwarded-For is read only when the connection comes from a trusted proxy, from right to left:
 * the first address that is not a trusted proxy's is the client's. What stands before it is the client's own claim.
 */
export function sourceOf(request: IncomingMessage, isProxy: IsProxy): string {
  const peer = peerOf(request)
  if (!isProxy(peer)) return peer
  const forwarded = request.headers['x-forwarded-for']
  if (typeof forwarded !== 'string') return peer
  let source = peer
  for (const hop of forwarded.split(',').reverse()) {
    const address = addressOf(hop.trim())
    if (address === undefined) return source
    source = address
    if (!isProxy(address)) return source
  }
  return source
}

/** Whether the connection comes from a trusted proxy: of no other client is it believed which trace a request is part of. */
export function isFromProxy(request: IncomingMessage, isProxy: IsProxy): boolean {
  return isProxy(peerOf(request))
}

function peerOf({ socket }: IncomingMessage): string {
  return unmapped(socket.remoteAddress ?? '')
}

/** `192.0.2.1:80`, `[2001:db8::1]:443`: some proxies add the port, as RFC 7239 §6 writes it. */
const WITH_PORT = /^(?:\[(.+)\]|([^:]+))(?::\d{1,5})?$/

function addressOf(hop: string): string | undefined {
  const [, inBrackets, beforePort] = WITH_PORT.exec(hop) ?? []
  return canonicalAddress(inBrackets ?? beforePort ?? hop)
}

/** An IP address as Node writes that of a connection, a mapped IPv4 address as IPv4; undefined for any other text. */
export function canonicalAddress(text: string): string | undefined {
  if (isIP(text) === 0) return undefined
  if (isIPv4(text)) return text
  const [address = '', zone] = text.split('%')
  const canonical = unmapped(new SocketAddress({ address, family: 'ipv6' }).address)
  return zone === undefined ? canonical : `${canonical}%${zone}`
}

/** `10.1.0.0/16`: an address, and how many of its bits count; undefined for any other text, and for the network of everybody. */
export function canonicalNetwork(text: string): string | undefined {
  const [, prefix = '', bits] = /^([^%/]+)\/([1-9]\d{0,2})$/.exec(text) ?? []
  const address = canonicalAddress(prefix)
  if (address === undefined || Number(bits) > (isIPv4(address) ? 32 : 128)) return undefined
  return `${address}/${bits}`
}

function unmapped(address: string): string {
  return address.startsWith(MAPPED_IPV4) ? address.slice(MAPPED_IPV4.length) : address
}

/** What a rate counts as one client: an IPv4 address, or the /64 of an IPv6 address, which is what a site is given. */
export function networkOf(source: string): string {
  if (!source.includes(':')) return source
  const [head = '', tail] = source.split('::')
  const groups = head === '' ? [] : head.split(':')
  if (tail !== undefined) {
    const tailGroups = tail === '' ? [] : tail.split(':')
    while (groups.length + tailGroups.length < 8) groups.push('0')
    groups.push(...tailGroups)
  }
  return `${groups.slice(0, 4).join(':')}::/64`
}
