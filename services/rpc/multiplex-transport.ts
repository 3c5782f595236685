// The client's end of MultiplexService, as a Connect Transport: callers keep their typed Connect clients.
// One long-lived stream carries all calls; those of one turn of the event loop travel in one message. A call that was
// sent is never sent again: when a stream breaks, its calls fail as `unavailable` and the callers decide.
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  toBinary,
} from '@bufbuild/protobuf'
import { Code, ConnectError, type Transport, type UnaryResponse } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { ErrorDetailSchema } from '../../gen/surveyauth/v1/error_pb.js'
import {
  type MultiplexedCall,
  MultiplexedCallSchema,
  type MultiplexedResult,
  type MultiplexRequest,
  MultiplexRequestSchema,
  type MultiplexResponse,
  MultiplexService,
} from '../../gen/surveyauth/v1/multiplex_service_pb.js'
import type { Address } from './address.js'
import { pathOf } from './grpc-door.js'
import type { TlsMaterial } from './listener.js'
import { REQUEST_ID_HEADER } from './request-id.js'

export interface MultiplexTransportOptions {
  readonly address: Address
  /** PEM texts; needed for an address of kind `tls`. Read again for every new connection. */
  readonly tls: (() => TlsMaterial) | undefined
  /** Largest response, in bytes. */
  readonly maxResponseBytes: number
  /** Deadline of calls that name none, in ms. */
  readonly defaultTimeoutMs: number
}

export interface MultiplexTransport extends Transport {
  /** Whether the other side says, by `grpc.health.v1`, that it serves; false when it does not answer within a second. */
  isServing(): Promise<boolean>
  /** Makes new calls over a new connection, with the certificates as they are now; calls under way finish. */
  reconnect(): void
  /** Fails calls under way and closes the connection. */
  close(): void
}

/** Calls that may wait for an answer or a connection; beyond it a call fails at once. */
const MAX_PENDING = 20_000
/** A request message carries calls up to about this many bytes, well below the server's limit of 64 KiB. */
const BATCH_BYTES = 32 * 1024
/** Room for a call's method, ids and trace context. */
const CALL_OVERHEAD_BYTES = 200
/** Calls wait this long for a connection, so that a restart of the other side goes unnoticed; then they fail at once. */
const CONNECT_WAIT_MS = 3_000
const HEALTH_TIMEOUT_MS = 1_000
/** `status: SERVING` */
const SERVING = Buffer.from([0x08, 0x01])

interface Pending {
  readonly method: DescMethod
  readonly resolve: (message: unknown) => void
  readonly reject: (error: ConnectError) => void
  readonly timer: NodeJS.Timeout
}

interface Stream {
  readonly client: grpc.Client
  readonly call: grpc.ClientDuplexStream<MultiplexRequest, MultiplexResponse>
  /** Calls made and not settled, by id. */
  readonly pending: Map<number, Pending>
  /** Calls not sent yet: sent together at the end of the turn, or when the connection is there. */
  queue: MultiplexedCall[]
  isConnected: boolean
  isDraining: boolean
  readonly openedAtMs: number
}

export function createMultiplexTransport(options: MultiplexTransportOptions): MultiplexTransport {
  const { multiplex } = MultiplexService.method
  const peer = target(options.address)
  let client = connect(options)
  let stream: Stream | undefined
  let nextId = 0
  let pendingCount = 0
  let isClosed = false

  function open(): Stream {
    const call = client.makeBidiStreamRequest(
      pathOf(multiplex),
      (message: MultiplexRequest) => Buffer.from(toBinary(multiplex.input, message)),
      (bytes: Buffer) => fromBinary(multiplex.output, bytes),
      new grpc.Metadata({ waitForReady: true }),
    )
    const opened: Stream = {
      client,
      call,
      pending: new Map(),
      queue: [],
      isConnected: false,
      isDraining: false,
      openedAtMs: performance.now(),
    }
    call.on('metadata', () => {
      opened.isConnected = true
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
    if (stream === broken) stream = undefined
    if (broken.client !== client) broken.client.close()
    const isRefused = status.code === grpc.status.UNAUTHENTICATED || status.code === grpc.status.PERMISSION_DENIED
    const code = isRefused ? (status.code as number as Code) : Code.Unavailable
    for (const id of [...broken.pending.keys()]) {
      forget(broken, id)?.reject(new ConnectError(`connection to ${peer} lost: ${status.details}`, code))
    }
  }

  function forget(from: Stream, id: number): Pending | undefined {
    const pending = from.pending.get(id)
    if (!pending) return undefined
    clearTimeout(pending.timer)
    from.pending.delete(id)
    pendingCount -= 1
    return pending
  }

  function settle(from: Stream, result: MultiplexedResult): void {
    const pending = forget(from, result.id)
    if (!pending) return // it was given up before
    if (result.outcome.case !== 'response') {
      pending.reject(toConnectError(result))
      return
    }
    try {
      pending.resolve(fromBinary(pending.method.output, result.outcome.value))
    } catch {
      pending.reject(new ConnectError(`${peer} answered with no ${pending.method.output.typeName}`, Code.Internal))
    }
  }

  /** Sends what is queued and not given up meanwhile, in messages the server accepts. */
  function flush(to: Stream): void {
    if (!to.isConnected) return
    const waiting = to.queue.filter((call) => to.pending.has(call.id))
    to.queue = []
    for (const calls of inBatches(waiting)) {
      to.call.write(create(MultiplexRequestSchema, { calls, sentMs: performance.now() }))
    }
  }

  function start(
    method: DescMethod,
    request: Uint8Array,
    timeoutMs: number,
    context: { requestId: string; traceparent: string },
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (isClosed) throw new ConnectError('the connection is closed', Code.Unavailable)
      if (pendingCount >= MAX_PENDING) throw new ConnectError('too many calls are waiting', Code.Unavailable)
      stream ??= open()
      const on = stream
      if (!on.isConnected && performance.now() - on.openedAtMs > CONNECT_WAIT_MS) {
        throw new ConnectError(`no connection to ${peer}`, Code.Unavailable)
      }
      const id = nextId
      nextId = (nextId + 1) % 0xffff_ffff
      const timer = setTimeout(() => {
        forget(on, id)
        reject(new ConnectError(`no answer from ${peer} in time`, Code.DeadlineExceeded))
      }, timeoutMs)
      on.pending.set(id, { method, resolve, reject, timer })
      pendingCount += 1
      const call = create(MultiplexedCallSchema, { id, method: pathOf(method), request, timeoutMs, ...context })
      if (on.queue.push(call) === 1) setImmediate(flush, on)
    })
  }

  return {
    async unary<I extends DescMessage, O extends DescMessage>(
      method: DescMethodUnary<I, O>,
      signal: AbortSignal | undefined,
      timeoutMs: number | undefined,
      headers: ConstructorParameters<typeof Headers>[0],
      input: MessageInitShape<I>,
    ): Promise<UnaryResponse<I, O>> {
      signal?.throwIfAborted()
      const plain = headers as Readonly<Record<string, string | undefined>> | undefined
      const context = { requestId: plain?.[REQUEST_ID_HEADER] ?? '', traceparent: plain?.traceparent ?? '' }
      const request = toBinary(method.input, create(method.input, input))
      const message = await start(method, request, timeoutMs ?? options.defaultTimeoutMs, context)
      return {
        stream: false,
        service: method.parent,
        method,
        header: noHeaders,
        trailer: noHeaders,
        message: message as UnaryResponse<I, O>['message'], // decoded with method.output
      }
    },
    stream() {
      return Promise.reject(new ConnectError('this transport makes unary calls', Code.Unimplemented))
    },
    isServing: () => checkHealth(client),
    reconnect() {
      const old = client
      client = connect(options)
      if (stream) leave(stream)
      else old.close()
    },
    close() {
      isClosed = true
      stream?.call.cancel()
      client.close()
    },
  }
}

/** grpc.health.v1.Health/Check of the server as a whole: an empty request, and a response whose field 1 is the status. */
function checkHealth(client: grpc.Client): Promise<boolean> {
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      '/grpc.health.v1.Health/Check',
      (empty: Buffer) => empty,
      (bytes) => bytes.equals(SERVING),
      Buffer.alloc(0),
      { deadline: Date.now() + HEALTH_TIMEOUT_MS },
      (error, isServing) => resolve(error === null && isServing === true),
    )
  })
}

function* inBatches(calls: readonly MultiplexedCall[]): Generator<MultiplexedCall[]> {
  let batch: MultiplexedCall[] = []
  let bytes = 0
  for (const call of calls) {
    const size = call.request.length + CALL_OVERHEAD_BYTES
    if (bytes + size > BATCH_BYTES && batch.length > 0) {
      yield batch
      batch = []
      bytes = 0
    }
    batch.push(call)
    bytes += size
  }
  if (batch.length > 0) yield batch
}

const noHeaders = new Headers()

function toConnectError(result: MultiplexedResult): ConnectError {
  const failure = result.outcome.case === 'failure' ? result.outcome.value : undefined
  const details = failure?.detail ? [{ desc: ErrorDetailSchema, value: failure.detail }] : []
  return new ConnectError(failure?.message ?? 'no outcome', failure?.code ?? Code.Internal, undefined, details)
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
  })
}

function credentials({ address, tls }: MultiplexTransportOptions): grpc.ChannelCredentials {
  if (address.kind !== 'tls') return grpc.credentials.createInsecure()
  if (!tls) throw new Error('a TLS address needs certificates')
  const { ca, key, cert } = tls()
  return grpc.credentials.createSsl(Buffer.from(ca), Buffer.from(key), Buffer.from(cert))
}
