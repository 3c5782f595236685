// The verbs of the protocol, over a running service. They know its public address and its operators' RPCs, and nothing
// of how its processes are arranged.
import type { Client } from '@connectrpc/connect'
import { expect } from 'vitest'
import { surveyFromJson } from '../../gateway/api/survey-from-json.js'
import type { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import type { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import type { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import type { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Clock } from './clock.js'
import { type Envelope, readEnvelope } from './envelope.js'
import { type Outgoing, type Reply, send, sendRaw } from './http.js'
import type { Sabotage } from './sabotage.js'
import type { SurveyJson } from './sample-surveys.js'
import { type Decision, type Page, Visitor } from './visitor.js'

/** Retries on remote_server_error, as a client of a busy machine must. */
export async function whenAnswered<Answer extends { readonly type: string }>(
  ask: () => Promise<Answer>,
): Promise<Answer> {
  for (;;) {
    const answer = await ask()
    if (answer.type !== 'remote_server_error') return answer
  }
}

/** What every way of running the service offers to the verbs. */
export interface Backend {
  /** Public address, without a trailing slash. */
  readonly url: string
  /** How many gateways take requests in turn. Each counts only what it admits itself, until it hears from the others. */
  readonly gateways: number
  readonly adminUrl: string | undefined
  readonly sabotage: Sabotage
  readonly clock: Clock
  readonly httpErrorStatus: 'semantic' | '200'
  readonly admin: Client<typeof AdminService>
  readonly survey: Client<typeof SurveyService>
  readonly token: Client<typeof TokenService>
  /** A platform's, which signs users in at its own page. */
  readonly signIn: Client<typeof SignInService>
  /** What the pages call, for suites that have no time for pages. */
  readonly asGateway: { readonly token: Client<typeof TokenService>; readonly account: Client<typeof AccountService> }
  /** Everything logged so far. */
  log(): string
  /** Runs the janitor of each process with a database, one after the other. */
  runJanitors(): Promise<void>
  close(): Promise<void>
}

export interface TestApp {
  readonly appid: string
  readonly secret: string
  readonly secretId: string
  readonly redirectUri: string
}

export interface TestUser {
  readonly username: string
  readonly password: string
  readonly userId: string
}

export interface Tokens {
  readonly access_token: string
  readonly refresh_token: string
  readonly expires_in: number
  readonly openid: string
}

/** A user's consent to an app, exchanged. */
export interface Access {
  readonly app: TestApp
  readonly user: TestUser
  readonly tokens: Tokens
}

export type Query = Readonly<Record<string, string | number | undefined>>

export interface AuthorizeOptions {
  readonly state?: string | undefined
  readonly decision?: Decision
  readonly visitor?: Visitor
  /** Of the link's other parameters. */
  readonly changed?: Query
}

export const CALLBACK = 'https://app.example/callback'

export class Verbs {
  readonly backend: Backend
  #made = 0

  constructor(backend: Backend) {
    this.backend = backend
  }

  get url(): string {
    return this.backend.url
  }

  get clock(): Clock {
    return this.backend.clock
  }

  get admin(): Backend['admin'] {
    return this.backend.admin
  }

  // -- What operators do ---------------------------------------------------------------------------------------------

  async createApp(
    wish: { name?: string; redirectUri?: string; requiresSecretOnRefresh?: boolean; readsAnswers?: boolean } = {},
  ): Promise<TestApp> {
    const redirectUri = wish.redirectUri ?? CALLBACK
    const { app, secret, secretId } = await this.admin.createApp({
      name: wish.name ?? `App ${this.#next()}`,
      redirectUris: [redirectUri],
      requiresSecretOnRefresh: wish.requiresSecretOnRefresh ?? false,
      readsAnswers: wish.readsAnswers ?? false,
    })
    if (app === undefined) throw new Error('no app in the answer')
    return { appid: app.appid, secret, secretId, redirectUri }
  }

  async createUser(
    wish: Partial<Record<'username' | 'password' | 'nickname' | 'avatar' | 'externalId', string>> = {},
  ): Promise<TestUser> {
    const username = wish.username ?? `user${this.#next()}`
    const password = wish.password ?? `password of ${username}`
    const { user } = await this.admin.createUser({
      username,
      password,
      nickname: wish.nickname ?? '小明 Ming',
      avatar: wish.avatar ?? 'https://img.example/ming.png',
      externalId: wish.externalId ?? '',
    })
    if (user === undefined) throw new Error('no user in the answer')
    return { username, password, userId: user.userId }
  }

  /** Stores surveys given in the JSON shape of the detail endpoint; returns their ids in order. */
  async importSurveys(owner: TestUser, surveys: readonly SurveyJson[]): Promise<readonly number[]> {
    const { surveys: stored } = await this.backend.survey.importSurveys({
      ownerUserId: owner.userId,
      surveys: surveys.map((survey) => surveyFromJson(survey)),
    })
    return stored.map(({ id }) => Number(id))
  }

  /** Ids of the grants, newest first. */
  async grantIds(filter: { username?: string; appid?: string } = {}): Promise<readonly string[]> {
    const { grants } = await this.admin.listGrants(filter)
    return grants.map(({ grantId }) => grantId)
  }

  // -- What users do -------------------------------------------------------------------------------------------------

  visitor(language?: string): Visitor {
    return new Visitor(this.url, language)
  }

  async signedIn(user: TestUser): Promise<Visitor> {
    const visitor = this.visitor()
    await visitor.openSignedIn('/connect/apps', user)
    return visitor
  }

  /** The authorization page as the user sees it once signed in. */
  authorizationPage(visitor: Visitor, app: TestApp, user: TestUser, state?: string, changed?: Query): Promise<Page> {
    return visitor.openSignedIn(authorizePath(app, state, changed), user)
  }

  /** Walks the pages up to the callback; returns the callback's address. */
  async authorize(app: TestApp, user: TestUser, options: AuthorizeOptions = {}): Promise<URL> {
    const visitor = options.visitor ?? this.visitor()
    const page = await this.authorizationPage(visitor, app, user, options.state, options.changed)
    const reply = await visitor.decide(page, options.decision ?? 'confirm')
    expect(reply.status).toBe(303)
    return new URL(reply.headers.get('location') ?? '')
  }

  /** A fresh code. */
  async issueCode(app: TestApp, user: TestUser, options: AuthorizeOptions = {}): Promise<string> {
    const callback = await this.authorize(app, user, options)
    return callback.searchParams.get('code') ?? ''
  }

  /** All of spec 1.1 and 1.2: consent and exchange. Whatever is not given is created. */
  async grantAccess(given: { app?: TestApp; user?: TestUser; visitor?: Visitor } = {}): Promise<Access> {
    const app = given.app ?? (await this.createApp())
    const user = given.user ?? (await this.createUser())
    const code = await this.issueCode(app, user, given.visitor ? { visitor: given.visitor } : {})
    return { app, user, tokens: tokensOf(await this.exchange(app, code)) }
  }

  // -- What apps do --------------------------------------------------------------------------------------------------

  /** GET of an API path; the answer is checked against the envelope and the OpenAPI document. */
  async get(path: string, query: Query = {}): Promise<Envelope> {
    return this.call(withQuery(path, query))
  }

  /** One request whose target is sent byte for byte and whose answer must be an envelope. */
  async call(target: string, outgoing: Outgoing = {}): Promise<Envelope> {
    return this.envelope(await send(this.url, target, outgoing), target, outgoing.method)
  }

  envelope(reply: Reply, path: string, method = 'GET'): Envelope {
    return readEnvelope(reply, { method, path, httpErrorStatus: this.backend.httpErrorStatus })
  }

  exchange(app: TestApp, code: string, changed: Query = {}): Promise<Envelope> {
    return this.get('/api/oauth2/access_token', {
      appid: app.appid,
      secret: app.secret,
      code,
      grant_type: 'authorization_code',
      ...changed,
    })
  }

  refresh(app: TestApp, refreshToken: string, changed: Query = {}): Promise<Envelope> {
    return this.get('/api/oauth2/refresh_token', {
      appid: app.appid,
      refresh_token: refreshToken,
      grant_type: 'refresh_token',
      ...changed,
    })
  }

  user({ app, tokens }: Pick<Access, 'app' | 'tokens'>, changed: Query = {}): Promise<Envelope> {
    return this.get('/api/oauth2/user', {
      appid: app.appid,
      access_token: tokens.access_token,
      openid: tokens.openid,
      ...changed,
    })
  }

  surveys({ app, tokens }: Pick<Access, 'app' | 'tokens'>, changed: Query = {}): Promise<Envelope> {
    return this.get('/api/surveys', {
      appid: app.appid,
      access_token: tokens.access_token,
      openid: tokens.openid,
      ...changed,
    })
  }

  survey({ app, tokens }: Pick<Access, 'app' | 'tokens'>, id: number | string, changed: Query = {}): Promise<Envelope> {
    return this.get(`/api/surveys/${id}`, { appid: app.appid, access_token: tokens.access_token, ...changed })
  }

  answers(access: Pick<Access, 'app' | 'tokens'>, id: number | string, changed: Query = {}): Promise<Envelope> {
    return this.survey(access, `${id}/answers`, changed)
  }

  /** Writes bytes to a fresh connection. */
  raw(bytes: string | Buffer, silenceMs?: number): Promise<readonly Reply[]> {
    return sendRaw(this.url, bytes, silenceMs)
  }

  #next(): number {
    this.#made += 1
    return this.#made
  }
}

/** Target of the authorization page for an app. */
export function authorizePath(
  app: Pick<TestApp, 'appid' | 'redirectUri'>,
  state?: string,
  changed: Query = {},
): string {
  return withQuery('/connect/oauth2/authorize', {
    appid: app.appid,
    redirect_uri: app.redirectUri,
    response_type: 'code',
    scope: 'snsapi_user',
    state,
    ...changed,
  })
}

/** Appends the parameters that are not undefined, percent-encoded. */
export function withQuery(path: string, query: Query): string {
  const parts = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [`${encodeURIComponent(name)}=${encodeURIComponent(value)}`],
  )
  return parts.length === 0 ? path : `${path}?${parts.join('&')}`
}

/** The grant of a successful exchange (spec 2.3). */
export function tokensOf(envelope: Envelope): Tokens {
  expect({ code: envelope.code, type: envelope.type }).toEqual({ code: 'OK', type: '' })
  const { access_token, refresh_token, expires_in, openid } = envelope.data
  return {
    access_token: String(access_token),
    refresh_token: String(refresh_token),
    expires_in: Number(expires_in),
    openid: String(openid),
  }
}

/** The same access with a newer access token. */
export function withToken(access: Access, refreshed: Envelope): Access {
  expect(refreshed.code).toBe('OK')
  return { ...access, tokens: { ...access.tokens, access_token: String(refreshed.data.access_token) } }
}
