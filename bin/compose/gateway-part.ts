// The public HTTP gateway in this process. It holds nothing: its clients reach the services, wherever they run.
import { createGateway, type GatewayOptions } from '../../gateway/app.js'
import type { Look } from '../../gateway/pages/look.js'
import type { Config } from '../config.js'
import { isLoopback } from '../loopback.js'
import { connectionLimits, fewOpenFiles } from '../open-files.js'
import type { Log } from '../telemetry/log.js'
import { untrustedProxy } from '../untrusted-proxy.js'
import { type HeldPort, serveOn, urlOf } from './listen.js'
import type { Observers } from './observers.js'
import type { TimeAndChance } from './time-and-chance.js'

export interface GatewayPart {
  readonly url: string
  /** Accepts no more and answers what is in flight. */
  drain(timeoutMs: number): Promise<void>
}

export async function startGatewayPart(
  config: Config,
  look: Look,
  held: HeldPort,
  clients: Pick<GatewayOptions, 'token' | 'account' | 'survey' | 'sharedLimits'>,
  clock: TimeAndChance,
  observers: Observers,
): Promise<GatewayPart> {
  const url = urlOf(held)
  const { server, drain } = createGateway({
    ...clock,
    ...clients,
    ...observers.gateway,
    look,
    publicUrl: config.publicUrl.port === '0' ? new URL(url) : config.publicUrl,
    httpErrorStatus: config.httpErrorStatus,
    rpcTimeoutMs: config.rpcTimeoutMs,
    trustedProxies: config.trustedProxies,
    limits: limitsOf(config),
  })
  await serveOn(held, server)
  return { url, drain }
}

/** Warns of settings with which a gateway can work, but badly. */
export function warnOfGateway(config: Config, log: Pick<Log, 'warning'>): void {
  const { host, publicUrl } = config
  if (isLoopback(publicUrl.hostname) && !isLoopback(host)) {
    log.warning(
      `HOST is ${host} but PUBLIC_URL names this machine only: forms sent to another address are refused; set PUBLIC_URL to the address that browsers use`,
    )
  }
  if (publicUrl.protocol === 'http:' && !isLoopback(publicUrl.hostname)) {
    log.warning('PUBLIC_URL is http: passwords and tokens travel in the clear')
  }
  const aboutProxy = untrustedProxy(config)
  if (aboutProxy !== undefined) log.warning(aboutProxy)
  const aboutFiles = fewOpenFiles(config)
  if (aboutFiles !== undefined) log.warning(aboutFiles)
}

export function limitsOf(config: Config): GatewayOptions['limits'] {
  return {
    headersTimeoutMs: config.httpHeadersTimeoutSeconds * 1000,
    requestTimeoutMs: config.httpRequestTimeoutSeconds * 1000,
    keepAliveTimeoutMs: config.httpKeepAliveSeconds * 1000,
    maxConnections: connectionLimits(config).http,
    maxInFlight: config.httpMaxInFlight,
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
  }
}
