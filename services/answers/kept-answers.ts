// Answers kept by the caller of a service, in another process or its own. One is used only if it is known to hold at a moment
// after the request arrived, so whatever ends or changes it takes effect from the very next request on. Either a lease says so,
// or the service is asked, once for many requests, in a few bytes for each.
import { hash } from 'node:crypto'
import { create, type DescField, type DescMethod, type Message } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { whenAllWentOn } from '../../event-loop/end-of-turn.js'
import type { RevalidateSurveysRequest, RevalidateSurveysResponse } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { RevalidateAnswersRequest, RevalidateAnswersResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { BoundedMap } from '../collections/bounded-map.js'
import { onceForEach } from '../collections/once-for-each.js'
import type { Invoke, Outgoing } from '../rpc/client.js'
import type { HeldLease, LeasedRun } from './held-lease.js'

/** Memory for the answers kept of one service: some 60,000 users or 4,000 surveys. */
const MAX_BYTES = 64 * 1024 * 1024
const ENTRY_BYTES = 500
/** Validators a service accepts in one call. */
const MAX_TOGETHER = 500
/** How long a question waits for the answer to the one before it, or for more to ask about. */
const MAX_WAIT_MS = 1
/** After this long an answer in use is asked about again, so that its last use is right to the minute. */
const ASKED_AGAIN_AFTER_MS = 20_000
/** How long such a question, for which nobody waits, gathers answers to ask about. */
const GATHERED_MS = 1_000
const NONE = new Uint8Array()

/** A request of a method whose answers can be kept, and such an answer. */
type Request = Message & { readonly wantsValidator: boolean }
type Response = Message & { readonly validator: Uint8Array }

type RevalidateRequest = RevalidateAnswersRequest | RevalidateSurveysRequest
type RevalidateResponse = RevalidateAnswersResponse | RevalidateSurveysResponse

interface Answer {
  /** Without its validator, which would keep everything it came with in memory. */
  readonly message: Response
  readonly validator: Uint8Array
  /** As the service gave them when it was last asked. */
  terms: Terms | undefined
}

/** Terms under which an answer holds without asking: until `endsAtMs`, while all the leases say that nothing has changed. */
interface Terms {
  readonly restsOn: readonly { readonly run: LeasedRun; readonly state: number }[]
  readonly stripe: number
  readonly endsAtMs: number
  /** From when on the answer should be asked about again, though it still holds. */
  askAgainAtMs: number
}

export interface KeepingOptions {
  /** The leases that an answer can rest on: that of the service which the service itself asks, if any, then its own. */
  readonly leases?: readonly HeldLease[]
  /** ms since 1970 UTC, of the clock by which the service judges what has expired. */
  readonly now?: (() => number) | undefined
  /** Called for each answer that was given and not asked about. */
  readonly onHeld?: (() => void) | undefined
}

/**
 * Makes calls to the service of `revalidate` through `invoke`, and keeps the answers of those of its methods whose requests can
 * ask for a validator. Answers are passed by reference: nobody may change them.
 */
export function keepingAnswers(
  invoke: Invoke,
  revalidate: DescMethod,
  { leases = [], now = Date.now, onHeld }: KeepingOptions = {},
): Invoke {
  const kept = new BoundedMap<Answer>(MAX_BYTES)
  const asking = { invoke, method: revalidate, leases, now }
  const revalidation = new Revalidation(asking)
  const later = new Revalidation({ ...asking, gatheredMs: GATHERED_MS })
  /** For each method whose answers can be kept, the request fields that an answer depends on. */
  const fields = new Map<DescMethod, readonly string[]>()
  for (const method of revalidate.parent.methods) {
    const { wantsValidator, ...others } = method.input.field
    if (wantsValidator) fields.set(method, Object.values(others).map(nameOfScalar))
  }

  /** Asks without anybody waiting: the answer holds meanwhile, or until its terms end. */
  function askAgain(key: string, known: Answer, terms: Terms, call: Outgoing): void {
    terms.askAgainAtMs = now() + ASKED_AGAIN_AFTER_MS
    const { at, judged } = later.add(known.validator, { ...call, timeoutMs: undefined })
    judged.then(
      ({ changed, termsOf }) => {
        if (!changed.has(at)) known.terms = termsOf(at) ?? terms
        else if (kept.get(key) === known) kept.delete(key)
      },
      () => undefined, // asked about when its terms end
    )
  }

  async function ask(method: DescMethod, key: string, request: Request, call: Outgoing): Promise<Response> {
    const known = kept.get(key)
    let left = call
    if (known) {
      wantAll(leases)
      if (known.terms && isHeld(known.terms, now)) {
        if (now() < known.terms.askAgainAtMs) onHeld?.()
        else askAgain(key, known, known.terms, call) // which counts it as a use
        return given(known, request)
      }
      const startedAt = performance.now()
      const { at, judged } = revalidation.add(known.validator, call)
      const { changed, termsOf } = await judged
      if (!changed.has(at)) {
        known.terms = termsOf(at)
        return given(known, request)
      }
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

/** Whether the request's spans are recorded (last bit of the W3C trace context): its trace then shows each of its calls. */
function isTraced({ traceparent }: Outgoing): boolean {
  return (Number.parseInt(traceparent.slice(53, 55), 16) & 1) === 1
}

/** Fields are separated by U+0000, which no field of an answered call contains. */
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
  return { message: { ...message, validator: NONE }, validator: new Uint8Array(message.validator), terms: undefined }
}

/** One after the other: without the first, the others are of no use. */
function wantAll(leases: readonly HeldLease[]): void {
  for (const lease of leases) {
    lease.want()
    if (!lease.inForce()) return
  }
}

function isHeld(terms: Terms, now: () => number): boolean {
  return now() < terms.endsAtMs && terms.restsOn.every(({ run, state }) => run.holds(terms.stripe, state))
}

function given({ message, validator }: Answer, { wantsValidator }: Request): Response {
  return wantsValidator ? { ...message, validator } : message
}

/** Memory that a message takes with the JSON made of it: by measurement, between two thirds and one and a half of it. */
function sizeOf(message: Response): number {
  return Object.values(message).reduce((sum: number, part) => sum + sizeOfPart(part), ENTRY_BYTES)
}

function sizeOfPart(part: unknown): number {
  return typeof part === 'object' && part !== null ? sizeOfObject(part) : sizeOfValue(part)
}

/** Once for each, since messages share parts. */
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
  /** With the request id, timeout and trace context of the first of them. */
  readonly call: Outgoing
  readonly judged: Promise<Judgement>
  readonly settle: (judged: Promise<Judgement>) => void
}

/** What the service says of the answers it was asked about, by their positions. */
interface Judgement {
  readonly changed: ReadonlySet<number>
  readonly termsOf: (at: number) => Terms | undefined
}

const noTerms = () => undefined

interface RevalidationOptions {
  readonly invoke: Invoke
  readonly method: DescMethod
  readonly leases: readonly HeldLease[]
  readonly now: () => number
  /** How long questions for which nobody waits gather answers. */
  readonly gatheredMs?: number
}

/**
 * Asks whether answers still hold, about all of one turn of the event loop together. While a question is unanswered, the next
 * waits until it is answered, or until as many have gathered as it asked about, since a message costs as much as some ten
 * validators. So a lone request never waits, and half of a crowd is asked about while the other half gathers.
 */
class Revalidation {
  readonly #options: RevalidationOptions
  /** The question not asked yet. */
  #next: Question | undefined
  /** Number of validators that were sent and are not answered. */
  #unanswered = 0
  #isLookedAt = false

  constructor(options: RevalidationOptions) {
    this.#options = options
  }

  /** The answer holds, as of a moment after this call, unless `at` is among the positions that changed; `judged` may reject. */
  add(validator: Uint8Array, call: Outgoing): { readonly at: number; readonly judged: Promise<Judgement> } {
    this.#next ??= questionOf(call)
    const question = this.#next
    const at = question.validators.push(validator) - 1
    if (at === 0) this.#askAfterAll(question)
    if (at + 1 === MAX_TOGETHER) this.#ask(question)
    else this.#look()
    return { at, judged: question.judged }
  }

  #askAfterAll(question: Question): void {
    const { gatheredMs } = this.#options
    const timer = setTimeout(() => this.#ask(question), gatheredMs ?? MAX_WAIT_MS)
    if (gatheredMs !== undefined) timer.unref() // it does not keep the process alive
  }

  /** At the end of the turn, so that everything that comes in it is included. */
  #look(): void {
    if (this.#isLookedAt || this.#options.gatheredMs !== undefined) return
    this.#isLookedAt = true
    whenAllWentOn(() => {
      this.#isLookedAt = false
      if (this.#next && this.#next.validators.length >= this.#unanswered) this.#ask(this.#next)
    })
  }

  /** No effect the second time. */
  #ask(question: Question): void {
    if (this.#next !== question) return
    this.#next = undefined
    const { length } = question.validators
    this.#unanswered += length
    const answered = () => {
      this.#unanswered -= length
      this.#look()
    }
    const judged = this.#judge(question)
    judged.then(answered, answered)
    question.settle(judged)
  }

  async #judge({ validators, call }: Question): Promise<Judgement> {
    const { invoke, method, leases, now } = this.#options
    const sentAtMs = now()
    const wantsLeaseTerms = leases.length > 0 && leases.every((lease) => lease.inForce())
    try {
      const request = create(method.input, { validators, wantsLeaseTerms } as Partial<RevalidateRequest>)
      const response = (await invoke(method, request, call)) as RevalidateResponse
      return { changed: new Set(response.changed), termsOf: this.#termsOf(response, sentAtMs) }
    } catch (error) {
      const { code } = ConnectError.from(error)
      if (code === Code.Unavailable || code === Code.DeadlineExceeded) throw error
      // All are then asked for by ordinary calls: the error may be due to one only, or to a version that lacks this method.
      return { changed: new Set(validators.keys()), termsOf: noTerms }
    }
  }

  /** No terms where a lease is missing. */
  #termsOf({ holdsMs, runs, states, stripes }: RevalidateResponse, sentAtMs: number): Judgement['termsOf'] {
    if (holdsMs === 0 || runs.length === 0) return noTerms
    const leased = this.#options.leases.flatMap((lease) => lease.inForce() ?? [])
    const restsOn = runs.flatMap((name, at) => {
      const run = leased.find((each) => each.run === name)
      return run ? [{ run, state: Number(states[at]) }] : []
    })
    if (restsOn.length < runs.length) return noTerms
    const endsAtMs = sentAtMs + holdsMs
    const askAgainAtMs = sentAtMs + ASKED_AGAIN_AFTER_MS
    return (at) => {
      const stripe = stripes[at]
      return stripe === undefined ? undefined : { restsOn, stripe, endsAtMs, askAgainAtMs }
    }
  }
}

function questionOf(call: Outgoing): Question {
  let settle: Question['settle'] = () => undefined
  const judged = new Promise<Judgement>((resolve) => {
    settle = resolve
  })
  return { validators: [], call, judged, settle }
}
