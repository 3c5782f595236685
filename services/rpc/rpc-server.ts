// An RPC server: one dispatcher behind the gRPC and the Connect door on one address. bin/ composes it per process.
import { type Address, formatAddress } from './address.js'
import { createConnectDoor } from './connect-door.js'
import type { Dispatcher } from './dispatcher.js'
import { createGrpcDoor } from './grpc-door.js'
import { type CallersByName, identifyByName, identifyLocal } from './identity.js'
import { listen, type OnTurnedAway, type TlsMaterial } from './listener.js'
import type { RpcLimits } from './requests.js'

export interface RpcServerOptions {
  readonly dispatcher: Dispatcher
  /** Serves gRPC, and Connect over HTTP/1.1 and HTTP/2. */
  readonly address: Address
  /** Serves Connect alone; undefined: nowhere. */
  readonly connectAddress: Address | undefined
  readonly tls: TlsMaterial | undefined
  readonly onTurnedAway?: OnTurnedAway
  /** Roles of certificates; used on addresses of kind `tls`. */
  readonly callers: CallersByName
  readonly limits: RpcLimits & { readonly maxConnections: number }
  readonly hasReflection: boolean
}

export interface RpcServer {
  /** Where it listens, with bound ports. */
  readonly addresses: readonly string[]
  /** What `grpc.health.v1` answers. */
  setServing(isServing: boolean): void
  reloadTls(material: TlsMaterial): void
  /** Accepts no more, finishes what is under way within `graceMs`, closes. */
  drain(graceMs: number): Promise<void>
}

/** Listens on both addresses or on none. */
export async function startRpcServer(options: RpcServerOptions): Promise<RpcServer> {
  const doors: Awaited<ReturnType<typeof openDoors>>[] = []
  async function drain(graceMs: number): Promise<void> {
    for (const { grpc, listener } of doors) {
      grpc?.setServing(false)
      listener.stop()
    }
    await Promise.all(doors.flatMap(({ connect, grpc }) => [connect.drain(graceMs), grpc?.drain(graceMs)]))
  }
  try {
    doors.push(await openDoors(options, options.address, true))
    if (options.connectAddress) doors.push(await openDoors(options, options.connectAddress, false))
  } catch (error) {
    await drain(0)
    throw error
  }
  return {
    addresses: doors.map(({ listener }) => formatAddress(listener.address)),
    setServing(isServing) {
      for (const { grpc } of doors) grpc?.setServing(isServing)
    },
    reloadTls(material) {
      for (const { listener } of doors) listener.reloadTls(material)
    },
    drain,
  }
}

async function openDoors(options: RpcServerOptions, address: Address, hasGrpc: boolean) {
  const { dispatcher, limits, tls, hasReflection } = options
  const identify = address.kind === 'tls' ? identifyByName(options.callers) : identifyLocal
  const common = { dispatcher, identify, limits }
  const connect = createConnectDoor(common)
  const grpc = hasGrpc ? await createGrpcDoor({ ...common, serveOthers: connect.serve, hasReflection }) : undefined
  const listener = await listen({
    address,
    tls,
    onHttp1: connect.acceptHttp1,
    onHttp2: grpc?.accept ?? connect.acceptHttp2,
    maxConnections: limits.maxConnections,
    onTurnedAway: options.onTurnedAway,
  })
  return { connect, grpc, listener }
}
