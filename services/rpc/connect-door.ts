// The third door: the Connect protocol over HTTP/1.1 and HTTP/2, so that curl with JSON can call every RPC.
import { createServer as createHttpServer } from 'node:http'
import {
  createServer as createHttp2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from 'node:http2'
import type { Duplex } from 'node:stream'
import { TLSSocket } from 'node:tls'
import type { DescMethod } from '@bufbuild/protobuf'
import { createContextKey, createContextValues, type HandlerContext, type ServiceImpl } from '@connectrpc/connect'
import { connectNodeAdapter } from '@connectrpc/connect-node'
import type { Caller } from './callers.js'
import type { Dispatcher } from './dispatcher.js'
import { type Identify, unknownCaller } from './identity.js'
import { REQUEST_ID_HEADER, requestIdFrom } from './request-id.js'
import { maxRequestBytesOf, type RpcLimits } from './requests.js'

export interface ConnectDoorOptions {
  readonly dispatcher: Dispatcher
  readonly identify: Identify
  readonly limits: RpcLimits
}

export interface ConnectDoor {
  /** Hands over a connection that speaks HTTP/1.1. */
  acceptHttp1(connection: Duplex): void
  /** Hands over a connection that speaks HTTP/2. */
  acceptHttp2(connection: Duplex): void
  /** One request of a connection that somebody else serves and closes. */
  serve(request: Http2ServerRequest, response: Http2ServerResponse): void
  /** Finishes what is under way, then closes; forcefully after `graceMs`. */
  drain(graceMs: number): Promise<void>
}

const HTTP1_LIMITS = {
  keepAliveTimeout: 65_000,
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
}

/** A caller over HTTP/2 is asked so often whether it is there, and has so long to answer, as at the gRPC door, in ms. */
const PING_EVERY_MS = 10_000
const PONG_WITHIN_MS = 5_000

/** 24 days: what is longer, a timer of Node takes for nothing. */
const MAX_TIMER_MS = 2 ** 31 - 1

const callerKey = createContextKey<Caller | undefined>(undefined, { description: 'caller' })

export function createConnectDoor(options: ConnectDoorOptions): ConnectDoor {
  const { dispatcher, limits } = options
  const handler = connectNodeAdapter({
    routes(router) {
      for (const service of dispatcher.services) {
        const implementation = Object.fromEntries(
          service.methods.map((method) => [method.localName, handlerOf(dispatcher, method)]),
        )
        const readMaxBytes = maxRequestBytesOf(limits, service)
        router.service(service, implementation as ServiceImpl<typeof service>, { readMaxBytes })
      }
    },
    contextValues({ socket }) {
      const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined
      return createContextValues().set(callerKey, options.identify(certificate?.subjectAltName))
    },
    maxTimeoutMs: MAX_TIMER_MS, // the dispatcher shortens it, as at every door
    acceptCompression: [], // nothing to inflate, nothing to bomb with
    grpc: false, // the gRPC door's
    grpcWeb: false,
  })

  const http1 = createHttpServer(HTTP1_LIMITS, handler)
  http1.emit('listening') // which it never does by itself: without, node:http watches no connection, so nothing above applies
  const http2 = createHttp2Server({ settings: { maxConcurrentStreams: limits.maxStreams } }, handler)
  /** Open ones, and what each has become over HTTP/2. */
  const connections = new Map<Duplex, ServerHttp2Session | undefined>()

  return {
    acceptHttp1(connection) {
      connections.set(connection, undefined)
      connection.once('close', () => connections.delete(connection))
      http1.emit('connection', connection)
    },
    acceptHttp2(connection) {
      let session: ServerHttp2Session | undefined
      http2.once('session', (made) => {
        session = made
      })
      http2.emit('connection', connection) // makes it at once
      http2.removeAllListeners('session')
      connections.set(connection, session)
      const pings = setInterval(() => requirePong(connection, session), PING_EVERY_MS)
      connection.once('close', () => {
        clearInterval(pings)
        connections.delete(connection)
      })
    },
    serve: handler,
    async drain(graceMs) {
      http1.closeIdleConnections()
      for (const [connection, session] of connections) {
        session?.close()
        requirePong(connection, session)
      }
      const endsAt = performance.now() + graceMs
      while (performance.now() < endsAt && connections.size > 0) {
        await new Promise((resolve) => setTimeout(resolve, 20))
        http1.closeIdleConnections()
      }
      for (const connection of connections.keys()) connection.destroy()
      http1.close()
    },
  }
}

/**
 * Closes the connection of a caller over HTTP/2 that is gone. Node does not see each that is reset over TLS while something is
 * under way: it has stopped to read by then, and would keep session and socket for ever.
 */
function requirePong(connection: Duplex, session: ServerHttp2Session | undefined): void {
  if (!session || session.destroyed) return
  const late = setTimeout(() => connection.destroy(), PONG_WITHIN_MS)
  session.ping(() => clearTimeout(late))
}

function handlerOf(dispatcher: Dispatcher, method: DescMethod) {
  return (request: never, context: HandlerContext) => {
    const caller = context.values.get(callerKey)
    if (!caller) throw unknownCaller()
    const call = {
      caller,
      requestId: requestIdFrom(context.requestHeader.get(REQUEST_ID_HEADER)),
      traceparent: context.requestHeader.get('traceparent') ?? '',
      signal: context.signal,
    }
    return dispatcher.call(method, request, call, context.timeoutMs())
  }
}
