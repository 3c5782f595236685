// The public HTTP server: from a socket to a route and back. It owns what HTTP leaves open (methods, sizes, timeouts,
// malformed requests, the headers of every answer, rates, the request log) and knows no endpoint. bin/ composes it.
import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, Code, ConnectError } from '@connectrpc/connect'
import type { LimitService } from '../gen/surveyauth/internal/v1/limit_service_pb.js'
import { commonHeaders, failure, failureHeaders, write, writeRaw } from './answer.js'
import { Connections, closeInStages, endOfTurn } from './connections.js'
import { invalidArgument, Problem, toProblem } from './errors.js'
import type { Answer, GatewayDeps, Headers, Route } from './http.js'
import { type GatewayLimits, MAX_HEADER_BYTES, MAX_URL_BYTES } from './limits.js'
import {
  headersTooLarge,
  type ParseFailure,
  problemOfParseFailure,
  targetOfUnknownMethod,
  urlTooLong,
} from './malformed.js'
import { type ErrorPageInput, errorPage } from './pages/error-page.js'
import { languageOf } from './pages/language.js'
import { breakOff } from './query.js'
import { RouteRates } from './rates/route-rates.js'
import { startSharing } from './rates/sharing.js'
import { GatewayRequest, type HeaderFacts, pathOf } from './request.js'
import { findResource, NO_ROUTE, pathParametersOf, type Resource } from './routes.js'
import { type IsProxy, isFromProxy, proxiesAmong, sourceOf } from './source.js'

/** How one request ended, for the access log and the metrics. Nothing else of a request may be logged. */
export interface RequestRecord {
  /** Name of the route; `none` when no route was found. */
  readonly route: string
  readonly method: string
  readonly status: number
  readonly durationMs: number
  readonly requestId: string
  /** `ok`, an `error.type`, or a page's name. */
  readonly outcome: string
  /** As the client claims it, only if it has the form of one: what is sent in its place by mistake may be a secret. */
  readonly appid?: string | undefined
}

export interface GatewayOptions extends GatewayDeps {
  /** 200: every enveloped application error is answered with status 200 (decisions 4). */
  readonly httpErrorStatus: 'semantic' | 200
  /** Deadline of one RPC, in ms. */
  readonly rpcTimeoutMs: number
  readonly limits: GatewayLimits
  /** Where gateways share their rate counts; without it each counts only its own requests. */
  readonly sharedLimits?: Client<typeof LimitService> | undefined
  /** IP addresses, and networks as `10.1.0.0/16`, whose X-Forwarded-For is trusted. */
  readonly trustedProxies: readonly string[]
  /** Called once per request, when it is answered. Must not throw. */
  readonly onRequest: (record: RequestRecord) => void
  /** Starts a span for a request, as a child of `traceparent` if that is valid; undefined when nothing collects spans. */
  readonly startSpan?:
    | ((
        method: string,
        route: string,
        traceparent: string,
      ) => { readonly traceparent: string; end(record: RequestRecord): void })
    | undefined
  /** Called once per unexpected failure, with what was thrown. */
  readonly onUnexpected: (error: unknown, requestId: string) => void
  /** Called for each connection that was closed at once because `maxConnections` were open, or later because it did not read. */
  readonly onDropped?: (() => void) | undefined
}

/** A crowd that retries as soon as it is refused would be all that is served, so it waits here, and for as long as it is told. */
const REFUSE_AFTER_MS = 1_000

/** Made once: a stack trace for each refusal would cost more than the rest of the answer. */
const BUSY = new Problem('remote_server_error', 'the service is busy, try again later', { retryAfterSeconds: 1 })

/** The form in which TokenService issues them. */
const APPID = /^app_[\w-]{22}$/

/** The whole public HTTP server, not yet listening; `drain` stops it: see Connections.drain. */
export function createGateway(options: GatewayOptions): { readonly server: Server; readonly drain: Gateway['drain'] } {
  const { limits } = options
  const server = createServer({
    maxHeaderSize: MAX_URL_BYTES + MAX_HEADER_BYTES, // one number for both in node:http; told apart by checkRequest
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: 0, // idle ones are closed by Connections
    connectionsCheckingInterval: 1_000, // ms; the default of 30 s would make the timeouts above 30 s late
    requireHostHeader: false, // refused in the envelope instead
  })
  server.maxHeadersCount = 0 // keep them all: their bytes are bounded, and a header that is dropped would go unchecked
  Object.assign(server, { httpAllowHalfOpen: true }) // a client that sends FIN after its request still gets the answer
  server.maxConnections = limits.maxConnections
  if (options.onDropped) server.on('drop', options.onDropped)
  const gateway = new Gateway(server, options)
  return { server, drain: (timeoutMs) => gateway.drain(timeoutMs) }
}

class Gateway {
  readonly #options: GatewayOptions
  /** undefined when they are turned off. */
  readonly #rates: RouteRates | undefined
  /** Requests that are being worked on. Pages are counted separately, so that a crowd signing in does not keep out apps. */
  readonly #inFlight: Record<Route['kind'], number> = { api: 0, page: 0 }
  #lastPage = Promise.resolve()
  readonly #stopSharing: (() => void) | undefined
  readonly #isProxy: IsProxy
  readonly #common: Headers
  /** With those of a connection that stays open. */
  readonly #commonKept: Headers
  readonly #connections: Connections

  constructor(server: Server, options: GatewayOptions) {
    this.#options = options
    this.#connections = new Connections(server, options.limits, options.onDropped)
    if (options.limits.rateLimit) this.#rates = new RouteRates(options.limits, options.sharedLimits !== undefined)
    if (this.#rates && options.sharedLimits)
      this.#stopSharing = startSharing(this.#rates.counters, options.sharedLimits)
    this.#isProxy = proxiesAmong(options.trustedProxies)
    this.#common = commonHeaders(options.publicUrl)
    const keepAlive = `timeout=${Math.floor(options.limits.keepAliveTimeoutMs / 1000)}`
    this.#commonKept = [...this.#common, 'keep-alive', keepAlive]
    const serve = (incoming: IncomingMessage, response: ServerResponse) => {
      this.#serve(incoming, response).catch((error) => this.#giveUp(error, response))
    }
    server.on('request', serve)
    server.on('checkExpectation', serve) // an Expect we do not know changes nothing
    server.on('clientError', (error, socket) => this.#refuseBytes(error, socket))
  }

  drain(timeoutMs: number): Promise<void> {
    this.#stopSharing?.()
    return this.#connections.drain(timeoutMs)
  }

  async #serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!this.#connections.began(incoming, response)) return
    const startedAt = performance.now()
    const { now, rpcTimeoutMs } = this.#options
    const source = sourceOf(incoming, this.#isProxy)
    const request = new GatewayRequest(incoming, source, this.#connections.leftBy(incoming), rpcTimeoutMs)
    const previous = this.#connections.previousAnswered(incoming)
    if (previous) await previous
    await endOfTurn() // requests that arrive together run the same code in succession, while it is in the cache
    const resource = findResource(request.path)
    const route = resource?.byMethod.get(request.method)
    const kind = resource?.kind ?? kindOf(request)
    const name = route?.name ?? NO_ROUTE
    const traceparent = isFromProxy(incoming, this.#isProxy) ? request.headerFacts.traceparent : ''
    const span = this.#options.startSpan?.(request.method, name, traceparent)
    request.traceparent = span?.traceparent ?? traceparent
    let appid: string | undefined
    let answer: Answer
    try {
      this.#rates?.admitSource(request.source, kind, now())
      checkRequest(incoming, request.headerFacts)
      if (request.body) await request.body // first, so that a client that sends it slowly takes no slot
      if (!route) throw noRoute(resource)
      request.pathParameters = pathParametersOf(request.path, route)
      appid = request.claimedAppid()
      if (appid !== undefined) this.#rates?.admitApp(appid, route, now())
      if (this.#inFlight[kind] >= this.#options.limits.maxInFlight) {
        await sleep(REFUSE_AFTER_MS)
        throw BUSY
      }
      this.#inFlight[kind] += 1
      try {
        if (kind === 'page') await this.#turnOfPage()
        answer = await route.answer(request, this.#options)
      } finally {
        this.#inFlight[kind] -= 1
      }
    } catch (error) {
      answer = this.#refuse(request, kind, error)
    }
    if (route && appid !== undefined && answer.countsForApp) this.#rates?.countApp(appid, route, now())
    if (request.headerFacts.isUpgrade) response.shouldKeepAlive = false
    this.#write(response, answer)
    const record = recordOf(request, name, answer, answer.appid ?? appid, startedAt)
    this.#options.onRequest(record)
    span?.end(record)
  }

  /** One page begins in each turn of the event loop: a crowd that signs in must not hold up apps. */
  #turnOfPage(): Promise<void> {
    this.#lastPage = this.#lastPage.then(endOfTurn)
    return this.#lastPage
  }

  /** The answer to a request that failed: the envelope for programs, a page for people. What HTTP itself refuses may be of either. */
  #refuse(request: GatewayRequest, kind: Route['kind'], error: unknown): Answer {
    const { requestId } = request
    const problem = toProblem(error)
    if (problem.type === 'internal_server_error' && !isLoggedByService(problem.cause)) {
      this.#options.onUnexpected(problem.cause, requestId)
    }
    if (kind === 'api' || (problem.isOfHttp && !acceptsHtml(request))) {
      return failure(problem, problem.status(this.#options.httpErrorStatus), requestId)
    }
    return errorPage(this.#options.look, {
      status: problem.status('semantic'),
      outcome: problem.type,
      requestId,
      language: languageOf(request),
      headers: failureHeaders(problem.options),
      retryAfterSeconds: problem.options.retryAfterSeconds,
      wayOn: wayOnFrom(problem, request),
    })
  }

  /** A bug, in a page's headers for example; the client still gets an answer. */
  #giveUp(error: unknown, response: ServerResponse): void {
    const requestId = randomUUID()
    this.#options.onUnexpected(error, requestId)
    const problem = toProblem(error)
    if (response.headersSent) response.destroy()
    else this.#write(response, failure(problem, problem.kind.status, requestId))
  }

  #write(response: ServerResponse, answer: Answer): void {
    if (!response.req.complete) response.shouldKeepAlive = false // an unread body cannot be told apart from the next request
    write(response, answer, response.shouldKeepAlive ? this.#commonKept : this.#common)
    this.#connections.answered(answer.body.length)
  }

  /** A request whose body is malformed, or late, is answered by itself; what arrives behind others, by closing after the last of their answers. */
  #refuseBytes(error: ParseFailure, socket: Duplex): void {
    if (!socket.writable) return // its client has reset it, for example, or it is being closed
    const target = targetOfUnknownMethod(error)
    const problem = target === undefined ? problemOfParseFailure(error) : noRoute(findResource(pathOf(target)))
    const last = this.#connections.lastWaiting(socket)
    if (!last) this.#refuseRaw(socket, problem)
    else if (!last.req.complete) breakOff(last.req, problem)
    else if (last.headersSent) closeInStages(socket)
    else last.shouldKeepAlive = false
  }

  #refuseRaw(socket: Duplex, problem: Problem): void {
    const requestId = randomUUID()
    const answer = failure(problem, problem.status(this.#options.httpErrorStatus), requestId)
    writeRaw(socket, answer, this.#common)
    const { status, outcome } = answer
    this.#options.onRequest({ route: NO_ROUTE, method: 'none', status, durationMs: 0, requestId, outcome })
  }
}

/** Whether a service reports its own unexpected failure: it has logged it with its cause, and logging it here adds nothing. */
function isLoggedByService(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.Internal && error.cause === undefined
}

function recordOf(
  request: GatewayRequest,
  route: string,
  answer: Answer,
  appid: string | undefined,
  startedAt: number,
): RequestRecord {
  return {
    route,
    method: request.method,
    status: answer.status,
    durationMs: performance.now() - startedAt,
    requestId: request.requestId,
    outcome: answer.outcome,
    appid: appid !== undefined && APPID.test(appid) ? appid : undefined,
  }
}

/** Who is answered for a path where nothing is served: a browser, which says that it accepts HTML, or a program. */
function kindOf(request: GatewayRequest): Route['kind'] {
  if (request.path === '/api' || request.path.startsWith('/api/')) return 'api'
  return acceptsHtml(request) ? 'page' : 'api'
}

function acceptsHtml(request: GatewayRequest): boolean {
  return /text\/html/i.test(request.header('accept') ?? '')
}

/** What HTTP demands of every request, whatever its path. @throws Problem */
function checkRequest({ url = '', httpVersion }: IncomingMessage, headers: HeaderFacts): void {
  if (url.length > MAX_URL_BYTES) throw urlTooLong()
  if (headers.bytes > MAX_HEADER_BYTES) throw headersTooLarge()
  if (headers.hosts > 1 || (headers.hosts === 0 && httpVersion === '1.1')) {
    throw invalidArgument('the Host header must be given once', { httpStatus: 400 }) // RFC 9112 §3.2, with any HTTP_ERROR_STATUS
  }
}

/** Where a page about a failure leads: not to the same failure again, and nowhere that loses what a form held. */
function wayOnFrom({ kind, options }: Problem, { method }: GatewayRequest): ErrorPageInput['wayOn'] {
  if (kind.action === 'retry') return method === 'GET' ? 'again' : null
  return options.httpStatus === 414 || options.httpStatus === 431 ? null : undefined
}

function noRoute(resource: Resource | undefined): Problem {
  if (!resource) return new Problem('no_route', 'nothing is served at this path')
  return new Problem('method_not_allowed', `the path takes ${resource.allow} only`, { allow: resource.allow })
}
