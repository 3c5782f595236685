// Starts a process: the whole service, or one part of it. What a part needs and is not here is reached by RPC.
import type { DescService } from '@bufbuild/protobuf'
import { type Client, createClient } from '@connectrpc/connect'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { LimitService } from '../../gen/surveyauth/v1/limit_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Caller, mayCall } from '../../services/rpc/callers.js'
import { createDirectTransport } from '../../services/rpc/direct-transport.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import type { Janitor } from '../../services/token/janitor.js'
import type { PasswordCost } from '../../services/token/passwords.js'
import { createAdminHttp } from '../admin-http.js'
import type { Config } from '../config.js'
import { createLog, type Log } from '../log.js'
import { createMetrics } from '../metrics.js'
import { pooledRandomBytes } from '../random.js'
import { rpcAddressOf, surveyServiceUrlOf, tokenServiceUrlOf } from './addresses.js'
import { startGatewayPart } from './gateway-part.js'
import { closeServer, holdPort, letGo, serveOn, urlOf } from './listen.js'
import type { Mode } from './mode.js'
import { createObservers } from './observers.js'
import type { Part } from './part.js'
import { connectTo, type Remote } from './remote.js'
import { startRpcPart } from './rpc-part.js'
import { openSurveyPart } from './survey-part.js'
import { watchTls } from './tls.js'
import { openTokenPart, type TokenPart } from './token-part.js'

export interface Overrides {
  /** ms since 1970 UTC; the system clock unless given. */
  readonly now?: () => number
  readonly randomBytes?: (size: number) => Uint8Array
  /** Where the log goes; stderr unless given. */
  readonly logStream?: NodeJS.WritableStream
  /** Of new passwords; a production cost unless given. */
  readonly passwordCost?: PasswordCost
}

/** A running process. */
export interface Running {
  /** Address of the gateway; empty without one. */
  readonly url: string
  /** Addresses of the RPC doors; empty without them. */
  readonly rpcAddresses: readonly string[]
  /** Address of /healthz, /readyz and /metrics; undefined when turned off. */
  readonly adminUrl: string | undefined
  readonly log: Log
  /** A service of this process as any caller, or of another process as this process is known there. */
  client<S extends DescService>(service: S, caller: Caller): Client<S>
  /** One round of the janitor now; rejects where there is none. */
  runJanitor: Janitor['run']
  /** /readyz 503, stop accepting, finish what is in flight, write down last uses, close the databases. */
  close(): Promise<void>
}

/** Kept of the shutdown time for closing the databases after the last connection. */
const CLOSING_MS = 2_000
/** How often `grpc.health.v1` follows the databases. */
const HEALTH_EVERY_MS = 1_000
const KIB = 1024
/** Largest request of each service (docs/rpc.md); a process that serves surveys takes the larger. */
const MAX_REQUEST_BYTES = { token: 64 * KIB, survey: 4096 * KIB } as const

/** Starts what `mode` names; when something fails, what was started before it is stopped again. */
export async function start(mode: Mode, config: Config, overrides: Overrides = {}): Promise<Running> {
  const clock = { now: overrides.now ?? Date.now, randomBytes: overrides.randomBytes ?? pooledRandomBytes() }
  const log = createLog(config, overrides.logStream ?? process.stderr)
  const metrics = createMetrics()
  const observers = createObservers(log, metrics)
  const has = (part: Mode) => mode === 'all' || mode === part
  const parts: Part[] = []
  const undo: (() => Promise<unknown>)[] = []
  let stage: 'starting' | 'running' | 'shutting down' = 'starting'
  const stop = async () => {
    stage = 'shutting down'
    for (const step of undo.splice(0).reverse()) await step()
  }
  const graceMs = Math.max(0, config.shutdownTimeoutSeconds * 1000 - CLOSING_MS)

  async function notReady(): Promise<string[]> {
    if (stage !== 'running') return [stage]
    return (await Promise.all(parts.map((part) => part.notReady()))).flat()
  }

  function add<P extends Part>(part: P): P {
    parts.push(part)
    undo.push(() => part.close())
    return part
  }

  try {
    // Ports first, so that one in use is known before a database is touched.
    const adminPort =
      config.adminPort === 0 ? undefined : await holdPort(config.adminHost, config.adminPort, 'ADMIN_PORT')
    if (adminPort) {
      const admin = createAdminHttp({ notReady, metrics })
      undo.push(() => closeServer(admin)) // the last to go, so that /readyz tells of the shutdown
      await serveOn(adminPort, admin)
    }
    const publicPort = has('gateway') ? await holdPort(config.host, config.port, 'PORT') : undefined
    if (publicPort) undo.push(() => letGo(publicPort))

    const dispatcher = new Dispatcher({
      ...observers.dispatcher,
      mayCall,
      maxDeadlineMs: config.rpcMaxDeadlineMs,
    })
    const remotes: Remote[] = []
    function remote(name: string, address: ReturnType<typeof tokenServiceUrlOf>): Remote {
      const made = add(connectTo(name, address, config))
      remotes.push(made)
      return made
    }

    const tokenPart: TokenPart | undefined = has('token')
      ? add(await openTokenPart(config, dispatcher, clock, observers, overrides.passwordCost))
      : undefined
    const tokenRemote = tokenPart ? undefined : remote('token service', tokenServiceUrlOf(config))
    const tokenAs = (caller: Caller) =>
      tokenRemote?.client(TokenService) ?? createClient(TokenService, createDirectTransport(dispatcher, caller))

    const hasSurvey = has('survey')
    if (hasSurvey) add(await openSurveyPart(config, dispatcher, clock, tokenAs('survey'), observers))
    const surveyRemote = hasSurvey || !has('gateway') ? undefined : remote('survey service', surveyServiceUrlOf(config))

    const client = <S extends DescService>(service: S, caller: Caller): Client<S> => {
      const elsewhere = service.typeName === SurveyService.typeName ? surveyRemote : tokenRemote
      return elsewhere?.client(service) ?? createClient(service, createDirectTransport(dispatcher, caller))
    }

    const rpcAddress = rpcAddressOf(mode, config, log)
    const rpc = rpcAddress
      ? await startRpcPart(
          config,
          dispatcher,
          rpcAddress,
          hasSurvey ? MAX_REQUEST_BYTES.survey : MAX_REQUEST_BYTES.token,
          (error) => log.failure('the certificates could not be read again', error),
        )
      : undefined
    if (rpc) {
      const followHealth = async () => rpc.setServing((await notReady()).length === 0)
      const timer = setInterval(() => void followHealth(), HEALTH_EVERY_MS)
      undo.push(() => {
        clearInterval(timer)
        return rpc.drain(graceMs)
      })
    }
    if (remotes.some(({ url }) => url.startsWith('https:'))) {
      const reconnect = () => {
        for (const made of remotes) made.reconnect()
      }
      const watch = watchTls(config, 30_000, reconnect, (error) =>
        log.failure('the certificates could not be read again', error),
      )
      undo.push(async () => watch.stop())
    }

    const gateway = publicPort
      ? await startGatewayPart(
          config,
          publicPort,
          {
            token: client(TokenService, 'gateway'),
            account: client(AccountService, 'gateway'),
            survey: client(SurveyService, 'gateway'),
            // Alone with its own SQLite, it has nobody to share with.
            sharedLimits:
              tokenPart && config.tokenDatabase.kind === 'sqlite' ? undefined : client(LimitService, 'gateway'),
          },
          clock,
          observers,
          log,
        )
      : undefined
    if (gateway) undo.push(() => gateway.drain(graceMs))
    stage = 'running'
    rpc?.setServing((await notReady()).length === 0)

    return {
      url: gateway?.url ?? '',
      rpcAddresses: rpc?.addresses ?? [],
      adminUrl: adminPort && urlOf(adminPort),
      log,
      client,
      runJanitor: () => tokenPart?.janitor.run() ?? Promise.reject(new Error(`mode ${mode} has no janitor`)),
      close: stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}
