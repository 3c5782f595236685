// Services in other processes.
import { create, type DescMethod } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { HeldLease } from '../../services/answers/held-lease.js'
import { type KeepingOptions, keepingAnswers } from '../../services/answers/kept-answers.js'
import { type Address, formatAddress } from '../../services/rpc/address.js'
import { type Caller, mayCall } from '../../services/rpc/callers.js'
import type { Invoke } from '../../services/rpc/client.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import type { Config } from '../config.js'
import type { Part } from './part.js'
import { readTls } from './tls.js'

/** Largest answer: a page of surveys in full. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024
const ROLE_TIMEOUT_MS = 1_000

/** What says whether answers that are kept still hold. */
export const REVALIDATE = {
  token: TokenService.method.revalidateAnswers,
  survey: SurveyService.method.revalidateSurveys,
}

/** What people and apps wait for in crowds and a commit writes. */
const COMMITTED = [
  TokenService.method.issueCode,
  TokenService.method.exchangeCode,
  TokenService.method.refreshAccessToken,
]

export interface Remote extends Part {
  /** Where it is, for messages. */
  readonly url: string
  readonly invoke: Invoke
  /** A gateway's, on what a service on this machine answers; elsewhere a clock may stop while ours goes on. */
  readonly lease: HeldLease | undefined
  /** Uses the certificates as they are now for calls from now on. */
  reconnect(): void
}

export interface KeepingSetup extends Pick<KeepingOptions, 'now' | 'onHeld'> {
  /** As of Overrides. */
  readonly leaseWorthWanted?: number | undefined
}

export interface RemoteOptions extends KeepingSetup {
  /** That to which the process makes calls of its own before it answers. */
  readonly behind?: Remote | undefined
}

/** A connection of `caller` to the process at `address`; it is made when first needed and made again whenever it breaks. */
export function connectTo(
  service: keyof typeof REVALIDATE,
  address: Address,
  config: Config,
  caller: Caller,
  { behind, leaseWorthWanted, ...keeping }: RemoteOptions = {},
): Remote {
  const transport = new MultiplexTransport({
    address,
    tls: address.kind === 'tls' ? () => readTls(config) : undefined,
    maxRequestBytes: service === 'survey' ? config.rpcMaxSurveyRequestBytes : config.rpcMaxRequestBytes,
    maxResponseBytes: MAX_RESPONSE_BYTES,
    defaultTimeoutMs: config.rpcTimeoutMs,
    patient: COMMITTED,
  })
  const url = formatAddress(address)
  const lease = behind?.url === url ? behind.lease : leaseOn(address, caller, transport.invoke, leaseWorthWanted)
  const needed = [...new Set(behind ? [behind.lease, lease] : [lease])]
  return {
    url,
    invoke: keepingAnswers(transport.invoke, REVALIDATE[service], {
      ...keeping,
      leases: needed.every((each) => each !== undefined) ? needed : [],
    }),
    lease,
    async absent() {
      let cause = await transport.whyNotServing()
      if (address.kind === 'tls') cause ??= await whyNotAllowed(transport.invoke, caller, REVALIDATE[service])
      return cause === undefined ? [] : [{ what: `${service} service at ${formatAddress(address)}`, cause }]
    },
    reconnect: () => transport.reconnect(),
    async close() {
      transport.close()
    },
  }
}

/** A service that asks for a gateway passes validators on, which a lease says nothing of. */
function leaseOn(
  { kind }: Address,
  caller: Caller,
  invoke: Invoke,
  worthWanted: number | undefined,
): HeldLease | undefined {
  return caller === 'gateway' && kind !== 'tls' ? new HeldLease(invoke, worthWanted) : undefined
}

/**
 * Health answers anybody. Over TLS, where alone callers have roles, this asks a method of our role about nothing, to learn
 * whether the peer knows us by it; undefined when it does, or when that cannot be said.
 */
async function whyNotAllowed(invoke: Invoke, caller: Caller, method: DescMethod): Promise<string | undefined> {
  if (!mayCall(caller, method)) return undefined
  const call = { requestId: '', traceparent: '', timeoutMs: ROLE_TIMEOUT_MS }
  return invoke(method, create(method.input), call).then(
    () => undefined,
    (error: unknown) =>
      ConnectError.from(error).code === Code.PermissionDenied
        ? `it does not know this process as ${caller}: see RPC_CALLERS there`
        : undefined,
  )
}
