// Answers kept by a process that asks a service in another. None is used before the service has said, after the request
// came, that it still holds: so what ends or changes it holds from the very next request on. The service is asked once for
// all requests of a turn of the event loop, in a few bytes for each.
import { hash } from 'node:crypto'
import { create, type DescField, type DescMethod, type Message } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import type { RevalidateSurveysRequest, RevalidateSurveysResponse } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { RevalidateAnswersRequest, RevalidateAnswersResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { BoundedMap } from '../bounded-map.js'
import type { Invoke, Outgoing } from './client.js'

/** Of memory, for what is kept of one service: some 60,000 users or 4,000 surveys. */
const MAX_BYTES = 64 * 1024 * 1024
const ENTRY_BYTES = 500
/** What a service takes in one call. */
const MAX_TOGETHER = 500
const NONE = new Uint8Array()

/** A request of a method whose answers can be kept, and such an answer. */
type Request = Message & { readonly wantsValidator: boolean }
type Response = Message & { readonly validator: Uint8Array }

type RevalidateRequest = RevalidateAnswersRequest | RevalidateSurveysRequest
type RevalidateResponse = RevalidateAnswersResponse | RevalidateSurveysResponse

interface Answer {
  /** Without its validator, which would keep all that it came with. */
  readonly message: Response
  readonly validator: Uint8Array
}

/**
 * Calls as `invoke` makes them, to the service of `revalidate`. Kept are the answers of those of its methods whose requests
 * can want a validator. Answers are passed by reference: nobody may change them.
 */
export function keepingAnswers(invoke: Invoke, revalidate: DescMethod): Invoke {
  const kept = new BoundedMap<Answer>(MAX_BYTES)
  const revalidation = new Revalidation(invoke, revalidate)
  /** Of each method that can be kept, the fields that its answer depends on. */
  const fields = new Map<DescMethod, readonly string[]>()
  for (const method of revalidate.parent.methods) {
    const { wantsValidator, ...others } = method.input.field
    if (wantsValidator) fields.set(method, Object.values(others).map(nameOfScalar))
  }

  async function ask(method: DescMethod, key: string, request: Request, call: Outgoing): Promise<Response> {
    const known = kept.get(key)
    let left = call
    if (known) {
      const startedAt = performance.now()
      const { at, changed } = revalidation.add(known.validator, call)
      if (!(await changed).has(at)) return given(known, request)
      kept.delete(key)
      left = { ...call, timeoutMs: call.timeoutMs && Math.max(1, call.timeoutMs - (performance.now() - startedAt)) }
    }
    const message = (await invoke(method, { ...request, wantsValidator: true } as Message, left)) as Response
    const answer = answerOf(message)
    if (answer.validator.length > 0) kept.keep(key, answer, sizeOf(answer.message))
    return given(answer, request)
  }

  const keeping = (method: DescMethod, request: Message, call: Outgoing): Promise<Message> => {
    const names = fields.get(method)
    if (names === undefined || isTraced(call)) return invoke(method, request, call)
    return ask(method, answerKey(method, names, request), request as Request, call)
  }
  return keeping as Invoke
}

/** A request whose spans are recorded shows each of its calls: of W3C trace context, the last bit says so. */
function isTraced({ traceparent }: Outgoing): boolean {
  return (Number.parseInt(traceparent.slice(53, 55), 16) & 1) === 1
}

/** No field of a call that was answered holds U+0000. */
function answerKey({ name }: DescMethod, names: readonly string[], request: Message): string {
  let key = name
  for (const field of names) key += `\0${(request as unknown as Record<string, unknown>)[field]}`
  return hash('sha256', key, 'binary')
}

function nameOfScalar({ fieldKind, localName }: DescField): string {
  if (fieldKind !== 'scalar') throw new Error(`${localName} cannot be part of a key`)
  return localName
}

function answerOf(message: Response): Answer {
  return { message: { ...message, validator: NONE }, validator: new Uint8Array(message.validator) }
}

function given({ message, validator }: Answer, { wantsValidator }: Request): Response {
  return wantsValidator ? { ...message, validator } : message
}

/** Of parts that messages share. */
const sizes = new WeakMap<object, number>()

/** What a message takes with the JSON that is made of it: measured, between two thirds and one and a half of it. */
function sizeOf(message: Response): number {
  return Object.values(message).reduce((sum: number, part) => sum + sizeOfPart(part), ENTRY_BYTES)
}

function sizeOfPart(part: unknown): number {
  if (typeof part !== 'object' || part === null) return sizeOfValue(part)
  const known = sizes.get(part)
  if (known !== undefined) return known
  const size = sizeOfValue(part)
  sizes.set(part, size)
  return size
}

function sizeOfValue(value: unknown): number {
  if (typeof value === 'string') return 16 + 2 * value.length
  if (typeof value !== 'object' || value === null) return 16
  if (value instanceof Uint8Array) return 100 + value.length
  return Object.values(value).reduce((sum: number, part) => sum + sizeOfValue(part), 112)
}

/** Asks whether answers still hold, those of one turn of the event loop together. */
class Revalidation {
  readonly #invoke: Invoke
  readonly #method: DescMethod
  /** Not sent yet. */
  #next: { readonly validators: Uint8Array[]; readonly changed: Promise<ReadonlySet<number>> } | undefined

  constructor(invoke: Invoke, method: DescMethod) {
    this.#invoke = invoke
    this.#method = method
  }

  /** It holds unless its place is among those that `changed`, as of a moment after this was called; that may be rejected. */
  add(validator: Uint8Array, call: Outgoing): { readonly at: number; readonly changed: Promise<ReadonlySet<number>> } {
    this.#next ??= this.#begin(call)
    const { validators, changed } = this.#next
    const at = validators.push(validator) - 1
    if (validators.length === MAX_TOGETHER) this.#next = undefined
    return { at, changed }
  }

  /** With the id, the time and the trace of the first of them. */
  #begin({ requestId, traceparent, timeoutMs }: Outgoing) {
    const validators: Uint8Array[] = []
    const call: Outgoing = { requestId, traceparent, timeoutMs, signal: undefined }
    const changed = new Promise<ReadonlySet<number>>((resolve) => {
      setImmediate(() => {
        if (this.#next?.validators === validators) this.#next = undefined
        resolve(this.#changedOf(validators, call))
      })
    })
    return { validators, changed }
  }

  async #changedOf(validators: Uint8Array[], call: Outgoing): Promise<ReadonlySet<number>> {
    try {
      const request = create(this.#method.input, { validators } as Partial<RevalidateRequest>)
      const { changed } = (await this.#invoke(this.#method, request, call)) as RevalidateResponse
      return new Set(changed)
    } catch (error) {
      const { code } = ConnectError.from(error)
      if (code === Code.Unavailable || code === Code.DeadlineExceeded) throw error
      // What is wrong with one call is told to one, and a service of an earlier version does not know this one.
      return new Set(validators.keys())
    }
  }
}
