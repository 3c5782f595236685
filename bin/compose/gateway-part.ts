// The public HTTP gateway in this process. It holds nothing: its clients reach the services, wherever they run.
import { createGateway, drainGateway, type GatewayOptions } from '../../gateway/app.js'
import type { Config } from '../config.js'
import type { Log } from '../log.js'
import { isLoopback } from '../loopback.js'
import { type HeldPort, serveOn, urlOf } from './listen.js'
import type { Observers } from './observers.js'
import type { Clock } from './part.js'

export interface GatewayPart {
  readonly url: string
  /** Accepts no more and answers what is in flight. */
  drain(timeoutMs: number): Promise<void>
}

export async function startGatewayPart(
  config: Config,
  held: HeldPort,
  clients: Pick<GatewayOptions, 'token' | 'account' | 'survey' | 'sharedLimits'>,
  clock: Clock,
  observers: Observers,
): Promise<GatewayPart> {
  const url = urlOf(held)
  const gateway = createGateway({
    ...clock,
    ...clients,
    ...observers.gateway,
    publicUrl: config.publicUrl.port === '0' ? new URL(url) : config.publicUrl,
    httpErrorStatus: config.httpErrorStatus,
    rpcTimeoutMs: config.rpcTimeoutMs,
    trustedProxies: config.trustedProxies,
    limits: limitsOf(config),
  })
  await serveOn(held, gateway)
  return { url, drain: (timeoutMs) => drainGateway(gateway, timeoutMs) }
}

export function warnOfPlaintext({ publicUrl }: Pick<Config, 'publicUrl'>, log: Log): void {
  if (publicUrl.protocol !== 'http:' || isLoopback(publicUrl.hostname)) return
  log.warning('PUBLIC_URL is http: passwords travel in the clear, and browsers will not send what sign-in needs')
}

export function limitsOf(config: Config): GatewayOptions['limits'] {
  return {
    headersTimeoutMs: config.httpHeadersTimeoutSeconds * 1000,
    requestTimeoutMs: config.httpRequestTimeoutSeconds * 1000,
    keepAliveTimeoutMs: config.httpKeepAliveSeconds * 1000,
    maxUrlBytes: config.httpMaxUrlBytes,
    maxHeaderBytes: config.httpMaxHeaderBytes,
    maxFormBytes: config.httpMaxFormBytes,
    maxConnections: config.httpMaxConnections,
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
    maxRateKeys: config.rateMaxKeys,
  }
}
