// The dispatcher: every RPC of every door passes through here, and nothing else does what it does.
// It owns the order of the checks around a handler; it knows nothing of transports, tokens or stores.
import { randomUUID } from 'node:crypto'
import {
  create,
  type DescMethod,
  type DescService,
  type Message,
  type MessageInitShape,
  type MessageShape,
} from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { StoreUnavailable } from '../storage/store-unavailable.js'
import { CALLERS, type Caller } from './callers.js'
import { Deadlines } from './deadlines.js'
import { ofStore, ServiceError, toConnectError } from './service-error.js'
import { compileRules, type Validate, violationInWords } from './validation.js'

/** What a door knows of a call besides its request. */
export interface IncomingCall {
  /** Who calls, as the door established it. */
  readonly caller: Caller
  /** As in Peer: for the audit trail. */
  readonly callerName: string
  /** UUID of the request this call belongs to; the same from the gateway's answer to the audit event. */
  readonly requestId: string
  /** W3C trace context of the caller; empty if there is none. */
  readonly traceparent: string
  /** Aborted when the deadline passes or the caller goes away; the caller then does not know the outcome of the call. */
  readonly signal: AbortSignal | undefined
}

/** What a handler knows of a call. */
export interface Call extends IncomingCall {
  /** By performance.now(): when the caller is told that the call failed, unless it has ended by then. */
  readonly deadlineMs: number
}

/** Handlers of a service: one function per RPC, over protobuf messages, registered once for all doors. */
export type Handlers<S extends DescService> = {
  [K in keyof S['method']]: (
    request: MessageShape<S['method'][K]['input']>,
    call: Call,
  ) => Promise<MessageInitShape<S['method'][K]['output']>>
}

/** How one call ended, for logs and metrics. Never holds a request or an answer. */
export interface CallRecord {
  /** `package.Service/Method`. */
  readonly rpc: string
  /** The last part of `rpc`. */
  readonly method: string
  readonly caller: Caller
  readonly requestId: string
  /** undefined when the call succeeded. */
  readonly code: Code | undefined
  /** undefined unless the failure was an expected one. */
  readonly reason: ErrorReason | undefined
  readonly durationMs: number
}

/** `service`: its full name. Where no method was known yet, that is empty and `method` says where it failed. */
export interface FailedCall {
  readonly service: string
  readonly method: string
  readonly requestId: string
}

export interface DispatcherOptions {
  /** Whether `caller` may call `method`, asked once for each; default deny is the table's business. */
  readonly mayCall: (caller: Caller, method: DescMethod) => boolean
  /** Called once per call, when it has ended. */
  readonly onCall: (record: CallRecord) => void
  /** Called once per unexpected failure, with what was thrown. */
  readonly onUnexpected: (error: unknown, call: FailedCall) => void
  /** Called for each call that failed because the database of its service is unavailable. */
  readonly onUnavailable?: ((error: StoreUnavailable, call: FailedCall) => void) | undefined
  /** Starts a span for a call, as a child of `traceparent` if that is valid; undefined when nobody records spans. */
  readonly startSpan?:
    | ((
        service: string,
        method: string,
        traceparent: string,
      ) => { readonly traceparent: string; end(record: CallRecord): void })
    | undefined
  /** Longest time a call may take, in ms; a caller's own deadline only shortens it. */
  readonly maxDeadlineMs?: number
}

const MAX_DEADLINE_MS = 30_000

/** gRPC's and Connect's servers have timers of their own for a call's deadline, which may abort it this many ms before ours passes. */
const DOOR_MS = 10

/** Callers that run the services, or could open the databases as well: they are told why a database is unavailable. */
const MAY_KNOW: ReadonlySet<Caller> = new Set(['operator', 'local'])

/** The message of every unexpected failure, whatever it was. */
const INTERNAL = 'internal error'

interface Served {
  readonly handler: AnyHandler
  readonly callers: readonly Caller[]
  readonly validate: Validate<Message>
}

type AnyHandler = (request: never, call: Call) => Promise<object>

export class Dispatcher {
  readonly #methods = new Map<DescMethod, Served>()
  readonly #services: DescService[] = []
  readonly #deadlines = new Deadlines()
  readonly #options: DispatcherOptions

  constructor(options: DispatcherOptions) {
    this.#options = options
  }

  /** Registered services, for doors that list them, as health checks do. */
  get services(): readonly DescService[] {
    return this.#services
  }

  register<S extends DescService>(service: S, handlers: Handlers<S>): this {
    this.#services.push(service)
    for (const method of service.methods) {
      const handler = handlers[method.localName as keyof Handlers<S>] as AnyHandler
      const callers = CALLERS.filter((caller) => this.#options.mayCall(caller, method))
      this.#methods.set(method, { handler, callers, validate: compileRules(method.input) })
    }
    return this
  }

  /**
   * Runs one unary call: known method, allowed caller, valid request, handler under a deadline, translated failure.
   * @throws ConnectError only.
   */
  async call<M extends DescMethod>(
    method: M,
    request: MessageShape<M['input']>,
    call: IncomingCall,
    timeoutMs = Number.POSITIVE_INFINITY,
  ): Promise<MessageShape<M['output']>> {
    const startedAt = performance.now()
    const deadlineMs = startedAt + Math.min(timeoutMs, this.#options.maxDeadlineMs ?? MAX_DEADLINE_MS)
    const span = this.#options.startSpan?.(method.parent.typeName, method.name, call.traceparent)
    const { caller, callerName, requestId, signal } = call
    const tell = (code: Code | undefined, reason: ErrorReason | undefined) => {
      const durationMs = performance.now() - startedAt
      const record = { rpc: nameOf(method), method: method.name, caller, requestId, code, reason, durationMs }
      this.#options.onCall(record)
      span?.end(record)
    }
    let response: MessageShape<M['output']>
    try {
      const traceparent = span?.traceparent ?? call.traceparent
      const work = this.#begin(method, request, { caller, callerName, requestId, traceparent, signal, deadlineMs })
      response = create(method.output, (await this.#inTime(work, deadlineMs, signal)) as never) as typeof response
    } catch (thrown) {
      const error = ofStore(thrown)
      if (thrown instanceof StoreUnavailable) this.#options.onUnavailable?.(thrown, failedCall(method, call))
      const failure = this.#translate(error, method, call)
      tell(failure.code, error instanceof ServiceError ? error.reason : undefined)
      throw failure
    }
    tell(undefined, undefined)
    return response
  }

  /** Reports an unexpected error and returns the failure to answer with. */
  unexpected(error: unknown, method: DescMethod | undefined, call: Pick<Call, 'requestId'>): ConnectError {
    this.#options.onUnexpected(error, failedCall(method, call))
    return new ConnectError(INTERNAL, Code.Internal)
  }

  /** Reports an error that a door threw before it knew which call it was for. */
  unexpectedAtDoor(error: unknown): void {
    this.unexpected(error, undefined, { requestId: randomUUID() })
  }

  #begin(method: DescMethod, request: Message, call: Call): Promise<object> {
    const served = this.#methods.get(method)
    if (!served) throw new ConnectError(`${method.name} is not served here`, Code.Unimplemented)
    if (!served.callers.includes(call.caller)) {
      throw new ServiceError(ErrorReason.CALLER_NOT_ALLOWED, `${call.caller} may not call ${method.name}`)
    }
    const violation = served.validate(request)
    if (violation) throw new ServiceError(ErrorReason.INVALID_ARGUMENT, violationInWords(violation), { violation })
    return served.handler(request as never, call)
  }

  /** As `work` ends, unless the deadline passes or the caller goes away before that; the work itself goes on. */
  #inTime(work: Promise<object>, deadlineMs: number, signal: AbortSignal | undefined): Promise<object> {
    return new Promise((resolve, reject) => {
      const end = () => {
        deadline.isOver = true
        signal?.removeEventListener('abort', onAbort)
      }
      const pass = () => {
        end()
        reject(new ConnectError('deadline exceeded', Code.DeadlineExceeded))
      }
      const onAbort = () => {
        if (performance.now() > deadlineMs - DOOR_MS) return pass()
        end()
        reject(new ConnectError('the caller went away', Code.Canceled))
      }
      const deadline = this.#deadlines.add(deadlineMs, pass)
      if (signal?.aborted) onAbort()
      else signal?.addEventListener('abort', onAbort, { once: true })
      work.then(
        (response) => {
          end()
          resolve(response)
        },
        (error) => {
          end()
          reject(error)
        },
      )
    })
  }

  #translate(error: unknown, method: DescMethod, call: IncomingCall): ConnectError {
    if (error instanceof ServiceError) return toConnectError(error, { tellsCause: MAY_KNOW.has(call.caller) })
    if (error instanceof ConnectError) return error // our own deadline, or the answer of a service we called
    return this.unexpected(error, method, call)
  }
}

function failedCall(method: DescMethod | undefined, { requestId }: Pick<Call, 'requestId'>): FailedCall {
  return { service: method?.parent.typeName ?? '', method: method?.name ?? 'a door', requestId }
}

/** `package.Service/Method`. */
function nameOf(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`
}

export function pathOf(method: DescMethod): string {
  return `/${nameOf(method)}`
}
