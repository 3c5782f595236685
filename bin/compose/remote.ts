// Services in other processes, one or several of each.
import { setTimeout as sleep } from 'node:timers/promises'
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
import type { TlsMaterial } from '../../services/rpc/listener.js'
import type { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'
import { Peers } from '../../services/rpc/peers.js'
import { type LookUp, type Place, Places } from '../../services/rpc/places.js'
import { maxRequestBytesOf } from '../../services/rpc/requests.js'
import type { Config } from '../config.js'
import type { Part } from './part.js'
import { readTls } from './tls.js'

/** Largest answer: a page of surveys in full. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024
const ROLE_TIMEOUT_MS = 1_000
/** Balancers give /readyz a second: one process that hangs must not cost those that call it theirs. */
const LOOK_WITHIN_MS = 500
const CHOOSE_WITHIN_MS = 1_000

/** What our processes use of each other, besides the stream that carries it. */
const SERVICES = {
  token: [TokenService, AccountService, AdminService, LimitService],
  survey: [SurveyService],
}

/** Methods of which a caller of each role may call one. All refuse an empty request. */
const PROBES = {
  token: [TokenService.method.getAuthorizedUser, TokenService.method.verifyAccessToken, AdminService.method.getApp],
  survey: [SurveyService.method.getSurvey, SurveyService.method.exportAnswers],
}

export interface Remote extends Part {
  /** Its addresses, for messages. */
  readonly url: string
  readonly invoke: Invoke
  /** Fulfils when it is known which of them serve, or after a second. A server need not ask: it looks all the time. */
  choose(): Promise<void>
  /** From now on, calls use these certificates. */
  reconnect(tls: TlsMaterial): void
}

/** A connection to one process of a service; it is made when first needed and made again whenever it breaks. */
interface Connection {
  readonly transport: MultiplexTransport
  /** undefined when the process serves, and us; what was known before, if that is not known soon. */
  whyNot(): Promise<string | undefined>
}

/** Connections of `caller` to the processes at these addresses, which serve the same. */
export function connectTo(
  service: keyof typeof PROBES,
  addresses: readonly Address[],
  config: Config,
  caller: Caller,
  lookUp?: LookUp,
): Remote {
  const peers = new Peers()
  let tls = addresses.some(({ kind }) => kind === 'tls') ? readTls(config) : undefined
  const open = ({ address, ip }: Place): Connection => {
    const transport = peers.add({
      address,
      ip,
      tls,
      maxRequestBytes: maxRequestBytesOf(service === 'survey' ? SurveyService : TokenService),
      maxResponseBytes: MAX_RESPONSE_BYTES,
      defaultTimeoutMs: config.rpcTimeoutMs,
    })
    return watched(transport, service, address.kind === 'tls', caller)
  }
  const places = new Places(addresses, lookUp)
  const connections = new Map(places.known.map((place) => [place.url, open(place)]))

  /** A process that its name no longer leads to gets no calls while another serves, and is left when it has answered all. */
  function leave(url: string, { transport }: Connection): void {
    transport.isServing = false
    if (!transport.isIdle) return
    connections.delete(url)
    peers.remove(transport)
  }

  const remote: Remote = {
    url: addresses.map(formatAddress).join(', '),
    invoke: peers.invoke,
    async choose() {
      await Promise.race([remote.absent(), sleep(CHOOSE_WITHIN_MS, undefined, { ref: false })])
    },
    async absent() {
      const present = await places.look()
      for (const place of present) if (!connections.has(place.url)) connections.set(place.url, open(place))
      const looked = await Promise.all(
        [...connections].map(async ([url, connection]) => {
          if (!present.some((place) => place.url === url)) return leave(url, connection)
          return { url, cause: await connection.whyNot() }
        }),
      )
      const known = looked.filter((one) => one !== undefined)
      const isServed = known.some(({ cause }) => cause === undefined)
      return known.flatMap(({ url, cause }) =>
        cause === undefined ? [] : [{ what: `${service} service at ${url}`, cause, ...(isServed && DISPENSABLE) }],
      )
    },
    reconnect(material) {
      tls = material // for places that are found later, too
      for (const { transport } of connections.values()) transport.reconnect(tls)
    },
    async close() {
      for (const { transport } of connections.values()) transport.close()
    },
  }
  return remote
}

const DISPENSABLE = { isDispensable: true } as const

/**
 * Until it is known, the process is asked besides whether it serves what we need, and over TLS, where alone callers have roles,
 * whether it knows us in ours: the health check answers any caller.
 */
function watched(
  transport: MultiplexTransport,
  service: keyof typeof PROBES,
  isTls: boolean,
  caller: Caller,
): Connection {
  const probe = isTls ? PROBES[service].find((method) => mayCall(caller, method)) : undefined
  const needed = SERVICES[service].filter(({ methods }) => methods.some((method) => mayCall(caller, method)))
  let isKnown = false
  let last: { readonly cause: string | undefined } | undefined

  async function whyNotFit(): Promise<string | undefined> {
    for (const { typeName } of needed) {
      const cause = await transport.whyNotServing(typeName)
      if (cause !== undefined) return cause
    }
    const code = probe && (await codeOfEmpty(probe, transport.invoke))
    const isRefused = probe && (transport.isRefused || code === Code.PermissionDenied) // what it refuses, a peer answers
    isKnown = !probe || (code === Code.InvalidArgument && !isRefused)
    return isRefused ? `it does not know this process as ${caller}: see RPC_CALLERS there` : undefined
  }

  async function look(): Promise<string | undefined> {
    if (!transport.isServing) isKnown = false // by now it may be another process
    const cause = (await transport.whyNotServing()) ?? (isKnown ? undefined : await whyNotFit())
    transport.isServing = cause === undefined
    last = { cause }
    return cause
  }

  return {
    transport,
    whyNot() {
      const looked = look()
      if (last === undefined) return looked
      return Promise.race([looked, sleep(LOOK_WITHIN_MS, undefined, { ref: false }).then(() => last?.cause)])
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
