// The client's end of MultiplexService at one address. One long-lived stream carries all calls. When it breaks, calls that were not
// sent yet go over the next one, here or at a peer, and so do, once, calls whose method is declared idempotent. Any other call may
// have been executed: it fails as `unavailable`, and the caller decides.
import { setTimeout as after } from 'node:timers/promises'
import { type DescMethod, fromBinary, type Message } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { type MultiplexedResult, MultiplexService } from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import type { Invoke, Outgoing } from './client.js'
import { type ConnectionOptions, connect, credentials, HANGS, notServed, target, whyNotServing } from './connection.js'
import { Deadlines } from './deadlines.js'
import { MultiplexStream, type Pending } from './multiplex-stream.js'

export interface MultiplexTransportOptions extends ConnectionOptions {
  /** Largest request the other side accepts, in bytes: a larger one fails alone, where it would end the stream for all. */
  readonly maxRequestBytes: number
  /** Deadline of calls that name none, in ms. */
  readonly defaultTimeoutMs: number
  /** Those that serve the same, this one among them; it alone unless given. */
  readonly peers?: PeersOfTransport
}

export interface PeersOfTransport {
  /** The best for the next call. */
  next(): MultiplexTransport
  onConnected(): void
  /** No call need wait for any of them. */
  readonly areHopeless: boolean
}

/** Most calls in flight, of all streams. */
export const MAX_CALLS = 20_000
/** Calls wait this long for a connection, so that a restart of the other side goes unnoticed; then they fail at once. */
const CONNECT_WAIT_MS = 3_000
/** A stream that a server which answers health checks has not taken by then, in ms, is taken for one that it does not serve. */
const TAKEN_WITHIN_MS = 1_000
const LATE = Symbol('late')
/** How good a choice a transport is for a call, the best first. */
export const RANK = { serving: 0, connected: 1, connecting: 2, hopeless: 3 } as const
/** Pause before calls go to the next stream, so that a peer which breaks every stream is not asked in a loop. */
const MOVE_AFTER_MS = 50

/** The calls in flight, and where new ones go. */
export class MultiplexTransport {
  readonly #options: MultiplexTransportOptions
  /** The address, for messages. */
  readonly #peer: string
  readonly #deadlines = new Deadlines()
  /** Open streams; those that new calls no longer use may still be waiting for answers. */
  readonly #streams = new Set<MultiplexStream>()
  #credentials: grpc.ChannelCredentials
  #client: grpc.Client
  /** Where new calls go. */
  #stream: MultiplexStream | undefined
  #isServing = false
  /** By the last stream that was opened: the other side does not let this process call. */
  isRefused = false
  /** Since when calls wait for a connection, by performance.now(). */
  #waitingSinceMs: number | undefined
  #isClosed = false

  readonly invoke = ((method, request, outgoing) => this.#call(method, request, outgoing)) as Invoke // decoded with method.output

  constructor(options: MultiplexTransportOptions) {
    this.#options = options
    this.#peer = target(options)
    this.#credentials = credentials(options)
    this.#client = connect(options, this.#credentials)
  }

  #call(method: DescMethod, request: Message, outgoing: Outgoing): Promise<Message> {
    return new Promise((resolve, reject) => {
      const { requestId, traceparent, timeoutMs = this.#options.defaultTimeoutMs, signal } = outgoing
      if (signal?.aborted) throw new ConnectError('the caller went away', Code.Canceled)
      const stream = this.#presentStream()
      const giveUp = (why: string, code: Code) => {
        if (pending.timesSent > 0) pending.stream.tellGivenUp(pending.id)
        fail(pending, new ConnectError(why, code))
        pending.stream.endWhenDrained()
      }
      const onAbort = () => giveUp('the caller went away', Code.Canceled)
      const deadline = this.#deadlines.add(performance.now() + timeoutMs, () =>
        giveUp(`no answer from ${pending.stream.peer} in time`, Code.DeadlineExceeded),
      )
      const onSettled = () => {
        deadline.isOver = true
        signal?.removeEventListener('abort', onAbort)
      }
      const call = { method, request, requestId, traceparent, deadline, onSettled, resolve, reject }
      const pending: Pending = { stream, id: 0, timesSent: 0, ...call } // the other way round it takes 5 µs
      signal?.addEventListener('abort', onAbort)
      stream.send(pending)
    })
  }

  /** Whether the other side has said so, to whoever asks it, since the connection was made. */
  get isServing(): boolean {
    return this.#isServing
  }

  set isServing(isServing: boolean) {
    this.#isServing = isServing
    if (isServing) this.#stream?.endSilence()
  }

  get rank(): number {
    if (this.isConnected) return this.isServing && !this.#stream?.isSilent ? RANK.serving : RANK.connected
    return this.isRefused || this.#hasWaited() ? RANK.hopeless : RANK.connecting
  }

  get isConnected(): boolean {
    return this.#stream?.isConnected === true
  }

  /** No call is in flight. */
  get isIdle(): boolean {
    return this.#callCount() === 0
  }

  /** Connects, unless it has. */
  open(): void {
    if (!this.#isClosed) this.#openStream()
  }

  /** Calls that wait for a connection wait at the best of the peers. */
  moveWaiting(): void {
    if (this.#stream && !this.isConnected) this.#moveFrom(this.#stream)
  }

  /**
   * undefined when the other side says within a second, by `grpc.health.v1`, that it serves this service, or as a whole if that is
   * empty, and takes our stream; otherwise what is known.
   */
  async whyNotServing(service?: string): Promise<string | undefined> {
    if (this.#isClosed) return 'the connection is closed'
    const { taken } = this.#openStream() // which connects anew where an attempt to connect hangs
    const client = this.#client
    const cause = await whyNotServing(client, service)
    if (cause !== undefined) return client === this.#client ? cause : HANGS // it was given up for another, and closed
    const status = await Promise.race([taken, after(TAKEN_WITHIN_MS, LATE, { ref: false })])
    if (status === LATE) return 'it does not answer calls'
    return status?.code === grpc.status.UNIMPLEMENTED ? notServed(MultiplexService.typeName) : undefined
  }

  /** Makes new calls over a new connection, with these certificates; calls in flight finish. */
  reconnect(tls = this.#options.tls): void {
    this.#credentials = credentials({ ...this.#options, tls })
    this.#connectAnew()
  }

  /** Fails calls in flight and closes the connection. */
  close(): void {
    this.#isClosed = true
    for (const stream of this.#streams) stream.cancel()
    this.#client.close()
  }

  /** The stream new calls go to. @throws ConnectError when there is none and none is expected soon. */
  #presentStream(): MultiplexStream {
    if (this.#callCount() >= MAX_CALLS) throw new ConnectError('too many calls are waiting', Code.Unavailable)
    const stream = this.#openStream()
    if (this.#hasWaited()) throw new ConnectError(`no connection to ${this.#peer}`, Code.Unavailable)
    return stream
  }

  #callCount(): number {
    let count = 0
    for (const { size } of this.#streams) count += size
    return count
  }

  /** For a connection, longer than it is worth. */
  #hasWaited(): boolean {
    return this.#waitingSinceMs !== undefined && performance.now() - this.#waitingSinceMs > CONNECT_WAIT_MS
  }

  #openStream(): MultiplexStream {
    if (this.#isClosed) throw new ConnectError('the connection is closed', Code.Unavailable)
    this.#stream ??= this.#open()
    return this.#stream
  }

  #open(): MultiplexStream {
    const stream: MultiplexStream = new MultiplexStream(this.#client, {
      peer: this.#peer,
      maxRequestBytes: this.#options.maxRequestBytes,
      onConnected: () => {
        this.#waitingSinceMs = undefined
        this.isRefused = false
        this.#options.peers?.onConnected()
      },
      onResponse: (response) => {
        for (const result of response.results) settle(stream, result)
        if (response.draining && stream === this.#stream) this.#connectAnew()
        else stream.endWhenDrained()
      },
      onEnded: (status) => this.#abandon(stream, status),
      onNotConnected: () => this.#connectAgain(stream),
      onUnencodable: fail,
    })
    this.#streams.add(stream)
    this.#waitingSinceMs ??= performance.now()
    return stream
  }

  /** New calls go over a new connection; the present stream ends when its calls have ended, and its connection with it. */
  #connectAnew(): void {
    this.isServing = false // until who is there now has said that it does
    const [client, stream] = [this.#client, this.#stream]
    this.#client = connect(this.#options, this.#credentials)
    this.#stream = undefined
    if (stream) stream.drain()
    else client.close()
  }

  /** For a stream without a connection: its calls, none of which was sent, wait on the next stream for another connection. */
  #connectAgain(stream: MultiplexStream): void {
    if (stream.client === this.#client) this.#client = connect(this.#options, this.#credentials)
    if (stream === this.#stream) this.#stream = this.#open()
    this.#moveFrom(stream, () => this.#openStream())
    stream.cancel()
  }

  #abandon(stream: MultiplexStream, status: grpc.StatusObject): void {
    const isRefused = status.code === grpc.status.UNAUTHENTICATED || status.code === grpc.status.PERMISSION_DENIED
    if (this.#stream === stream) {
      this.#stream = undefined
      this.isRefused = isRefused
      this.isServing = false
    }
    if (stream.client !== this.#client) stream.client.close()
    const isFinal = this.#isClosed || (isRefused && (this.#options.peers?.areHopeless ?? true))
    const code = isRefused ? (status.code as number as Code) : Code.Unavailable
    const what = isRefused ? `${this.#peer} refuses` : `connection to ${this.#peer} lost`
    for (const pending of stream.calls()) {
      if (isFinal || !maySend(pending)) fail(pending, new ConnectError(`${what}: ${status.details}`, code))
    }
    const forget = () => {
      this.#streams.delete(stream)
      this.#moveFrom(stream)
    }
    if (stream.size === 0) forget()
    else setTimeout(forget, MOVE_AFTER_MS)
    if (this.isIdle && !this.#stream) this.#waitingSinceMs = undefined
  }

  #next(): MultiplexTransport {
    return this.#options.peers?.next() ?? this
  }

  #moveFrom(left: MultiplexStream, to = () => this.#next().#presentStream()): void {
    for (const pending of left.take()) {
      try {
        to().send(pending)
      } catch (error) {
        fail(pending, error)
      }
    }
  }
}

/** The deadline stays when a call is put on another stream: only here it ends. */
function fail(pending: Pending, error: unknown): void {
  pending.stream.forget(pending)
  pending.onSettled()
  pending.reject(error)
}

function settle(from: MultiplexStream, result: MultiplexedResult): void {
  const pending = from.pending[result.id]
  if (!pending) return // it was given up before
  from.forget(pending)
  pending.onSettled()
  if (result.outcome.case !== 'response') {
    pending.reject(toConnectError(result))
    return
  }
  try {
    pending.resolve(fromBinary(pending.method.output, result.outcome.value))
  } catch (error) {
    const text = `${from.peer} answered with no ${pending.method.output.typeName}`
    pending.reject(new ConnectError(text, Code.Internal, undefined, undefined, error))
  }
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
