import { rateLimited } from './errors.js'
import type { Route } from './http.js'
import type { GatewayLimits, Rates } from './limits.js'
import { RateLimiter } from './rate-limit.js'
import { networkOf } from './source.js'

/** `none`: a path nothing is served at. */
export const NO_ROUTE = 'none'

/**
 * Every route's allowances: one per client address, one per app and route. An app pays only for requests that its
 * credentials were good for, so that nobody else can spend its allowance by sending its appid.
 */
export class RouteRates {
  readonly #isOn: boolean
  readonly #unlimited: ReadonlySet<string>
  readonly #bySource: Record<Route['kind'], RateLimiter>
  readonly #byApp: Record<Route['kind'], RateLimiter>

  constructor({ rateLimit, rates, unlimitedRoutes, maxRateKeys }: GatewayLimits) {
    const limiter = (kind: Route['kind'], of: keyof Rates) => new RateLimiter(rates[kind][of], maxRateKeys)
    this.#isOn = rateLimit
    this.#unlimited = new Set(unlimitedRoutes)
    this.#bySource = { api: limiter('api', 'perSource'), page: limiter('page', 'perSource') }
    this.#byApp = { api: limiter('api', 'perApp'), page: limiter('page', 'perApp') }
  }

  /** Counts a request of a client. @throws Problem request_rate_limited */
  admitSource(source: string, route: string, kind: Route['kind'], now: number): void {
    if (!this.#applies(route)) return
    const limiter = this.#bySource[kind]
    const network = networkOf(source)
    refuseFor(limiter.waitSeconds(network, now))
    limiter.count(network, now)
  }

  /** @throws Problem request_rate_limited */
  admitApp(appid: string, { name, kind }: Route, now: number): void {
    if (this.#applies(name)) refuseFor(this.#byApp[kind].waitSeconds(`${name} ${appid}`, now))
  }

  /** Counts a request that succeeded. */
  countApp(appid: string, { name, kind }: Route, now: number): void {
    if (this.#applies(name)) this.#byApp[kind].count(`${name} ${appid}`, now)
  }

  #applies(route: string): boolean {
    return this.#isOn && !this.#unlimited.has(route)
  }
}

function refuseFor(waitSeconds: number): void {
  if (waitSeconds > 0) throw rateLimited(waitSeconds)
}
