/** At most `requests` in a window of `seconds`. */
export interface Rate {
  readonly requests: number
  readonly seconds: number
}

/** Allowances of one kind of route. */
export interface Rates {
  /** Per client address, over all routes of the kind. */
  readonly perSource: Rate
  /** Per app and route; only requests with valid credentials of the app count. */
  readonly perApp: Rate
}

/** Limits of one gateway process. Every number is configurable; `survey-auth config` shows them. */
export interface GatewayLimits {
  /** Time for a client to send the headers of a request, in ms. */
  readonly headersTimeoutMs: number
  /** Time for a client to send a whole request, in ms. */
  readonly requestTimeoutMs: number
  /** How long an idle connection stays open, in ms. */
  readonly keepAliveTimeoutMs: number
  readonly maxUrlBytes: number
  readonly maxHeaderBytes: number
  readonly maxFormBytes: number
  readonly maxConnections: number
  /** Requests to the API, and separately requests for pages, that are in flight at a time. */
  readonly maxInFlight: number
  /** `false` turns all rates off, for load tests. */
  readonly rateLimit: boolean
  readonly rates: { readonly api: Rates; readonly page: Rates }
  /** How many sources, and how many pairs of app and route, are counted at once. */
  readonly maxRateKeys: number
}
