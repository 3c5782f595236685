// Answers kept by a process that asks a service in another. None is used before the service has said, after the request
// came, that it still holds: so what ends or changes it holds from the very next request on. The service is asked once for
// many requests, in a few bytes for each.
import { hash } from 'node:crypto'
import { create, type DescField, type DescMethod, type Message } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { whenAllWentOn } from '../../event-loop/end-of-turn.js'
import type { RevalidateSurveysRequest, RevalidateSurveysResponse } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { RevalidateAnswersRequest, RevalidateAnswersResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { BoundedMap } from '../collections/bounded-map.js'
import { onceForEach } from '../collections/once-for-each.js'
import type { Invoke, Outgoing } from './client.js'

/** Of memory, for what is kept of one service: some 60,000 users or 4,000 surveys. */
const MAX_BYTES = 64 * 1024 * 1024
const ENTRY_BYTES = 500
/** What a service takes in one call. */
const MAX_TOGETHER = 500
/** How long a question waits for the answer to the one before it, or for more to ask. */
const MAX_WAIT_MS = 1
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
      left = { ...call, timeoutMs: call.timeoutMs && call.timeoutMs - (performance.now() - startedAt) }
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

/** What a message takes with the JSON that is made of it: measured, between two thirds and one and a half of it. */
function sizeOf(message: Response): number {
  return Object.values(message).reduce((sum: number, part) => sum + sizeOfPart(part), ENTRY_BYTES)
}

function sizeOfPart(part: unknown): number {
  return typeof part === 'object' && part !== null ? sizeOfObject(part) : sizeOfValue(part)
}

/** Messages share parts. */
const sizeOfObject = onceForEach((part: object) => sizeOfValue(part))

function sizeOfValue(value: unknown): number {
  if (typeof value === 'string') return 16 + 2 * value.length
  if (typeof value !== 'object' || value === null) return 16
  if (value instanceof Uint8Array) return 100 + value.length
  return Object.values(value).reduce((sum: number, part) => sum + sizeOfValue(part), 112)
}

/** What the service is asked in one call. */
interface Question {
  readonly validators: Uint8Array[]
  /** With the id, the time and the trace of the first of them. */
  readonly call: Outgoing
  readonly changed: Promise<ReadonlySet<number>>
  readonly settle: (changed: Promise<ReadonlySet<number>>) => void
}

/**
 * Asks whether answers still hold, about those of one turn of the event loop together. While the service has not answered,
 * fewer than it was asked about wait for it or for others to come, since a message costs as much as some ten validators: who
 * is alone never waits, and of a crowd half is asked about while the other half gathers.
 */
class Revalidation {
  readonly #invoke: Invoke
  readonly #method: DescMethod
  /** Not asked yet. */
  #next: Question | undefined
  /** Validators that were sent and are not answered. */
  #unanswered = 0
  #isLookedAt = false

  constructor(invoke: Invoke, method: DescMethod) {
    this.#invoke = invoke
    this.#method = method
  }

  /** It holds unless its place is among those that `changed`, as of a moment after this was called; that may be rejected. */
  add(validator: Uint8Array, call: Outgoing): { readonly at: number; readonly changed: Promise<ReadonlySet<number>> } {
    this.#next ??= questionOf(call)
    const question = this.#next
    const at = question.validators.push(validator) - 1
    if (at === 0) setTimeout(() => this.#ask(question), MAX_WAIT_MS)
    if (at + 1 === MAX_TOGETHER) this.#ask(question)
    else this.#look()
    return { at, changed: question.changed }
  }

  /** At the end of the turn, for what comes in it. */
  #look(): void {
    if (this.#isLookedAt) return
    this.#isLookedAt = true
    whenAllWentOn(() => {
      this.#isLookedAt = false
      if (this.#next && this.#next.validators.length >= this.#unanswered) this.#ask(this.#next)
    })
  }

  /** Of no effect the second time. */
  #ask(question: Question): void {
    if (this.#next !== question) return
    this.#next = undefined
    const { length } = question.validators
    this.#unanswered += length
    const answered = () => {
      this.#unanswered -= length
      this.#look()
    }
    const changed = this.#changedOf(question)
    changed.then(answered, answered)
    question.settle(changed)
  }

  async #changedOf({ validators, call }: Question): Promise<ReadonlySet<number>> {
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

function questionOf({ requestId, traceparent, timeoutMs }: Outgoing): Question {
  let settle: Question['settle'] = () => undefined
  const changed = new Promise<ReadonlySet<number>>((resolve) => {
    settle = resolve
  })
  return { validators: [], call: { requestId, traceparent, timeoutMs, signal: undefined }, changed, settle }
}
