// Starts a process: the whole service, or one part of it. What a part needs and is not here is reached by RPC.
import type { DescService } from '@bufbuild/protobuf'
import type { Client } from '@connectrpc/connect'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { LimitService } from '../../gen/surveyauth/v1/limit_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Address } from '../../services/rpc/address.js'
import { type Caller, mayCall } from '../../services/rpc/callers.js'
import { clientOf, type Invoke } from '../../services/rpc/client.js'
import { createDirectDoor } from '../../services/rpc/direct-door.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { startAdminHttp } from '../admin-http.js'
import type { Config } from '../config.js'
import { createLog } from '../log.js'
import { createMetrics } from '../metrics.js'
import { pooledRandomBytes } from '../random.js'
import { rpcAddressOf, surveyServiceUrlOf, tokenServiceUrlOf } from './addresses.js'
import { type GatewayPart, startGatewayPart, warnOfGateway } from './gateway-part.js'
import { cannotListen, holdPort, letGo, tryPort, urlOf } from './listen.js'
import type { Mode } from './mode.js'
import { createObservers } from './observers.js'
import type { Part } from './part.js'
import { connectTo, MAX_REQUEST_BYTES, type Remote } from './remote.js'
import { type RpcPart, startRpcPart } from './rpc-part.js'
import type { Overrides, Running } from './running.js'
import { makePrivateDirectory } from './stores.js'
import { openSurveyPart } from './survey-part.js'
import { watchTls } from './tls.js'
import { openTokenPart, type TokenPart } from './token-part.js'
import { startWorkers, type Workers } from './workers.js'
import { makeWorkersDoor } from './workers-door.js'

/** Kept of the shutdown time for closing the databases after the last connection. */
const CLOSING_MS = 2_000
/** How often `grpc.health.v1` follows the databases. */
const HEALTH_EVERY_MS = 1_000

/** Starts what `mode` names; when something fails, what was started before it is stopped again. */
export async function start(mode: Mode, config: Config, overrides: Overrides = {}): Promise<Running> {
  const clock = { now: overrides.now ?? Date.now, randomBytes: overrides.randomBytes ?? pooledRandomBytes() }
  const sharesStderr = overrides.workers !== undefined || overrides.isWorker
  const log = createLog(config, overrides.logStream ?? process.stderr, sharesStderr ? process.pid : undefined)
  const metrics = createMetrics()
  const observers = createObservers(log, metrics)
  const has = (part: Mode) => mode === 'all' || mode === part
  const parts: Part[] = []
  let workers: Workers | undefined
  const undo: (() => Promise<unknown>)[] = []
  let stage: 'starting' | 'running' | 'shutting down' = 'starting'
  const stop = async () => {
    stage = 'shutting down'
    for (const step of undo.splice(0).reverse()) await step()
  }
  const graceMs = Math.max(0, config.shutdownTimeoutSeconds * 1000 - CLOSING_MS)

  /** What the doors tell: gateways in other processes can be served before this process has its own. */
  async function servicesNotReady(): Promise<string[]> {
    if (stage === 'shutting down') return [stage]
    return (await Promise.all(parts.map((part) => part.notReady()))).flat()
  }

  async function notReady(): Promise<string[]> {
    if (stage !== 'running') return [stage]
    return [...(await servicesNotReady()), ...(workers?.notReady() ?? [])]
  }

  const onUnreadableTls = (error: unknown) => log.failure('the certificates could not be read again', error)

  function add<P extends Part>(part: P): P {
    parts.push(part)
    undo.push(() => part.close())
    return part
  }

  async function openAdmin(): Promise<string> {
    const place = { host: config.adminHost, port: config.adminPort }
    const admin = await startAdminHttp({
      ...place,
      isRunning: () => stage === 'running',
      notReady,
      metrics: {
        contentType: metrics.contentType,
        text: async () => workers?.metrics(await metrics.snapshot()) ?? metrics.text(),
      },
      onLost: (error) => log.failure('nobody answers on the admin port any more', error),
    }).catch((error) => Promise.reject(cannotListen(place, 'ADMIN_PORT', error)))
    undo.push(() => admin.close()) // the last to go, so that /readyz tells of the shutdown
    return urlOf({ ...place, port: admin.port })
  }

  try {
    // Ports first, so that one in use is known before a database is touched. Gateways last, so that nobody is answered
    // before there are services.
    const adminUrl = config.adminPort === 0 ? undefined : await openAdmin()
    const hasOwnGateway = has('gateway') && overrides.workers === undefined
    const publicPort = hasOwnGateway ? await holdPort(config.host, config.port, 'PORT') : undefined
    if (publicPort) undo.push(() => letGo(publicPort))
    const workersDoor = overrides.workers !== undefined && has('token') ? makeWorkersDoor() : undefined
    if (workersDoor) undo.push(() => workersDoor.remove())
    if (overrides.workers !== undefined) await tryPort(config.host, config.port, 'PORT')

    const dispatcher = new Dispatcher({
      ...observers.dispatcher,
      mayCall,
      maxDeadlineMs: config.rpcMaxDeadlineMs,
    })
    const remotes: Remote[] = []
    function remote(service: 'token' | 'survey', address: Address): Remote {
      const made = add(connectTo(service, address, config))
      remotes.push(made)
      return made
    }

    const tokenPart: TokenPart | undefined = has('token')
      ? add(await openTokenPart(config, dispatcher, clock, observers, overrides.passwordCost))
      : undefined
    const tokenRemote = tokenPart ? undefined : remote('token', tokenServiceUrlOf(config))
    const doorTo = (elsewhere: Remote | undefined, caller: Caller): Invoke =>
      elsewhere?.invoke ?? createDirectDoor(dispatcher, caller)

    const hasSurvey = has('survey')
    if (hasSurvey) {
      const token = clientOf(TokenService, doorTo(tokenRemote, 'survey'))
      add(await openSurveyPart(config, dispatcher, clock, token, observers))
    }
    const surveyRemote = hasSurvey || !has('gateway') ? undefined : remote('survey', surveyServiceUrlOf(config))

    const client = <S extends DescService>(service: S, caller: Caller): Client<S> => {
      const elsewhere = service.typeName === SurveyService.typeName ? surveyRemote : tokenRemote
      return clientOf(service, doorTo(elsewhere, caller))
    }

    const doors: RpcPart[] = []
    async function openDoor(address: Address | undefined, config: Config): Promise<RpcPart | undefined> {
      if (!address) return undefined
      const maxRequestBytes = hasSurvey ? MAX_REQUEST_BYTES.survey : MAX_REQUEST_BYTES.token
      const door = await startRpcPart(config, dispatcher, address, maxRequestBytes, onUnreadableTls)
      doors.push(door)
      undo.push(() => door.drain(graceMs))
      return door
    }
    const rpcAddress = rpcAddressOf(mode, config, log)
    if (rpcAddress && config.rpcListen === 'socket') makePrivateDirectory(config.dataDir) // no store needs it on PostgreSQL
    const rpc = await openDoor(rpcAddress, config)
    if (workersDoor) await openDoor(workersDoor.address, workersDoor.of(config))
    const followHealth = async () => {
      if (doors.length === 0) return
      const isServing = (await servicesNotReady()).length === 0
      for (const door of doors) door.setServing(isServing)
    }
    await followHealth()
    const timer = setInterval(() => void followHealth(), HEALTH_EVERY_MS)
    undo.push(async () => clearInterval(timer))
    if (remotes.some(({ url }) => url.startsWith('https:'))) {
      const reconnect = () => {
        for (const made of remotes) made.reconnect()
      }
      const watch = watchTls(config, reconnect, onUnreadableTls)
      undo.push(async () => watch.stop())
    }

    if (overrides.workers !== undefined) {
      workers = await startWorkers({ count: overrides.workers, services: workersDoor?.address, log })
    }
    const gateway: GatewayPart | undefined = publicPort
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
        )
      : workers
    if (gateway) undo.push(() => gateway.drain(graceMs))
    if (gateway && !overrides.isWorker) warnOfGateway(config, log)
    stage = 'running'

    return {
      url: gateway?.url ?? '',
      rpcAddresses: rpc?.addresses ?? [],
      adminUrl,
      log,
      client,
      notReady,
      snapshot: metrics.snapshot,
      runJanitor: () => tokenPart?.janitor.run() ?? Promise.reject(new Error(`mode ${mode} has no janitor`)),
      close: stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}
