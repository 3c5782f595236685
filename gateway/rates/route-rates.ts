import { rateLimited } from '../errors.js'
import type { Route } from '../http.js'
import type { GatewayLimits, Rates } from '../limits.js'
import { networkOf } from '../source.js'
import { WindowCounter } from './window-counter.js'

/** What an app is counted by on a route; made once for a request. */
export const appOnRoute = (appid: string, { name }: Route) => `${name} ${appid}`

/** `none`: a path nothing is served at. */
export const NO_ROUTE = 'none'

/**
 * Every route's allowances: one per client address, one per app and route. An app pays only for requests that its
 * credentials were good for, so that nobody else can spend its allowance by sending its appid.
 */
export class RouteRates {
  readonly #isOn: boolean
  /** By what is counted, for example `api source`. */
  readonly counters: ReadonlyMap<string, WindowCounter>
  readonly #bySource: Record<Route['kind'], WindowCounter>
  readonly #byApp: Record<Route['kind'], WindowCounter>

  /** `isShared`: other gateways are told of what is counted here. */
  constructor({ rateLimit, rates, maxRateKeys }: GatewayLimits, isShared: boolean) {
    const counter = (kind: Route['kind'], of: keyof Rates) => new WindowCounter(rates[kind][of], maxRateKeys, isShared)
    this.#isOn = rateLimit
    this.#bySource = { api: counter('api', 'perSource'), page: counter('page', 'perSource') }
    this.#byApp = { api: counter('api', 'perApp'), page: counter('page', 'perApp') }
    this.counters = new Map([
      ['api source', this.#bySource.api],
      ['page source', this.#bySource.page],
      ['api app', this.#byApp.api],
      ['page app', this.#byApp.page],
    ])
  }

  /** Counts a request of a client. @throws Problem request_rate_limited */
  admitSource(source: string, kind: Route['kind'], now: number): void {
    if (!this.#isOn) return
    const counter = this.#bySource[kind]
    const network = networkOf(source)
    if (!counter.take(network, now)) throw rateLimited(counter.allowance(network, now))
  }

  /** `app`: as `appOnRoute` names it. @throws Problem request_rate_limited */
  admitApp(app: string, { kind }: Route, now: number): void {
    if (!this.#isOn) return
    const counter = this.#byApp[kind]
    if (!counter.has(app, now)) throw rateLimited(counter.allowance(app, now))
  }

  /** Counts a request whose answer says that it counts. */
  countApp(app: string, { kind }: Route, now: number): void {
    if (this.#isOn) this.#byApp[kind].take(app, now)
  }
}
