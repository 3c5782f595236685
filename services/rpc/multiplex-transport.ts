// The client's end of MultiplexService.
// One long-lived stream carries all calls. Calls made within two turns of the event loop travel together. When a
// stream breaks, calls that were not sent yet go over the next one, and so do, once, calls whose method is declared idempotent.
// Any other call may have been executed: it fails as `unavailable`, and the caller decides.
import { isIP } from 'node:net'
import { checkServerIdentity } from 'node:tls'
import { create, type DescMethod, fromBinary, type Message, toBinary } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import {
  type MultiplexedCall,
  type MultiplexedResult,
  MultiplexRequestSchema,
  type MultiplexResponse,
  MultiplexService,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { afterNextTurn } from '../storage/queue.js'
import { type Address, hostInUrl } from './address.js'
import { inBatches } from './batches.js'
import type { Invoke, Outgoing } from './client.js'
import { type Deadline, Deadlines } from './deadlines.js'
import { pathOf } from './dispatcher.js'
import type { TlsMaterial } from './listener.js'

export interface MultiplexTransportOptions {
  readonly address: Address
  /** PEM texts; needed for an address of kind `tls`. Read on construction and by `reconnect`. */
  readonly tls: (() => TlsMaterial) | undefined
  /** Largest request the other side accepts, in bytes: a larger one fails alone, where it would end the stream for all. */
  readonly maxRequestBytes: number
  /** Largest response, in bytes. */
  readonly maxResponseBytes: number
  /** Deadline of calls that name none, in ms. */
  readonly defaultTimeoutMs: number
}

/** Most calls in flight, of all streams. */
export const MAX_CALLS = 20_000
/** A request message carries calls of up to this many bytes, or a single larger one. */
const BATCH_BYTES = 32 * 1024
/** More than the tags, lengths and numbers of a call and of its message. */
const CALL_BYTES = 64
/** Flow-control window of a peer, in bytes. The answers of one moment fit in it, so that none waits for a turn. */
const WINDOW_BYTES = 4 * 1024 * 1024
/** Calls wait this long for a connection, so that a restart of the other side goes unnoticed; then they fail at once. */
const CONNECT_WAIT_MS = 3_000
/**
 * A connection that is not established by then is tried again. grpc-js puts no limit on an attempt, and Node may never hear
 * again of one that the other side accepts and then resets or forgets.
 */
const CONNECT_ANEW_MS = 3_000
/** Pause before calls go to the next stream, so that a peer which breaks every stream is not asked in a loop. */
const MOVE_AFTER_MS = 50
const HEALTH_TIMEOUT_MS = 1_000
const HANGS = 'it does not answer health checks: see its /readyz'
const SERVES_NOT = 'its health check says NOT_SERVING'
/** The TLS server name sent for an IP address, which must not be sent as one (RFC 6066 §3; Node 26 insists). */
const NO_NAME = 'ip.invalid'
/** `status: SERVING` */
const SERVING = Buffer.from([0x08, 0x01])

/** A call whose request is not encoded yet. */
interface Call {
  /** Its id on the stream it goes over. */
  id: number
  /** Its path. */
  readonly method: string
  readonly request: Message
  readonly requestId: string
  readonly traceparent: string
}

interface Pending {
  readonly call: Call
  readonly method: DescMethod
  readonly deadline: Deadline
  readonly onSettled: () => void
  readonly resolve: (message: Message) => void
  readonly reject: (error: unknown) => void
  stream: Stream
  timesSent: number
}

/** The calls in flight, and where new ones go. */
export class MultiplexTransport {
  readonly #options: MultiplexTransportOptions
  /** The address, for messages. */
  readonly #peer: string
  readonly #deadlines = new Deadlines()
  /** Open streams; those that new calls no longer use may still be waiting for answers. */
  readonly #streams = new Set<Stream>()
  #credentials: grpc.ChannelCredentials
  #client: grpc.Client
  /** Where new calls go. */
  #stream: Stream | undefined
  /** Calls on all streams. */
  #pendingCount = 0
  /** Since when calls wait for a connection, by performance.now(). */
  #waitingSinceMs: number | undefined
  #isClosed = false

  readonly invoke = ((method, request, outgoing) => this.#call(method, request, outgoing)) as Invoke // decoded with method.output

  constructor(options: MultiplexTransportOptions) {
    this.#options = options
    this.#peer = target(options.address)
    this.#credentials = credentials(options)
    this.#client = connect(options, this.#credentials)
  }

  #call(method: DescMethod, request: Message, outgoing: Outgoing): Promise<Message> {
    return new Promise((resolve, reject) => {
      const { requestId, traceparent, timeoutMs = this.#options.defaultTimeoutMs, signal } = outgoing
      if (signal?.aborted) throw new ConnectError('the caller went away', Code.Canceled)
      const stream = this.#presentStream()
      const call = { id: 0, method: pathOf(method), request, requestId, traceparent }
      const giveUp = (why: string, code: Code) => {
        if (pending.timesSent > 0) pending.stream.tellGivenUp(call.id)
        this.#fail(pending, new ConnectError(why, code))
        pending.stream.endWhenDrained()
      }
      const onAbort = () => giveUp('the caller went away', Code.Canceled)
      const deadline = this.#deadlines.add(performance.now() + timeoutMs, () =>
        giveUp(`no answer from ${this.#peer} in time`, Code.DeadlineExceeded),
      )
      const onSettled = () => {
        deadline.isOver = true
        signal?.removeEventListener('abort', onAbort)
      }
      const pending: Pending = { call, method, deadline, onSettled, resolve, reject, stream, timesSent: 0 }
      signal?.addEventListener('abort', onAbort)
      this.#send(pending)
    })
  }

  /** undefined when the other side says within a second, by `grpc.health.v1`, that it serves; otherwise what is known. */
  async whyNotServing(): Promise<string | undefined> {
    if (!this.#isClosed) this.#openStream() // which connects anew where an attempt to connect hangs
    return await checkHealth(this.#client)
  }

  /** Makes new calls over a new connection, with the certificates as they are now; calls in flight finish. */
  reconnect(): void {
    this.#credentials = credentials(this.#options)
    this.#connectAnew()
  }

  /** Fails calls in flight and closes the connection. */
  close(): void {
    this.#isClosed = true
    for (const stream of this.#streams) stream.cancel()
    this.#client.close()
  }

  /** The stream new calls go to. @throws ConnectError when there is none and none is expected soon. */
  #presentStream(): Stream {
    if (this.#pendingCount >= MAX_CALLS) throw new ConnectError('too many calls are waiting', Code.Unavailable)
    const stream = this.#openStream()
    if (sinceMs(this.#waitingSinceMs) > CONNECT_WAIT_MS) {
      throw new ConnectError(`no connection to ${this.#peer}`, Code.Unavailable)
    }
    return stream
  }

  #openStream(): Stream {
    if (this.#isClosed) throw new ConnectError('the connection is closed', Code.Unavailable)
    this.#stream ??= this.#open()
    return this.#stream
  }

  #open(): Stream {
    const stream: Stream = new Stream(this.#client, {
      peer: this.#peer,
      maxRequestBytes: this.#options.maxRequestBytes,
      onConnected: () => {
        this.#waitingSinceMs = undefined
      },
      onResponse: (response) => {
        for (const result of response.results) this.#settle(stream, result)
        if (response.draining && stream === this.#stream) this.#connectAnew()
        else stream.endWhenDrained()
      },
      onEnded: (status) => this.#abandon(stream, status),
      onNotConnected: () => this.#connectAgain(stream),
      onUnencodable: (pending, error) => this.#fail(pending, error),
    })
    this.#streams.add(stream)
    this.#waitingSinceMs ??= performance.now()
    return stream
  }

  #send(pending: Pending): void {
    pending.stream.send(pending)
    this.#pendingCount += 1
  }

  /** New calls go over a new connection; the present stream ends when its calls have ended, and its connection with it. */
  #connectAnew(): void {
    const [client, stream] = [this.#client, this.#stream]
    this.#client = connect(this.#options, this.#credentials)
    this.#stream = undefined
    if (stream) stream.drain()
    else client.close()
  }

  /** For a stream without a connection: its calls, none of which was sent, wait on the next stream for another connection. */
  #connectAgain(stream: Stream): void {
    if (stream.client === this.#client) this.#client = connect(this.#options, this.#credentials)
    if (stream === this.#stream) this.#stream = this.#open()
    this.#moveFrom(stream, () => this.#openStream())
    stream.cancel()
  }

  #abandon(stream: Stream, status: grpc.StatusObject): void {
    this.#streams.delete(stream)
    if (this.#stream === stream) this.#stream = undefined
    if (stream.client !== this.#client) stream.client.close()
    const isRefused = status.code === grpc.status.UNAUTHENTICATED || status.code === grpc.status.PERMISSION_DENIED
    const code = isRefused ? (status.code as number as Code) : Code.Unavailable
    const what = isRefused ? `${this.#peer} refuses` : `connection to ${this.#peer} lost`
    for (const pending of stream.calls()) {
      if (!isRefused && !this.#isClosed && maySend(pending)) continue
      this.#fail(pending, new ConnectError(`${what}: ${status.details}`, code))
    }
    if (!stream.isEmpty()) setTimeout(() => this.#moveFrom(stream), MOVE_AFTER_MS)
    if (this.#pendingCount === 0 && !this.#stream) this.#waitingSinceMs = undefined
  }

  #moveFrom(broken: Stream, next = () => this.#presentStream()): void {
    for (const pending of broken.calls()) {
      this.#forget(pending)
      try {
        pending.stream = next()
        this.#send(pending)
      } catch (error) {
        this.#fail(pending, error)
      }
    }
  }

  /** The deadline stays: a call that is forgotten is settled next, or put on another stream. */
  #forget(pending: Pending): void {
    if (pending.stream.forget(pending)) this.#pendingCount -= 1
  }

  #settle(from: Stream, result: MultiplexedResult): void {
    const pending = from.pending[result.id]
    if (!pending) return // it was given up before
    this.#forget(pending)
    pending.onSettled()
    if (result.outcome.case !== 'response') {
      pending.reject(toConnectError(result))
      return
    }
    try {
      pending.resolve(fromBinary(pending.method.output, result.outcome.value))
    } catch (error) {
      const text = `${this.#peer} answered with no ${pending.method.output.typeName}`
      pending.reject(new ConnectError(text, Code.Internal, undefined, undefined, error))
    }
  }

  #fail(pending: Pending, error: unknown): void {
    this.#forget(pending)
    pending.onSettled()
    pending.reject(error)
  }
}

interface StreamOptions {
  readonly peer: string
  readonly maxRequestBytes: number
  readonly onConnected: () => void
  readonly onResponse: (response: MultiplexResponse) => void
  readonly onEnded: (status: grpc.StatusObject) => void
  /** Called when no connection was established in time. */
  readonly onNotConnected: () => void
  /** Called for a call that cannot be sent. */
  readonly onUnencodable: (pending: Pending, error: unknown) => void
}

/** One stream of a connection, with its pending calls. */
class Stream {
  /**
   * By id. Not a Map: its table is copied after as many deletions as it has room, and what the garbage collector has once moved to
   * the old generation keeps every later table alive, with the requests in it.
   */
  readonly pending: Record<number, Pending> = {}
  #nextId = 0
  readonly client: grpc.Client
  readonly #options: StreamOptions
  /** Takes MultiplexRequests as bytes. */
  readonly #call: grpc.ClientDuplexStream<Buffer, MultiplexResponse>
  /** Calls not sent yet; at first they wait for the connection. */
  #unsent: Pending[] = []
  #isScheduled = false
  #isConnected = false
  #isDraining = false

  constructor(client: grpc.Client, options: StreamOptions) {
    const { multiplex } = MultiplexService.method
    this.client = client
    this.#options = options
    this.#call = client.makeBidiStreamRequest(
      pathOf(multiplex),
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => fromBinary(multiplex.output, bytes),
      new grpc.Metadata({ waitForReady: true }),
    )
    const connecting = setTimeout(options.onNotConnected, CONNECT_ANEW_MS).unref()
    this.#call.on('metadata', () => {
      clearTimeout(connecting)
      this.#isConnected = true
      options.onConnected()
      this.#flush()
    })
    this.#call.on('data', options.onResponse)
    this.#call.on('error', () => undefined) // `status` follows and says the same
    this.#call.on('status', (status: grpc.StatusObject) => {
      clearTimeout(connecting)
      this.#isConnected = false
      options.onEnded(status)
    })
  }

  send(pending: Pending): void {
    pending.call.id = this.#nextId
    this.#nextId = (this.#nextId + 1) >>> 0 // a uint32
    this.pending[pending.call.id] = pending
    this.#unsent.push(pending)
    if (this.#isScheduled) return
    this.#isScheduled = true // together with what is called in one more turn
    afterNextTurn(() => {
      this.#isScheduled = false
      this.#flush()
    })
  }

  /** The pending calls, in the order they were sent. */
  calls(): Pending[] {
    return Object.values(this.pending)
  }

  isEmpty(): boolean {
    for (const _ in this.pending) return false
    return true
  }

  /** False when it was forgotten before. */
  forget({ call }: Pending): boolean {
    return this.pending[call.id] !== undefined && delete this.pending[call.id]
  }

  tellGivenUp(id: number): void {
    const message = create(MultiplexRequestSchema, { givenUp: [id] })
    if (this.#isConnected) this.#call.write(Buffer.from(toBinary(MultiplexRequestSchema, message)))
  }

  /** Ends the stream once its calls have ended. */
  drain(): void {
    this.#isDraining = true
    this.endWhenDrained()
  }

  endWhenDrained(): void {
    if (this.#isDraining && this.isEmpty()) this.#call.end()
  }

  cancel(): void {
    this.#call.cancel()
  }

  /** Sends what is not sent yet and still wanted, in messages that the server accepts. */
  #flush(): void {
    if (!this.#isConnected) return
    const sentMs = performance.now()
    const calls = this.#unsent.filter(({ call, deadline }) => this.pending[call.id] && sentMs < deadline.atMs)
    this.#unsent = []
    const encoded = calls.flatMap((pending) => this.#encoded(pending, sentMs) ?? [])
    const maxBytes = Math.min(BATCH_BYTES, this.#options.maxRequestBytes)
    for (const batch of inBatches(encoded, { maxBytes, sizeOf })) this.#write(batch)
    this.endWhenDrained()
  }

  /** undefined when it cannot be sent, of which its caller is told. */
  #encoded(pending: Pending, sentMs: number): MultiplexedCall | undefined {
    const { id, method, requestId, traceparent } = pending.call
    pending.timesSent += 1
    try {
      return {
        $typeName: 'surveyauth.internal.v1.MultiplexedCall',
        id,
        method,
        request: toBinary(pending.method.input, pending.call.request),
        timeoutMs: Math.max(1, Math.floor(pending.deadline.atMs - sentMs)),
        requestId,
        traceparent,
      }
    } catch (error) {
      this.#options.onUnencodable(pending, error)
      return undefined
    }
  }

  #write(calls: MultiplexedCall[]): void {
    const { peer, maxRequestBytes, onUnencodable } = this.#options
    const bytes = toBinary(MultiplexRequestSchema, create(MultiplexRequestSchema, { calls }))
    const pending = calls[0] && this.pending[calls[0].id]
    if (bytes.length <= maxRequestBytes || !pending) {
      this.#call.write(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length))
      return
    }
    const text = `the request has ${bytes.length} bytes, ${peer} takes ${maxRequestBytes}` // it is one call: see sizeOf
    onUnencodable(pending, new ConnectError(text, Code.ResourceExhausted))
  }
}

/** At least as many bytes as the call takes in a message, with what the message has besides; its texts are ASCII. */
function sizeOf({ method, request, requestId, traceparent }: MultiplexedCall): number {
  return method.length + request.length + requestId.length + traceparent.length + CALL_BYTES
}

/** What grpc-js puts around the cause of a failed connection. */
const AROUND_THE_CAUSE = /^No connection established\. Last error: (Error: )?|\.? Resolution note: $/g

/** grpc.health.v1.Health/Check of the server as a whole: an empty request, and a response whose field 1 is the status. */
function checkHealth(client: grpc.Client): Promise<string | undefined> {
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      '/grpc.health.v1.Health/Check',
      (empty: Buffer) => empty,
      (bytes) => bytes.equals(SERVING),
      Buffer.alloc(0),
      { deadline: Date.now() + HEALTH_TIMEOUT_MS },
      (error, isServing) => {
        if (error?.code === grpc.status.DEADLINE_EXCEEDED) resolve(HANGS)
        else if (error) resolve(error.details.replace(AROUND_THE_CAUSE, ''))
        else resolve(isServing ? undefined : SERVES_NOT)
      },
    )
  })
}

function sinceMs(atMs: number | undefined): number {
  return atMs === undefined ? 0 : performance.now() - atMs
}

/** A call that may have changed something is never sent twice, and no call a third time: it may be what breaks the peer. */
function maySend({ method, timesSent }: Pending): boolean {
  if (timesSent === 0) return true
  return timesSent === 1 && method.idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN
}

function toConnectError(result: MultiplexedResult): ConnectError {
  const failure = result.outcome.case === 'failure' ? result.outcome.value : undefined
  const code: Code = failure?.code ?? Code.Internal
  const known = Code[code] === undefined ? Code.Unknown : code // as gRPC does
  const error = new ConnectError(failure?.message ?? 'no outcome', known)
  error.details = (failure?.details ?? []).map(({ typeUrl, value }) => ({ type: typeUrl.replace(/^.*\//, ''), value }))
  return error
}

function target(address: Address): string {
  if (address.kind === 'unix') return `unix:${address.path}`
  return `${hostInUrl(address.host)}:${address.port}`
}

function connect(options: MultiplexTransportOptions, credentials: grpc.ChannelCredentials): grpc.Client {
  return new grpc.Client(target(options.address), credentials, {
    'grpc.max_receive_message_length': options.maxResponseBytes,
    'grpc.initial_reconnect_backoff_ms': 50,
    'grpc.min_reconnect_backoff_ms': 50,
    'grpc.max_reconnect_backoff_ms': 1_000,
    // A peer that vanished without a word is noticed within two seconds, even while no answer is due.
    'grpc.keepalive_time_ms': 1_000,
    'grpc.keepalive_timeout_ms': 1_000,
    'grpc.keepalive_permit_without_calls': 1,
    'grpc.enable_retries': 0,
    'grpc.use_local_subchannel_pool': 1,
    'grpc-node.flow_control_window': WINDOW_BYTES,
    ...(options.address.kind === 'tls' &&
      isIP(options.address.host) !== 0 && { 'grpc.ssl_target_name_override': NO_NAME }),
  })
}

function credentials({ address, tls }: MultiplexTransportOptions): grpc.ChannelCredentials {
  if (address.kind !== 'tls') return grpc.credentials.createInsecure()
  if (!tls) throw new Error('a TLS address needs certificates')
  const { ca, key, cert } = tls()
  // The certificate is checked against the address, whatever server name was sent.
  return grpc.credentials.createSsl(Buffer.from(ca), Buffer.from(key), Buffer.from(cert), {
    checkServerIdentity: (_name, certificate) => checkServerIdentity(address.host, certificate),
  })
}
