export const MAX_URL_BYTES = 8 * 1024
/** Of all header lines. */
export const MAX_HEADER_BYTES = 16 * 1024
export const MAX_FORM_BYTES = 16 * 1024

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

/** What operators may limit otherwise; `survey-auth config` shows the variables. */
export interface GatewayLimits {
  /** Time for a client to send the headers of a request, in ms. */
  readonly headersTimeoutMs: number
  /** Time for a client to send a whole request, in ms. */
  readonly requestTimeoutMs: number
  /** How long an idle connection stays open, in ms. */
  readonly keepAliveTimeoutMs: number
  readonly maxConnections: number
  /** Requests to the API, and separately requests for pages, that are in flight at a time. */
  readonly maxInFlight: number
  /** `false` turns all rates off, for load tests. */
  readonly rateLimit: boolean
  readonly rates: { readonly api: Rates; readonly page: Rates }
}
