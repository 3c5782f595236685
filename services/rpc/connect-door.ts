// The third door: the Connect and gRPC-Web protocols over HTTP/1.1 and HTTP/2, so that curl with JSON can call every RPC. Server
// reflection is served here for gRPC too: one implementation for all protocols.
import { createServer } from 'node:http'
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2'
import type { Duplex } from 'node:stream'
import { TLSSocket } from 'node:tls'
import type { DescMethod } from '@bufbuild/protobuf'
import { createContextKey, createContextValues, type HandlerContext, type ServiceImpl } from '@connectrpc/connect'
import { connectNodeAdapter } from '@connectrpc/connect-node'
import { ServerReflection } from '../../gen/grpc/reflection/v1/reflection_pb.js'
import type { Dispatcher } from './dispatcher.js'
import { type Identify, type Peer, requireCaller } from './identity.js'
import { createReflection } from './reflection.js'
import { maxRequestBytesOf, REQUEST_ID_HEADER, requestIdFrom } from './requests.js'

export interface ConnectDoorOptions {
  readonly dispatcher: Dispatcher
  readonly identify: Identify
  /** Whether tools may ask what can be called here. */
  readonly reflects: boolean
}

export interface ConnectDoor {
  /** Hands over a connection that speaks HTTP/1.1. */
  accept(connection: Duplex): void
  /** Serves one request of a connection over HTTP/2; the connection is served and closed elsewhere. */
  serve(request: Http2ServerRequest, response: Http2ServerResponse): void
  /** Finishes requests in flight over HTTP/1.1, then closes; forcefully after `graceMs`. */
  drain(graceMs: number): Promise<void>
}

const HTTP1_LIMITS = {
  keepAliveTimeout: 65_000,
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
}

/** Older tools know reflection by this name, with the same messages. */
const REFLECTION_ALPHA = /^\/grpc\.reflection\.v1alpha\./
const REFLECTION = '/grpc.reflection.v1.'

const callerKey = createContextKey<Peer | undefined>(undefined, { description: 'caller' })

export function createConnectDoor(options: ConnectDoorOptions): ConnectDoor {
  const { dispatcher, identify, reflects } = options
  const handler = connectNodeAdapter({
    routes(router) {
      for (const service of dispatcher.services) {
        const implementation = Object.fromEntries(
          service.methods.map((method) => [method.localName, handlerOf(dispatcher, method)]),
        )
        const readMaxBytes = maxRequestBytesOf(service)
        const options = { readMaxBytes, grpc: false } // gRPC is the other door's; Connect reads both per service
        router.service(service, implementation as ServiceImpl<typeof service>, options)
      }
      if (reflects) {
        const options = { readMaxBytes: maxRequestBytesOf(ServerReflection) }
        router.service(ServerReflection, reflectionOf(dispatcher), options)
      }
    },
    contextValues({ socket }) {
      const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined
      return createContextValues().set(callerKey, identify(certificate?.subjectAltName))
    },
    acceptCompression: [], // nothing to inflate, nothing to bomb with
  })

  const http1 = createServer(HTTP1_LIMITS, (request, response) => {
    try {
      handler(request, response) // throws when it can make no URL of the Host header
    } catch (error) {
      dispatcher.unexpectedAtDoor(error)
      response.destroy()
    }
  })
  http1.emit('listening') // otherwise never emitted, and node:http would watch no connection and ignore these limits
  const connections = new Set<Duplex>()

  return {
    accept(connection) {
      connections.add(connection)
      connection.once('close', () => connections.delete(connection))
      http1.emit('connection', connection)
    },
    serve(request, response) {
      request.url = request.url.replace(REFLECTION_ALPHA, REFLECTION)
      handler(request, response)
    },
    async drain(graceMs) {
      const force = setTimeout(() => {
        for (const connection of connections) connection.destroy()
      }, graceMs)
      while (connections.size > 0) {
        http1.closeIdleConnections()
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      clearTimeout(force)
      http1.close()
    },
  }
}

/** For callers that have a role. */
function reflectionOf({ services }: Dispatcher): ServiceImpl<typeof ServerReflection> {
  const { serverReflectionInfo } = createReflection(services)
  return {
    serverReflectionInfo(requests, context) {
      callerOf(context)
      return serverReflectionInfo(requests, context)
    },
  }
}

function handlerOf(dispatcher: Dispatcher, method: DescMethod) {
  return (request: never, context: HandlerContext) => {
    const call = {
      ...callerOf(context),
      requestId: requestIdFrom(context.requestHeader.get(REQUEST_ID_HEADER)),
      traceparent: context.requestHeader.get('traceparent') ?? '',
      signal: context.signal,
    }
    return dispatcher.call(method, request, call, context.timeoutMs())
  }
}

function callerOf({ values, requestHeader }: HandlerContext): Peer {
  return requireCaller(values.get(callerKey), requestHeader.has('origin'))
}
