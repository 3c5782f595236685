// What a route is: a function from a bounded, parsed request to an answer. No route sees an object of node:http.
import type { Client } from '@connectrpc/connect'
import type { AccountService } from '../gen/surveyauth/v1/account_service_pb.js'
import type { SurveyService } from '../gen/surveyauth/v1/survey_service_pb.js'
import type { TokenService } from '../gen/surveyauth/v1/token_service_pb.js'
import type { Look } from './pages/look.js'
import type { GatewayRequest } from './request.js'

/** Everything a route may use. The gateway holds no database and mints nothing. */
export interface GatewayDeps {
  readonly token: Client<typeof TokenService>
  readonly account: Client<typeof AccountService>
  readonly survey: Client<typeof SurveyService>
  /** Decides cookie flags, origin checks and links; never the Host header. */
  readonly publicUrl: URL
  /** What pages look like and what they say. */
  readonly look: Look
  readonly now: () => number
  readonly randomBytes: (size: number) => Uint8Array
}

/** Names and values alternating. */
export type Headers = readonly string[]

export interface Answer {
  readonly status: number
  /** None of those that all answers have. */
  readonly headers: Headers
  readonly body: string | Uint8Array
  /** Of a text: each of its characters is one byte. If absent, a text is sent as UTF-8. */
  readonly encoding?: 'latin1'
  /** What the access log and the metrics may know of the outcome: an `error.type` or a page's name. */
  readonly outcome: string
  /** The appid of the request if it was well-formed, for the log. */
  readonly appid?: string
  /**
   * Whether this counts towards the app's rate: it cannot be had by knowing the appid alone. A page counts because somebody
   * who is signed in has asked for it.
   */
  readonly countsForApp?: boolean
}

export interface Route {
  /** Name in logs, metrics and limits, for example `access_token`. */
  readonly name: string
  readonly method: 'GET' | 'POST'
  /** Exact path, in which segments that are not empty may be written as `:id`. */
  readonly path: string
  /** `api` answers failures with the envelope, `page` with an HTML page. */
  readonly kind: 'api' | 'page'
  readonly answer: (request: GatewayRequest, deps: GatewayDeps) => Promise<Answer>
}
