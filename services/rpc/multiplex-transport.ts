// The client's end of MultiplexService.
// One long-lived stream carries all calls; those of one turn of the event loop travel in one message. When a stream
// breaks, what was not sent yet goes over the next one, and so does, once, what its method declares to be idempotent. Any
// other call may have been executed: it fails as `unavailable`, and the caller decides.
import { isIP } from 'node:net'
import { checkServerIdentity } from 'node:tls'
import { create, type DescMethod, fromBinary, type Message, toBinary } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { ErrorDetailSchema } from '../../gen/surveyauth/v1/error_pb.js'
import {
  MultiplexedCallSchema,
  type MultiplexedResult,
  MultiplexRequestSchema,
  type MultiplexResponse,
  MultiplexService,
} from '../../gen/surveyauth/v1/multiplex_service_pb.js'
import { groupBy } from '../collections/group-by.js'
import type { Address } from './address.js'
import { holding, inBatches } from './batches.js'
import { CallTable, MAX_CALLS } from './call-table.js'
import type { Invoke, Outgoing } from './client.js'
import { type Deadline, Deadlines } from './deadlines.js'
import { pathOf } from './dispatcher.js'
import { Decoder } from './large-messages.js'
import type { TlsMaterial } from './listener.js'

export interface MultiplexTransportOptions {
  readonly address: Address
  /** PEM texts; needed for an address of kind `tls`. Read again for every new connection. */
  readonly tls: (() => TlsMaterial) | undefined
  /** Largest request the other side takes, in bytes: a larger one fails alone, where it would end the stream of all. */
  readonly maxRequestBytes: number
  /** Largest response, in bytes. */
  readonly maxResponseBytes: number
  /** Deadline of calls that name none, in ms. */
  readonly defaultTimeoutMs: number
}

export interface MultiplexTransport {
  readonly invoke: Invoke
  /** undefined when the other side says within a second, by `grpc.health.v1`, that it serves; else what is known. */
  whyNotServing(): Promise<string | undefined>
  /** Makes new calls over a new connection, with the certificates as they are now; calls under way finish. */
  reconnect(): void
  /** Fails calls under way and closes the connection. */
  close(): void
}

/** A request message carries calls up to this many bytes, or one that is larger. */
const BATCH_BYTES = 32 * 1024
/** What a peer may send before it hears that some was taken. The answers of one moment fit in, so that none waits for a turn. */
const WINDOW_BYTES = 4 * 1024 * 1024
/** Calls wait this long for a connection, so that a restart of the other side goes unnoticed; then they fail at once. */
const CONNECT_WAIT_MS = 3_000
/** Pause before calls go to the next stream, so that a peer which breaks every stream is not asked in a loop. */
const MOVE_AFTER_MS = 50
const HEALTH_TIMEOUT_MS = 1_000
/** The name that is asked for by TLS where the address is an IP address, which may not be one (RFC 6066 §3; Node 26 insists). */
const NO_NAME = 'ip.invalid'
/** `status: SERVING` */
const SERVING = Buffer.from([0x08, 0x01])

/** A MultiplexedCall whose request is not encoded yet. */
interface Call {
  /** On the stream it goes over. */
  id: number
  readonly method: string
  readonly request: Message
  timeoutMs: number
  readonly requestId: string
  readonly traceparent: string
}

interface Pending {
  readonly call: Call
  readonly method: DescMethod
  readonly deadline: Deadline
  readonly resolve: (message: Message) => void
  readonly reject: (error: unknown) => void
  stream: Stream
  timesSent: number
}

interface Stream {
  readonly client: grpc.Client
  /** Takes MultiplexRequests as bytes. */
  readonly call: grpc.ClientDuplexStream<Buffer, MultiplexResponse>
  /** Calls made and not settled. */
  readonly pending: CallTable<Pending>
  /** Calls not sent yet: sent together at the end of the turn, or when the connection is there. */
  queue: Pending[]
  isConnected: boolean
  isDraining: boolean
}

export function createMultiplexTransport(options: MultiplexTransportOptions): MultiplexTransport {
  const { multiplex } = MultiplexService.method
  const peer = target(options.address)
  let client = connect(options)
  /** Where new calls go; others may still be waiting for answers. */
  let stream: Stream | undefined
  const streams = new Set<Stream>()
  const decoder = new Decoder()
  const deadlines = new Deadlines()
  /** On all streams. */
  let pendingCount = 0
  let isClosed = false
  /** Since when calls wait for a connection, by performance.now(). */
  let waitingSinceMs: number | undefined

  function open(): Stream {
    const call = client.makeBidiStreamRequest(
      pathOf(multiplex),
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => fromBinary(multiplex.output, bytes),
      new grpc.Metadata({ waitForReady: true }),
    )
    const opened: Stream = {
      client,
      call,
      pending: new CallTable(),
      queue: [],
      isConnected: false,
      isDraining: false,
    }
    streams.add(opened)
    waitingSinceMs ??= performance.now()
    call.on('metadata', () => {
      opened.isConnected = true
      waitingSinceMs = undefined
      flush(opened)
    })
    call.on('data', (response: MultiplexResponse) => {
      for (const result of response.results) settle(opened, result)
      if (response.draining) leave(opened)
      else endWhenDrained(opened)
    })
    call.on('error', () => undefined) // `status` follows and says the same
    call.on('status', (status: grpc.StatusObject) => abandon(opened, status))
    return opened
  }

  /** Makes new calls elsewhere; the stream ends when its calls have. */
  function leave(left: Stream): void {
    left.isDraining = true
    if (stream === left) stream = undefined
    endWhenDrained(left)
  }

  function endWhenDrained(left: Stream): void {
    if (left.isDraining && left.pending.size === 0) left.call.end()
  }

  function abandon(broken: Stream, status: grpc.StatusObject): void {
    streams.delete(broken)
    broken.isConnected = false
    if (stream === broken) stream = undefined
    if (broken.client !== client) broken.client.close()
    const isRefused = status.code === grpc.status.UNAUTHENTICATED || status.code === grpc.status.PERMISSION_DENIED
    const code = isRefused ? (status.code as number as Code) : Code.Unavailable
    for (const pending of broken.pending.calls()) {
      if (!isRefused && !isClosed && maySend(pending)) continue
      fail(pending, new ConnectError(`connection to ${peer} lost: ${status.details}`, code))
    }
    if (broken.pending.size > 0) setTimeout(moveFrom, MOVE_AFTER_MS, broken)
    if (pendingCount === 0) waitingSinceMs = undefined
  }

  function moveFrom(broken: Stream): void {
    for (const pending of broken.pending.calls()) {
      forget(pending)
      try {
        pending.stream = presentStream()
        enqueue(pending)
      } catch (error) {
        fail(pending, error)
      }
    }
  }

  /** The deadline stays: what is forgotten is settled next, or put on another stream. */
  function forget(pending: Pending): void {
    if (pending.stream.pending.delete(pending.call.id)) pendingCount -= 1
  }

  function settle(from: Stream, result: MultiplexedResult): void {
    const pending = from.pending.get(result.id)
    if (!pending) return // it was given up before
    forget(pending)
    deadlines.delete(pending.deadline)
    if (result.outcome.case !== 'response') {
      pending.reject(toConnectError(result))
      return
    }
    try {
      pending.resolve(decoder.decode(pending.method.output, result.outcome.value))
    } catch (error) {
      const text = `${peer} answered with no ${pending.method.output.typeName}`
      pending.reject(new ConnectError(text, Code.Internal, undefined, undefined, error))
    }
  }

  function fail(pending: Pending, error: unknown): void {
    forget(pending)
    deadlines.delete(pending.deadline)
    pending.reject(error)
  }

  function tooLarge(bytes: number): ConnectError {
    const text = `the request has ${bytes} bytes, ${peer} takes ${options.maxRequestBytes}`
    return new ConnectError(text, Code.ResourceExhausted)
  }

  /** Sends what is queued and not given up meanwhile, in messages the server accepts. */
  function flush(to: Stream): void {
    if (!to.isConnected) return
    const waiting = to.queue.filter(({ call }) => to.pending.get(call.id) !== undefined)
    to.queue = []
    const sentMs = performance.now()
    for (const pending of waiting) {
      pending.timesSent += 1
      pending.call.timeoutMs = Math.max(1, Math.floor(pending.deadline.atMs - sentMs))
    }
    for (const [{ input }, ofMethod] of groupBy(waiting, ({ method }) => method)) {
      const schema = holding(MultiplexRequestSchema, MultiplexedCallSchema.field.request, input)
      const batches = inBatches(ofMethod, {
        encode(part) {
          const bytes = toBinary(schema, create(schema, { calls: part.map(({ call }) => call), sentMs } as never))
          if (part.length === 1 && bytes.length > options.maxRequestBytes) throw tooLarge(bytes.length)
          return bytes
        },
        maxBytes: Math.min(BATCH_BYTES, options.maxRequestBytes),
        onUnencodable: fail,
      })
      for (const batch of batches) to.call.write(batch)
    }
    endWhenDrained(to)
  }

  /** The stream new calls go to. @throws ConnectError when there is none and none to be expected soon. */
  function presentStream(): Stream {
    if (isClosed) throw new ConnectError('the connection is closed', Code.Unavailable)
    if (pendingCount >= MAX_CALLS) throw new ConnectError('too many calls are waiting', Code.Unavailable)
    stream ??= open()
    if (!stream.isConnected && waitingSinceMs !== undefined && performance.now() - waitingSinceMs > CONNECT_WAIT_MS) {
      throw new ConnectError(`no connection to ${peer}`, Code.Unavailable)
    }
    return stream
  }

  function enqueue(pending: Pending): void {
    const { stream: to } = pending
    pending.call.id = to.pending.add(pending)
    pendingCount += 1
    if (to.queue.push(pending) === 1) setImmediate(flush, to)
  }

  function invoke(method: DescMethod, request: Message, outgoing: Outgoing): Promise<Message> {
    return new Promise((resolve, reject) => {
      const { requestId, traceparent, timeoutMs = options.defaultTimeoutMs, signal } = outgoing
      if (signal?.aborted) throw new ConnectError('the caller went away', Code.Canceled)
      const present = presentStream()
      const call = { id: 0, method: pathOf(method), request, timeoutMs, requestId, traceparent }
      const deadline = deadlines.add(performance.now() + timeoutMs, () => {
        fail(pending, new ConnectError(`no answer from ${peer} in time`, Code.DeadlineExceeded))
        endWhenDrained(pending.stream)
      })
      const pending: Pending = { call, method, deadline, resolve, reject, stream: present, timesSent: 0 }
      enqueue(pending)
    })
  }

  return {
    invoke: invoke as Invoke, // decoded with method.output
    whyNotServing: () => checkHealth(client),
    reconnect() {
      const old = client
      client = connect(options)
      if (stream) leave(stream)
      else old.close()
    },
    close() {
      isClosed = true
      for (const open of streams) open.call.cancel()
      client.close()
    },
  }
}

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
        if (error)
          resolve(
            error.details.replace(/^No connection established\. Last error: (Error: )?|\.? Resolution note: $/g, ''),
          )
        else resolve(isServing ? undefined : 'it says that it does not serve')
      },
    )
  })
}

/** Never a second time what may have changed something, and nothing a third time: it may be what breaks the peer. */
function maySend({ method, timesSent }: Pending): boolean {
  if (timesSent === 0) return true
  return timesSent === 1 && method.idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN
}

function toConnectError(result: MultiplexedResult): ConnectError {
  const failure = result.outcome.case === 'failure' ? result.outcome.value : undefined
  const details = failure?.detail ? [{ desc: ErrorDetailSchema, value: failure.detail }] : []
  const code: Code = failure?.code ?? Code.Internal
  const known = Code[code] === undefined ? Code.Unknown : code // as gRPC has it
  return new ConnectError(failure?.message ?? 'no outcome', known, undefined, details)
}

function target(address: Address): string {
  if (address.kind === 'unix') return `unix:${address.path}`
  return address.host.includes(':') ? `[${address.host}]:${address.port}` : `${address.host}:${address.port}`
}

function connect(options: MultiplexTransportOptions): grpc.Client {
  return new grpc.Client(target(options.address), credentials(options), {
    'grpc.max_receive_message_length': options.maxResponseBytes,
    'grpc.initial_reconnect_backoff_ms': 50,
    'grpc.min_reconnect_backoff_ms': 50,
    'grpc.max_reconnect_backoff_ms': 1_000,
    // A peer that vanished without a word is noticed within two seconds, also while no answer is due.
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
  // The certificate is held to the address, whatever name is asked for.
  return grpc.credentials.createSsl(Buffer.from(ca), Buffer.from(key), Buffer.from(cert), {
    checkServerIdentity: (_name, certificate) => checkServerIdentity(address.host, certificate),
  })
}
