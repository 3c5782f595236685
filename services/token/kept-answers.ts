// Answers about access tokens, kept by a process that asks a TokenService in another. None is used before the service has
// said, after the request came, that it still holds: so a revocation holds from the very next request on. The service is
// asked once for all requests of a turn of the event loop, in a few bytes for each.
import { hash } from 'node:crypto'
import { create, type DescMethod, type Message } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import {
  type GetAuthorizedUserRequest,
  type GetAuthorizedUserResponse,
  TokenService,
  type VerifyAccessTokenRequest,
  type VerifyAccessTokenResponse,
} from '../../gen/surveyauth/v1/token_service_pb.js'
import { BoundedMap } from '../rpc/bounded-map.js'
import type { Invoke, Outgoing } from '../rpc/client.js'

const { getAuthorizedUser, revalidateAnswers, verifyAccessToken } = TokenService.method

type Request = GetAuthorizedUserRequest | VerifyAccessTokenRequest
type Response = GetAuthorizedUserResponse | VerifyAccessTokenResponse

/** Of memory, for what is kept: some 30,000 answers. */
const MAX_BYTES = 32 * 1024 * 1024
const ANSWER_BYTES = 900 // without its texts
/** What the service takes in one call. */
const MAX_TOGETHER = 500
const NONE = new Uint8Array()

interface Answer {
  /** Without its validator, which would keep all that it came with. */
  readonly message: Response
  readonly validator: Uint8Array
}

/** Calls as `invoke` makes them, to a TokenService. Answers are passed by reference: nobody may change them. */
export function keepingAnswers(invoke: Invoke): Invoke {
  const kept = new BoundedMap<Answer>(MAX_BYTES)
  const revalidation = new Revalidation(invoke)

  async function ask(method: DescMethod, request: Request, call: Outgoing): Promise<Response> {
    const key = keyOf(method, request)
    const known = kept.get(key)
    let left = call
    if (known) {
      const startedAt = performance.now()
      const { at, changed } = revalidation.add(known.validator, call)
      if (!(await changed).has(at)) return known.message
      kept.delete(key)
      left = { ...call, timeoutMs: call.timeoutMs && Math.max(1, call.timeoutMs - (performance.now() - startedAt)) }
    }
    const message = (await invoke(method, { ...request, wantsValidator: true } as Request, left)) as Response
    const answer = answerOf(message)
    if (answer.validator.length > 0) kept.keep(key, answer, sizeOf(message))
    return answer.message
  }

  // A request that is traced shows each of its calls.
  const mayKeep = (method: DescMethod, { traceparent }: Outgoing) =>
    (method === getAuthorizedUser || method === verifyAccessToken) && traceparent === ''

  const keeping = (method: DescMethod, request: Message, call: Outgoing): Promise<Message> =>
    mayKeep(method, call) ? ask(method, request as Request, call) : invoke(method, request, call)
  return keeping as Invoke
}

/** No field of a call that was answered holds U+0000. */
function keyOf({ name }: DescMethod, { accessToken, openid, appid }: Request): string {
  return hash('sha256', `${name}\0${accessToken}\0${openid}\0${appid}`, 'binary')
}

function answerOf(message: Response): Answer {
  return { message: { ...message, validator: NONE }, validator: new Uint8Array(message.validator) }
}

function sizeOf(message: Response): number {
  const texts = Object.values(message).filter((value) => typeof value === 'string')
  return ANSWER_BYTES + 2 * texts.join('').length
}

/** Asks whether answers still hold, those of one turn of the event loop together. */
class Revalidation {
  readonly #invoke: Invoke
  /** Not sent yet. */
  #next: { readonly validators: Uint8Array[]; readonly changed: Promise<ReadonlySet<number>> } | undefined

  constructor(invoke: Invoke) {
    this.#invoke = invoke
  }

  /** It holds unless its place is among those that `changed`, as of a moment after this was called; that may be rejected. */
  add(validator: Uint8Array, call: Outgoing): { readonly at: number; readonly changed: Promise<ReadonlySet<number>> } {
    this.#next ??= this.#begin(call)
    const { validators, changed } = this.#next
    const at = validators.push(validator) - 1
    if (validators.length === MAX_TOGETHER) this.#next = undefined
    return { at, changed }
  }

  /** With the id and the time of the first of them. */
  #begin({ requestId, timeoutMs }: Outgoing) {
    const validators: Uint8Array[] = []
    const call: Outgoing = { requestId, traceparent: '', timeoutMs, signal: undefined }
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
      const answer = await this.#invoke(revalidateAnswers, create(revalidateAnswers.input, { validators }), call)
      return new Set(answer.changed)
    } catch (error) {
      const { code } = ConnectError.from(error)
      if (code === Code.Unavailable || code === Code.DeadlineExceeded) throw error
      // What is wrong with one call is told to one, and a service of an earlier version does not know this one.
      return new Set(validators.keys())
    }
  }
}
