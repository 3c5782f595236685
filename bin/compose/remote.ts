// Services in other processes.
import type { DescService } from '@bufbuild/protobuf'
import { type Client, createClient, type Transport } from '@connectrpc/connect'
import { type Address, formatAddress } from '../../services/rpc/address.js'
import { createMultiplexTransport, type MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import type { Config } from '../config.js'
import type { Part } from './part.js'
import { readTls } from './tls.js'

/** Largest answer: a page of surveys in full. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024

export interface Remote extends Part {
  /** Where it is, for messages. */
  readonly url: string
  client<S extends DescService>(service: S): Client<S>
  readonly transport: Transport
  /** Uses the certificates as they are now for calls from now on. */
  reconnect(): void
}

/** A connection to the process at `address`; it is made when first needed and made again whenever it breaks. */
export function connectTo(name: string, address: Address, config: Config): Remote {
  const transport: MultiplexTransport = createMultiplexTransport({
    address,
    tls: address.kind === 'tls' ? () => readTls(config) : undefined,
    maxResponseBytes: MAX_RESPONSE_BYTES,
    defaultTimeoutMs: config.rpcTimeoutMs,
  })
  return {
    url: formatAddress(address),
    client: (service) => createClient(service, transport),
    transport,
    async notReady() {
      return (await transport.isServing()) ? [] : [`${name} at ${formatAddress(address)}: unavailable`]
    },
    reconnect: () => transport.reconnect(),
    async close() {
      transport.close()
    },
  }
}
