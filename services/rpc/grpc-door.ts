// The second door: gRPC over HTTP/2, on @grpc/grpc-js, for every method the dispatcher serves, unary or multiplexed.
// It decodes, asks the dispatcher, encodes; listener.ts owns the sockets.
import {
  constants,
  type Http2Server,
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Duplex } from 'node:stream'
import { type DescMethod, type DescService, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { setTrailerStatus } from '@connectrpc/connect/protocol-grpc'
import * as grpc from '@grpc/grpc-js'
import { HealthImplementation, type ServingStatusMap } from 'grpc-health-check'
import { MultiplexService } from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { CallersOverHttp2 } from './callers-over-http2.js'
import { type Dispatcher, type IncomingCall, pathOf } from './dispatcher.js'
import { type Identify, type Peer, requireCaller } from './identity.js'
import { serveMultiplex } from './multiplex-server.js'
import {
  decodeRequest,
  MAX_HEADER_BYTES,
  MAX_STREAMS,
  maxRequestBytesOf,
  REQUEST_ID_HEADER,
  requestIdFrom,
} from './requests.js'

export interface GrpcDoorOptions {
  readonly dispatcher: Dispatcher
  readonly identify: Identify
  /** Serves requests over HTTP/2 that are not gRPC, and those of reflection. */
  readonly serveOthers: (request: Http2ServerRequest, response: Http2ServerResponse) => void
}

type MultiplexStream = grpc.ServerDuplexStream<Buffer, Buffer>

export interface GrpcDoor {
  /** Hands over a connection that speaks HTTP/2. */
  accept(connection: Duplex): void
  /** What `grpc.health.v1` answers, for the server as a whole and for each service. */
  setServing(isServing: boolean): void
  /** Asks multiplexing callers to move on, finishes calls in flight, then closes; forcefully after `graceMs`. */
  drain(graceMs: number): Promise<void>
}

export async function createGrpcDoor(options: GrpcDoorOptions): Promise<GrpcDoor> {
  const { dispatcher } = options
  const server = new grpc.Server({
    'grpc.max_receive_message_length': Math.max(...dispatcher.services.map(maxRequestBytesOf)),
    'grpc.max_concurrent_streams': MAX_STREAMS,
  })
  for (const service of dispatcher.services) addUnary(server, options, service)
  const streams = new Set<{ drain(): void }>()
  const methods = dispatcher.services.flatMap((service) => service.methods)
  addMultiplex(server, options, new Map(methods.map((method) => [pathOf(method), method])), streams)

  const names = ['', MultiplexService.typeName, ...dispatcher.services.map((service) => service.typeName)]
  const statuses: ServingStatusMap = Object.fromEntries(names.map((name) => [name, 'NOT_SERVING']))
  const health = new HealthImplementation(statuses)
  let wasServing = false
  health.addToServer(server)

  server.createConnectionInjector(grpc.ServerCredentials.createInsecure()) // makes it create its HTTP/2 server
  const http2 = http2Of(server)
  http2.updateSettings({ maxHeaderListSize: MAX_HEADER_BYTES }) // in addition to those of grpc-js, which has no option for it
  const open = shareWith(options, http2)
  const callers = new CallersOverHttp2(http2)
  return {
    accept: (connection) => callers.accept(connection),
    setServing(isServing) {
      if (isServing === wasServing) return // every watcher would be told again
      wasServing = isServing
      for (const name of names) health.setStatus(name, isServing ? 'SERVING' : 'NOT_SERVING')
    },
    async drain(graceMs) {
      for (const stream of streams) stream.drain()
      for (const stream of open.endless) endUnavailable(stream)
      for (const stream of open.reflection) stream.close(constants.NGHTTP2_REFUSED_STREAM)
      const force = setTimeout(() => callers.destroy(), graceMs)
      // Not by server.tryShutdown(): on a connection that is closing, grpc-js's clients get no more pongs, and give it up with
      // all its calls.
      open.isDraining = true
      await callers.close((session) => endOf([...open.multiplexed].filter((stream) => stream.session === session)))
      clearTimeout(force)
      server.forceShutdown()
    },
  }
}

/** grpc-js keeps the HTTP/2 server that it creates private. */
function http2Of(server: grpc.Server): Http2Server {
  const { http2Servers } = server as unknown as { readonly http2Servers: ReadonlyMap<Http2Server, unknown> }
  const [http2] = http2Servers.keys()
  if (!http2) throw new Error('grpc-js has made no HTTP/2 server')
  return http2
}

interface OpenStreams {
  /** Streams of gRPC's own services, health checks: they end when their callers choose. */
  readonly endless: Set<ServerHttp2Stream>
  /** Streams of reflection, over any protocol: they end when their callers choose. */
  readonly reflection: Set<ServerHttp2Stream>
  /** Streams that carry calls: they end when their callers know that this server is draining and have all answers. */
  readonly multiplexed: Set<ServerHttp2Stream>
  /** Once set, a caller that opens another such stream has to reconnect. */
  isDraining: boolean
}

/**
 * Takes from grpc-js what is not gRPC, which it would answer with 415. An error thrown while a stream is taken on ends that
 * stream, not the process.
 */
function shareWith({ serveOthers, dispatcher }: GrpcDoorOptions, http2: Http2Server): OpenStreams {
  const open: OpenStreams = { endless: new Set(), reflection: new Set(), multiplexed: new Set(), isDraining: false }
  const serveGrpc = http2.listeners('stream')
  http2.removeAllListeners('stream')
  const serve = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, raw: string[]) => {
    const kind = kindOf(headers[':path'])
    if (open.isDraining && kind !== undefined) {
      stream.session?.close()
      stream.close(constants.NGHTTP2_REFUSED_STREAM) // says that nothing of it was processed (RFC 9113 §8.7)
      return
    }
    if (kind !== 'reflection' && GRPC_TYPE.test(headers['content-type'] ?? '')) {
      for (const serve of serveGrpc) serve.call(http2, stream, headers, flags, raw)
    } else {
      serveOthers(new Http2ServerRequest(stream, headers, {}, raw), new Http2ServerResponse(stream))
    }
    if (kind === undefined) return
    open[kind].add(stream)
    stream.once('close', () => open[kind].delete(stream))
  }
  http2.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, raw: string[]) => {
    stream.on('error', () => undefined) // the error it is closed with, by us or its caller; unhandled, it would end the process
    if (stream.closed || stream.destroyed) return // its caller gave it up in the packet that opened it
    try {
      serve(stream, headers, flags, raw)
    } catch (error) {
      dispatcher.unexpectedAtDoor(error)
      stream.close(constants.NGHTTP2_INTERNAL_ERROR)
    }
  })
  return open
}

const GRPC_TYPE = /^application\/grpc($|[+;])/ // not gRPC-Web, which grpc-js would take for gRPC

/** Endless calls of gRPC's own services. Their other calls end by themselves, with their own trailers. */
const ENDLESS = /^\/grpc\..*\/Watch$/
const REFLECTION = /^\/grpc\.reflection\./
const MULTIPLEXED = pathOf(MultiplexService.method.multiplex)

/** The kind of a stream; undefined for a single call. */
function kindOf(path = ''): 'endless' | 'reflection' | 'multiplexed' | undefined {
  if (path === MULTIPLEXED) return 'multiplexed'
  if (REFLECTION.test(path)) return 'reflection'
  return ENDLESS.test(path) ? 'endless' : undefined
}

/** Fulfils when all have closed, however they end. */
async function endOf(streams: readonly ServerHttp2Stream[]): Promise<void> {
  await Promise.all(streams.map((stream) => new Promise((resolve) => stream.once('close', resolve))))
}

/** Ends the stream after what was written: the last status a health watcher gets is that we do not serve. */
function endUnavailable(stream: ServerHttp2Stream): void {
  if (stream.destroyed || stream.writableEnded) return // answered: its own trailers are sent when its caller has read that far
  const status = { 'grpc-status': grpc.status.UNAVAILABLE, 'grpc-message': 'shutting down' }
  stream.once('wantTrailers', () => {
    stream.sendTrailers(status)
    stream.sendTrailers = () => undefined // grpc-js would send them again if the caller has ended its side
  })
  if (stream.headersSent) stream.end()
  else stream.respond({ 'content-type': 'application/grpc', ...status }, { endStream: true })
}

const asIs = (bytes: Buffer) => bytes

/** Messages are decoded and encoded here, to say what is wrong with one: grpc-js would only say that it failed. */
const AS_BYTES = {
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
}

function addUnary(server: grpc.Server, options: GrpcDoorOptions, service: DescService): void {
  const definition: Record<string, grpc.MethodDefinition<Buffer, Buffer>> = {}
  const implementation: Record<string, grpc.handleUnaryCall<Buffer, Buffer>> = {}
  for (const method of service.methods) {
    definition[method.localName] = { path: pathOf(method), requestStream: false, responseStream: false, ...AS_BYTES }
    implementation[method.localName] = (call, callback) => {
      answer(options, method, call).then(
        (bytes) => callback(null, bytes),
        (error: unknown) => callback(toStatus(error)),
      )
    }
  }
  server.addService(definition, implementation)
}

async function answer(
  options: GrpcDoorOptions,
  method: DescMethod,
  peer: grpc.ServerUnaryCall<Buffer, Buffer>,
): Promise<Buffer> {
  const caller = callerOf(options, peer)
  const request = decodeRequest(method, peer.request)
  const aborter = new AbortController()
  peer.once('cancelled', () => aborter.abort())
  const call: IncomingCall = {
    requestId: requestIdFrom(peer.metadata.get(REQUEST_ID_HEADER)[0]),
    traceparent: textOf(peer.metadata.get('traceparent')[0]),
    signal: aborter.signal,
    ...caller,
  }
  const deadline = peer.getDeadline()
  const timeoutMs = deadline === Number.POSITIVE_INFINITY ? undefined : Number(deadline) - Date.now()
  const response = await options.dispatcher.call(method, request, call, timeoutMs)
  try {
    return Buffer.from(toBinary(method.output, response))
  } catch (error) {
    throw options.dispatcher.unexpected(error, method, call)
  }
}

function addMultiplex(
  server: grpc.Server,
  options: GrpcDoorOptions,
  methods: ReadonlyMap<string, DescMethod>,
  streams: Set<{ drain(): void }>,
): void {
  const { dispatcher } = options
  const { multiplex } = MultiplexService.method
  server.addService(
    { multiplex: { path: pathOf(multiplex), requestStream: true, responseStream: true, ...AS_BYTES } },
    {
      multiplex(stream: MultiplexStream) {
        let caller: Peer
        try {
          caller = callerOf(options, stream)
        } catch (error) {
          stream.emit('error', toStatus(error))
          return
        }
        stream.sendMetadata(new grpc.Metadata()) // tells the caller that it is connected
        const served = serveMultiplex({ dispatcher, methods, stream, caller })
        streams.add(served)
        stream.once('close', () => streams.delete(served))
      },
    },
  )
}

function callerOf(options: GrpcDoorOptions, peer: Pick<MultiplexStream, 'getAuthContext' | 'metadata'>): Peer {
  const caller = options.identify(peer.getAuthContext().sslPeerCertificate?.subjectaltname)
  return requireCaller(caller, peer.metadata.get('origin').length > 0)
}

function textOf(value: grpc.MetadataValue | undefined): string {
  return typeof value === 'string' ? value : ''
}

/** Status of a failed call, with its details in `grpc-status-details-bin` as in gRPC's richer error model. */
function toStatus(error: unknown): grpc.ServerErrorResponse & { metadata: grpc.Metadata } {
  const failure = ConnectError.from(error, Code.Internal)
  const trailers = new Headers()
  setTrailerStatus(trailers, failure)
  const metadata = new grpc.Metadata()
  const details = trailers.get('grpc-status-details-bin')
  if (details !== null) metadata.set('grpc-status-details-bin', Buffer.from(details, 'base64'))
  return Object.assign(new Error(failure.rawMessage), {
    code: failure.code as number,
    details: failure.rawMessage,
    metadata,
  })
}
