// Services in other processes.
import { create, type DescMethod } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Address, formatAddress } from '../../services/rpc/address.js'
import { type Caller, mayCall } from '../../services/rpc/callers.js'
import type { Invoke } from '../../services/rpc/client.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { maxRequestBytesOf } from '../../services/rpc/requests.js'
import type { Config } from '../config.js'
import type { Part } from './part.js'
import { readTls } from './tls.js'

/** Largest answer: a page of surveys in full. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024
const ROLE_TIMEOUT_MS = 1_000

/** What our processes use of each other, besides the stream that carries it. */
const SERVICES = {
  token: [TokenService, AccountService, AdminService, LimitService],
  survey: [SurveyService],
}

/** Methods of which a caller of each role may call one. All refuse an empty request. */
const PROBES = {
  token: [TokenService.method.getAuthorizedUser, TokenService.method.verifyAccessToken],
  survey: [SurveyService.method.getSurvey],
}

export interface Remote extends Part {
  /** Its address, for messages. */
  readonly url: string
  readonly invoke: Invoke
  /** From now on, calls use the certificates as they are now. */
  reconnect(): void
}

/** A connection of `caller` to the process at `address`; it is made when first needed and made again whenever it breaks. */
export function connectTo(service: keyof typeof PROBES, address: Address, config: Config, caller: Caller): Remote {
  const transport = new MultiplexTransport({
    address,
    tls: address.kind === 'tls' ? () => readTls(config) : undefined,
    maxRequestBytes: maxRequestBytesOf(service === 'survey' ? SurveyService : TokenService),
    maxResponseBytes: MAX_RESPONSE_BYTES,
    defaultTimeoutMs: config.rpcTimeoutMs,
  })
  const url = formatAddress(address)
  // Until it is known, the peer is asked besides whether it serves what we need, and over TLS, where alone callers have roles,
  // whether it knows us in ours: the health check answers any caller.
  const probe = address.kind === 'tls' ? PROBES[service].find((method) => mayCall(caller, method)) : undefined
  const needed = SERVICES[service].filter(({ methods }) => methods.some((method) => mayCall(caller, method)))
  let isKnown = false

  async function whyNotFit(): Promise<string | undefined> {
    for (const { typeName } of needed) {
      const cause = await transport.whyNotServing(typeName)
      if (cause !== undefined) return cause
    }
    const code = probe && (await codeOfEmpty(probe, transport.invoke))
    isKnown = !probe || code === Code.InvalidArgument
    if (code === Code.PermissionDenied) return `it does not know this process as ${caller}: see RPC_CALLERS there`
    return undefined
  }

  return {
    url,
    invoke: transport.invoke,
    async absent() {
      let cause = await transport.whyNotServing()
      if (cause !== undefined) isKnown = false
      else if (!isKnown) cause = await whyNotFit()
      return cause === undefined ? [] : [{ what: `${service} service at ${url}`, cause }]
    },
    reconnect() {
      isKnown = false
      transport.reconnect()
    },
    async close() {
      transport.close()
    },
  }
}

/** The code with which an empty call to the method fails; undefined if it does not. */
function codeOfEmpty(method: DescMethod, invoke: Invoke): Promise<Code | undefined> {
  const call = { requestId: '', traceparent: '', timeoutMs: ROLE_TIMEOUT_MS }
  return invoke(method, create(method.input), call).then(
    () => undefined,
    (error: unknown) => ConnectError.from(error).code,
  )
}
