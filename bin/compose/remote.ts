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

/** Methods that tell whether kept answers still hold. */
export const REVALIDATE = {
  token: TokenService.method.revalidateAnswers,
  survey: SurveyService.method.revalidateSurveys,
}

/** Methods that users and apps call in crowds, and that write in a commit. */
const COMMITTED = [
  TokenService.method.issueCode,
  TokenService.method.exchangeCode,
  TokenService.method.refreshAccessToken,
]

export interface Remote extends Part {
  /** Its address, for messages. */
  readonly url: string
  readonly invoke: Invoke
  /** A gateway's, on the answers of a service on this machine; on another machine the clock may stop while ours goes on. */
  readonly lease: HeldLease | undefined
  /** From now on, calls use the certificates as they are now. */
  reconnect(): void
}

export interface KeepingSetup extends Pick<KeepingOptions, 'now' | 'onHeld'> {
  /** See Overrides. */
  readonly leaseWorthWanted?: number | undefined
}

export interface RemoteOptions extends KeepingSetup {
  /** The process that the one at `address` itself calls before it answers. */
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

/** For gateways only: a service that calls on behalf of a gateway passes on validators, about which a lease says nothing. */
function leaseOn(
  { kind }: Address,
  caller: Caller,
  invoke: Invoke,
  worthWanted: number | undefined,
): HeldLease | undefined {
  return caller === 'gateway' && kind !== 'tls' ? new HeldLease(invoke, worthWanted) : undefined
}

/**
 * The health check answers any caller. Over TLS, where alone callers have roles, this makes an empty call to a method of our
 * role, to learn whether the peer knows us in that role; undefined when it does, or when that cannot be determined.
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
