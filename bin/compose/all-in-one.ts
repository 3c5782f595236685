// The whole service in one process: gateway, services and databases, joined by the direct door.
import { randomBytes } from 'node:crypto'
import type { DescService } from '@bufbuild/protobuf'
import type { Client } from '@connectrpc/connect'
import { createGateway, drainGateway, type GatewayOptions } from '../../gateway/app.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Caller } from '../../services/rpc/callers.js'
import type { CallRecord } from '../../services/rpc/dispatcher.js'
import { type Janitor, startJanitor } from '../../services/token/janitor.js'
import { createAdminHttp } from '../admin-http.js'
import type { Config } from '../config.js'
import { createLog, type Log } from '../log.js'
import { createMetrics, type Metrics } from '../metrics.js'
import { closeServer, type HeldPort, holdPort, letGo, serveOn, urlOf } from './listen.js'
import { openServices, type Services } from './services.js'

export interface Overrides {
  /** ms since 1970 UTC; the system clock unless given. */
  readonly now?: () => number
  readonly randomBytes?: (size: number) => Uint8Array
  /** Where the log goes; stderr unless given. */
  readonly logStream?: NodeJS.WritableStream
}

/** A running service. */
export interface Running {
  /** Address the gateway listens on. */
  readonly url: string
  /** Address of /healthz, /readyz and /metrics; undefined when turned off. */
  readonly adminUrl: string | undefined
  readonly log: Log
  /** AdminService and SurveyService as operator, TokenService as verifier. */
  readonly admin: Client<typeof AdminService>
  readonly survey: Client<typeof SurveyService>
  readonly token: Client<typeof TokenService>
  /** Any service as any caller. */
  client<S extends DescService>(service: S, caller: Caller): Client<S>
  /** One round of the janitor now. */
  runJanitor: Janitor['run']
  /** /readyz 503, stop accepting, answer what is in flight, write down last uses, close the databases. */
  close(): Promise<void>
}

const DAY_MS = 86_400_000
/** Kept of the shutdown time for closing the databases after the last connection. */
const CLOSING_MS = 2_000

/** Starts everything; when something fails, what was started before it is stopped again. */
export async function startAllInOne(config: Config, overrides: Overrides = {}): Promise<Running> {
  const clock = { now: overrides.now ?? Date.now, randomBytes: overrides.randomBytes ?? randomBytes }
  const log = createLog(config, overrides.logStream ?? process.stderr)
  const metrics = createMetrics()
  const started: (() => Promise<unknown>)[] = []
  let isStopping = false
  const stop = async () => {
    isStopping = true
    for (const undo of started.splice(0).reverse()) await undo()
  }

  try {
    const held = await holdPort(config.host, config.port, 'PORT')
    started.push(() => letGo(held))
    const adminHeld = await holdAdminPort(config)
    if (adminHeld) started.push(() => letGo(adminHeld))

    const services = await openServices(config, { ...clock, ...observers(log, metrics) })
    started.push(() => services.close())
    const janitor = startUpkeep(config, services, clock.now, log, metrics)
    started.push(() => janitor.stop())

    if (adminHeld) {
      const notReady = () => reasonsNotReady(isStopping, services)
      const adminHttp = createAdminHttp({ notReady, metrics })
      await serveOn(adminHeld, adminHttp)
      started.unshift(() => closeServer(adminHttp)) // the last to go, so that /readyz tells of the shutdown
    }

    const gateway = createGateway(gatewayOptions(config, held, services, clock, log, metrics))
    await serveOn(held, gateway)
    started.push(() => drainGateway(gateway, Math.max(0, config.shutdownTimeoutSeconds * 1000 - CLOSING_MS)))

    return {
      url: urlOf(held),
      adminUrl: adminHeld && urlOf(adminHeld),
      log,
      admin: services.client(AdminService, 'operator'),
      survey: services.client(SurveyService, 'operator'),
      token: services.client(TokenService, 'verifier'),
      client: services.client,
      runJanitor: janitor.run,
      close: stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

/** What the dispatcher tells of its calls goes to the log and to the metrics. */
function observers(log: Log, metrics: Metrics) {
  return {
    onCall: (record: CallRecord) => {
      log.call(record)
      metrics.call(record)
    },
    onUnexpected: (error: unknown, { method, requestId }: { method: string; requestId: string }) => {
      log.failure(`${method} failed unexpectedly`, error, requestId)
      metrics.unexpected()
    },
  }
}

function startUpkeep(config: Config, services: Services, now: () => number, log: Log, metrics: Metrics): Janitor {
  return startJanitor({
    store: services.tokenStore,
    uses: services.uses,
    now,
    everyMs: config.janitorIntervalSeconds * 1000,
    keepEndedMs: config.keepEndedSeconds * 1000,
    keepAuditMs: config.keepAuditDays * DAY_MS,
    onRemoved: (removed) => {
      log.removed(removed)
      metrics.removed(removed)
    },
    onError: (error) => log.failure('the janitor failed and will try again', error),
  })
}

async function reasonsNotReady(isStopping: boolean, services: Services): Promise<string[]> {
  if (isStopping) return ['shutting down']
  const pings = { 'token database': services.tokenStore.ping(), 'survey database': services.surveyStore.ping() }
  const answers = await Promise.allSettled(Object.values(pings))
  return Object.keys(pings)
    .filter((_, index) => answers[index]?.status === 'rejected')
    .map((name) => `${name}: unavailable`)
}

function gatewayOptions(
  config: Config,
  held: HeldPort,
  services: Services,
  clock: Pick<GatewayOptions, 'now' | 'randomBytes'>,
  log: Log,
  metrics: Metrics,
): GatewayOptions {
  return {
    ...clock,
    token: services.client(TokenService, 'gateway'),
    account: services.client(AccountService, 'gateway'),
    survey: services.client(SurveyService, 'gateway'),
    publicUrl: config.publicUrl.port === '0' ? new URL(urlOf(held)) : config.publicUrl,
    httpErrorStatus: config.httpErrorStatus,
    rpcTimeoutMs: config.rpcTimeoutMs,
    trustedProxies: config.trustedProxies,
    limits: {
      headersTimeoutMs: config.httpHeadersTimeoutSeconds * 1000,
      requestTimeoutMs: config.httpRequestTimeoutSeconds * 1000,
      keepAliveTimeoutMs: config.httpKeepAliveSeconds * 1000,
      maxUrlBytes: config.httpMaxUrlBytes,
      maxHeaderBytes: config.httpMaxHeaderBytes,
      maxFormBytes: config.httpMaxFormBytes,
      maxConnections: config.httpMaxConnections,
      rateLimit: config.rateLimit === 'on',
      rates: {
        api: {
          perSource: { requests: config.rateApiPerSource, seconds: config.rateApiWindowSeconds },
          perApp: { requests: config.rateApiPerApp, seconds: config.rateApiWindowSeconds },
        },
        page: {
          perSource: { requests: config.ratePagesPerSource, seconds: config.ratePagesWindowSeconds },
          perApp: { requests: config.rateApiPerApp, seconds: config.ratePagesWindowSeconds },
        },
      },
      unlimitedRoutes: [],
      maxRateKeys: config.rateMaxKeys,
    },
    onRequest: (record) => {
      log.request(record)
      metrics.request(record)
    },
    onUnexpected: (error, requestId) => {
      log.failure('a request failed unexpectedly', error, requestId)
      metrics.unexpected()
    },
  }
}

async function holdAdminPort(config: Config): Promise<HeldPort | undefined> {
  return config.adminPort === 0 ? undefined : holdPort(config.adminHost, config.adminPort, 'ADMIN_PORT')
}
