// An RPC server: one dispatcher behind the gRPC and the Connect door on one address. bin/ composes it per process.
import { type Address, formatAddress } from './address.js'
import { createConnectDoor } from './connect-door.js'
import type { Dispatcher } from './dispatcher.js'
import { createGrpcDoor } from './grpc-door.js'
import { type CallersByName, identifyByName, identifyLocal } from './identity.js'
import { listen, type OnTurnedAway, type TlsMaterial } from './listener.js'

export interface RpcServerOptions {
  readonly dispatcher: Dispatcher
  readonly address: Address
  readonly tls: TlsMaterial | undefined
  readonly onTurnedAway?: OnTurnedAway
  /** Roles of certificates; used on addresses of kind `tls`. */
  readonly callers: CallersByName
  /** More are closed at once. */
  readonly maxConnections: number
}

export interface RpcServer {
  /** Where it listens, with the bound port. */
  readonly address: string
  /** What `grpc.health.v1` answers. */
  setServing(isServing: boolean): void
  /** Uses new certificates for connections from now on. */
  reloadTls(material: TlsMaterial): void
  /** Stops accepting, finishes calls in flight within `graceMs`, then closes. */
  drain(graceMs: number): Promise<void>
}

export async function startRpcServer(options: RpcServerOptions): Promise<RpcServer> {
  const { address, dispatcher, tls, maxConnections, onTurnedAway } = options
  const identify =
    address.kind === 'tls'
      ? identifyByName(options.callers)
      : identifyLocal(address.kind === 'unix' ? 'unix' : 'loopback')
  const common = { dispatcher, identify }
  const connect = createConnectDoor({ ...common, reflects: address.kind !== 'tls' })
  const grpc = await createGrpcDoor({ ...common, serveOthers: connect.serve })
  const listener = await listen({
    address,
    tls,
    onHttp1: connect.accept,
    onHttp2: grpc.accept,
    maxConnections,
    onTurnedAway,
  })
  return {
    address: formatAddress(listener.address),
    setServing: grpc.setServing,
    reloadTls: listener.reloadTls,
    async drain(graceMs) {
      grpc.setServing(false)
      listener.stop()
      await Promise.all([connect.drain(graceMs), grpc.drain(graceMs)])
    },
  }
}
