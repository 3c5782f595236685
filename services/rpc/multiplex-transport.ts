// The client's end of MultiplexService. One long-lived stream carries all calls. When it breaks, calls that were not sent yet go
// over the next one, and so do, once, calls whose method is declared idempotent. Any other call may have been executed: it fails
// as `unavailable`, and the caller decides.
import { setTimeout as after } from 'node:timers/promises'
import { type DescMethod, fromBinary, type Message } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { type MultiplexedResult, MultiplexService } from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import type { Invoke, Outgoing } from './client.js'
import { type ConnectionOptions, connect, credentials, notServed, target, whyNotServing } from './connection.js'
import { Deadlines } from './deadlines.js'
import { MultiplexStream, type Pending } from './multiplex-stream.js'

export interface MultiplexTransportOptions extends ConnectionOptions {
  /** Largest request the other side accepts, in bytes: a larger one fails alone, where it would end the stream for all. */
  readonly maxRequestBytes: number
  /** Deadline of calls that name none, in ms. */
  readonly defaultTimeoutMs: number
}

/** Most calls in flight, of all streams. */
export const MAX_CALLS = 20_000
/** Calls wait this long for a connection, so that a restart of the other side goes unnoticed; then they fail at once. */
const CONNECT_WAIT_MS = 3_000
/** A stream that a server which answers health checks has not taken by then, in ms, is taken for one that it does not serve. */
const TAKEN_WITHIN_MS = 1_000
const LATE = Symbol('late')
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
      const giveUp = (why: string, code: Code) => {
        if (pending.timesSent > 0) pending.stream.tellGivenUp(pending.id)
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
      const call = { method, request, requestId, traceparent, deadline, onSettled, resolve, reject }
      const pending: Pending = { stream, id: 0, timesSent: 0, ...call } // the other way round it takes 5 µs
      signal?.addEventListener('abort', onAbort)
      this.#send(pending)
    })
  }

  /**
   * undefined when the other side says within a second, by `grpc.health.v1`, that it serves this service, or as a whole if that is
   * empty, and takes our stream; otherwise what is known.
   */
  async whyNotServing(service?: string): Promise<string | undefined> {
    if (this.#isClosed) return 'the connection is closed'
    const { taken } = this.#openStream() // which connects anew where an attempt to connect hangs
    const cause = await whyNotServing(this.#client, service)
    if (cause !== undefined) return cause
    const status = await Promise.race([taken, after(TAKEN_WITHIN_MS, LATE, { ref: false })])
    if (status === LATE) return 'it does not answer calls'
    return status?.code === grpc.status.UNIMPLEMENTED ? notServed(MultiplexService.typeName) : undefined
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
  #presentStream(): MultiplexStream {
    if (this.#pendingCount >= MAX_CALLS) throw new ConnectError('too many calls are waiting', Code.Unavailable)
    const stream = this.#openStream()
    if (sinceMs(this.#waitingSinceMs) > CONNECT_WAIT_MS) {
      throw new ConnectError(`no connection to ${this.#peer}`, Code.Unavailable)
    }
    return stream
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
  #connectAgain(stream: MultiplexStream): void {
    if (stream.client === this.#client) this.#client = connect(this.#options, this.#credentials)
    if (stream === this.#stream) this.#stream = this.#open()
    this.#moveFrom(stream, () => this.#openStream())
    stream.cancel()
  }

  #abandon(stream: MultiplexStream, status: grpc.StatusObject): void {
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

  #moveFrom(broken: MultiplexStream, next = () => this.#presentStream()): void {
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

  #settle(from: MultiplexStream, result: MultiplexedResult): void {
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
