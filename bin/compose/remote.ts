// Services in other processes.
import { create, type DescMethod } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
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
  // The health check answers any caller. Over TLS, where alone callers have roles, it is asked besides, until it is known,
  // whether the peer knows us in ours.
  const probe = address.kind === 'tls' ? PROBES[service].find((method) => mayCall(caller, method)) : undefined
  let isKnown = probe === undefined

  async function whyNotAllowed(method: DescMethod): Promise<string | undefined> {
    const code = await codeOfEmpty(method, transport.invoke)
    isKnown = code === Code.InvalidArgument
    if (code === Code.PermissionDenied) return `it does not know this process as ${caller}: see RPC_CALLERS there`
    return undefined
  }

  return {
    url,
    invoke: transport.invoke,
    async absent() {
      let cause = await transport.whyNotServing()
      if (cause !== undefined) isKnown = probe === undefined
      else if (probe && !isKnown) cause = await whyNotAllowed(probe)
      return cause === undefined ? [] : [{ what: `${service} service at ${url}`, cause }]
    },
    reconnect() {
      isKnown = probe === undefined
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
