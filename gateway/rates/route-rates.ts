import { rateLimited } from '../errors.js'
import type { Route } from '../http.js'
import type { GatewayLimits, Rates } from '../limits.js'
import { networkOf } from '../source.js'
import { WindowCounter } from './window-counter.js'

/** Clients, and pairs of app and route, that are counted at a time: bounds memory. */
const MAX_KEYS = 100_000

/**
 * Every route's allowances: one per client address, one per app and route. An app pays only for requests with its valid
 * credentials, so that nobody else can spend its allowance by sending its appid.
 */
export class RouteRates {
  /** By what they count, for example `api source`. */
  readonly counters: ReadonlyMap<string, WindowCounter>
  readonly #bySource: Record<Route['kind'], WindowCounter>
  readonly #byApp: Record<Route['kind'], WindowCounter>

  /** `isShared`: what is counted here is reported to other gateways. */
  constructor({ rates }: GatewayLimits, isShared: boolean) {
    const counter = (kind: Route['kind'], of: keyof Rates) => new WindowCounter(rates[kind][of], MAX_KEYS, isShared)
    this.#bySource = { api: counter('api', 'perSource'), page: counter('page', 'perSource') }
    this.#byApp = { api: counter('api', 'perApp'), page: counter('page', 'perApp') }
    this.counters = new Map([
      ['api source', this.#bySource.api],
      ['page source', this.#bySource.page],
      ['api app', this.#byApp.api],
      ['page app', this.#byApp.page],
    ])
  }

  /** Counts a request from a client. @throws Problem request_rate_limited */
  admitSource(source: string, kind: Route['kind'], now: number): void {
    const counter = this.#bySource[kind]
    const network = networkOf(source)
    if (!counter.take(network, now)) throw rateLimited(counter.allowance(network, now))
  }

  /** @throws Problem request_rate_limited */
  admitApp(appid: string, route: Route, now: number): void {
    const counter = this.#byApp[route.kind]
    const app = onRoute(appid, route)
    if (!counter.has(app, now)) throw rateLimited(counter.allowance(app, now))
  }

  /** Counts a request whose answer has `countsForApp`. */
  countApp(appid: string, route: Route, now: number): void {
    this.#byApp[route.kind].take(onRoute(appid, route), now)
  }
}

function onRoute(appid: string, { name }: Route): string {
  return `${name} ${appid}`
}
