// One stream of MultiplexService, as its client sees it. Calls made within two turns of the event loop travel together.
import { create, type DescMethod, fromBinary, type Message, toBinary } from '@bufbuild/protobuf'
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
import { inBatches } from './batches.js'
import type { Deadline } from './deadlines.js'
import { pathOf } from './dispatcher.js'

/** A request message carries calls of up to this many bytes, or a single larger one. */
const BATCH_BYTES = 32 * 1024
/** More than the tags, lengths and numbers of a call and of its message. */
const CALL_BYTES = 64
/**
 * A connection that is not established by then is tried again. grpc-js puts no limit on an attempt, and Node may never hear
 * again of one that the other side accepts and then resets or forgets.
 */
const CONNECT_ANEW_MS = 3_000
/** Most calls are answered in a hundredth of this. That a process hangs is known for sure only when its connection breaks, seconds later. */
const SILENT_MS = 500

/** A call that has not ended. */
export interface Pending {
  readonly method: DescMethod
  /** Not encoded yet. */
  readonly request: Message
  readonly requestId: string
  readonly traceparent: string
  readonly deadline: Deadline
  readonly onSettled: () => void
  readonly resolve: (message: Message) => void
  readonly reject: (error: unknown) => void
  stream: MultiplexStream
  /** Its id on that stream. */
  id: number
  timesSent: number
}

interface StreamOptions {
  /** Its address, for messages. */
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
export class MultiplexStream {
  /**
   * By id. Not a Map: its table is copied after as many deletions as it has room, and what the garbage collector has once moved to
   * the old generation keeps every later table alive, with the requests in it.
   */
  readonly pending: Record<number, Pending> = {}
  #nextId = 0
  readonly client: grpc.Client
  /** Fulfils when the server has taken the stream, with undefined, or when it has ended. */
  readonly taken: Promise<grpc.StatusObject | undefined>
  readonly peer: string
  #size = 0
  readonly #options: StreamOptions
  /** Takes MultiplexRequests as bytes. */
  readonly #call: grpc.ClientDuplexStream<Buffer, MultiplexResponse>
  /** Calls not sent yet; at first they wait for the connection. */
  #unsent: Pending[] = []
  #isScheduled = false
  #isConnected = false
  /** Since when no answer was heard although calls were sent, by performance.now(). */
  #silentSinceMs: number | undefined
  #isDraining = false

  constructor(client: grpc.Client, options: StreamOptions) {
    const { multiplex } = MultiplexService.method
    this.client = client
    this.peer = options.peer
    this.#options = options
    this.#call = client.makeBidiStreamRequest(
      pathOf(multiplex),
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => fromBinary(multiplex.output, bytes),
      new grpc.Metadata({ waitForReady: true }),
    )
    const connecting = setTimeout(options.onNotConnected, CONNECT_ANEW_MS).unref()
    this.taken = new Promise((resolve) => {
      this.#call.once('metadata', () => resolve(undefined))
      this.#call.once('status', resolve)
    })
    this.#call.on('metadata', () => {
      clearTimeout(connecting)
      this.#isConnected = true
      options.onConnected()
      this.#flush()
    })
    this.#call.on('data', (response: MultiplexResponse) => {
      if (response.results.some(isAnswer)) this.#silentSinceMs = undefined
      options.onResponse(response)
    })
    this.#call.on('error', () => undefined) // `status` follows and says the same
    this.#call.on('status', (status: grpc.StatusObject) => {
      clearTimeout(connecting)
      this.#isConnected = false
      options.onEnded(status)
    })
  }

  send(pending: Pending): void {
    pending.id = this.#nextId
    this.#nextId = (this.#nextId + 1) >>> 0 // a uint32
    pending.stream = this
    this.pending[pending.id] = pending
    this.#size += 1
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

  /** The pending calls, which are another stream's from now on. */
  take(): Pending[] {
    const calls = this.calls()
    for (const pending of calls) this.forget(pending)
    this.#unsent = []
    return calls
  }

  /** How many they are. */
  get size(): number {
    return this.#size
  }

  get isConnected(): boolean {
    return this.#isConnected
  }

  /** Nothing is heard for so long that calls which can go elsewhere better do. */
  get isSilent(): boolean {
    return this.#silentSinceMs !== undefined && performance.now() - this.#silentSinceMs > SILENT_MS
  }

  forget({ id }: Pending): void {
    if (this.pending[id] === undefined) return // it was forgotten before
    delete this.pending[id]
    this.#size -= 1
  }

  /** The process has said that it serves; calls that it has not answered say more. */
  endSilence(): void {
    if (this.#size === 0) this.#silentSinceMs = undefined
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
    if (this.#isDraining && this.#size === 0) this.#call.end()
  }

  cancel(): void {
    this.#call.cancel()
  }

  /** Sends what is not sent yet and still wanted, in messages that the server accepts. */
  #flush(): void {
    if (!this.#isConnected) return
    const sentMs = performance.now()
    const calls = this.#unsent.filter(({ id, deadline }) => this.pending[id] && sentMs < deadline.atMs)
    this.#unsent = []
    const encoded = calls.flatMap((pending) => this.#encoded(pending, sentMs) ?? [])
    const maxBytes = Math.min(BATCH_BYTES, this.#options.maxRequestBytes)
    if (encoded.length > 0) this.#silentSinceMs ??= sentMs
    for (const batch of inBatches(encoded, { maxBytes, sizeOf })) this.#write(batch)
    this.endWhenDrained()
  }

  /** undefined when it cannot be sent, of which its caller is told. */
  #encoded(pending: Pending, sentMs: number): MultiplexedCall | undefined {
    const { id, method, request, requestId, traceparent } = pending
    pending.timesSent += 1
    try {
      return {
        $typeName: 'surveyauth.internal.v1.MultiplexedCall',
        id,
        method: pathOf(method),
        request: toBinary(method.input, request),
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

/** A service whose database hangs says after seconds that it cannot answer. */
function isAnswer({ outcome }: MultiplexedResult): boolean {
  return outcome.case !== 'failure' || outcome.value.code !== Code.Unavailable
}

/** At least as many bytes as the call takes in a message, with what the message has besides; its texts are ASCII. */
function sizeOf({ method, request, requestId, traceparent }: MultiplexedCall): number {
  return method.length + request.length + requestId.length + traceparent.length + CALL_BYTES
}
