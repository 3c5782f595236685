// The services behind the pages, in memory: enough to sign in, authorize and disconnect, and to fail when told to.
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { createClient, createRouterTransport, type HandlerContext } from '@connectrpc/connect'
import type { GatewayDeps } from '../../gateway/http.js'
import { createLook } from '../../gateway/pages/look.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Reason, ServiceError, toConnectError } from '../../services/rpc/service-error.js'

const DAY_MS = 86_400_000

export class FakeServices {
  /** What the apps page lists. */
  grants = new Map<string, { appName: string; appid: string; redirectUris?: string[] }>()
  app = { appid: 'app1', name: 'Harvest Insights', redirectUris: ['https://app.example/callback'] }
  user = { username: 'lin', password: 'right password', nickname: 'Lin Xiaomei' }
  nowMs = Date.UTC(2026, 10, 21, 0, 30)
  /** Every RPC fails with this, when set. */
  failure: Reason | 'bug' | undefined
  /** The next sign-in is refused for this many seconds, when above 0. */
  signInWaitSeconds = 0
  readonly sessions = new Set<string>()
  /** Codes by the id of the confirmed form. */
  readonly codes = new Map<string, string>()
  readonly calls: string[] = []
  /** For each call: the request id it names, and its timeout. */
  readonly causes: { readonly requestId: string | null; readonly timeoutMs: number | undefined }[] = []
  #random = 0

  deps(publicUrl: string): GatewayDeps {
    const transport = createRouterTransport(({ service }) => {
      service(TokenService, {
        checkAuthorizationRequest: (asked, context) => {
          this.#called('checkAuthorizationRequest', context)
          this.#check(asked)
          return { appName: this.app.name, refreshTokenTtlSeconds: 2_592_000 }
        },
        issueCode: (request, context) => {
          this.#called('issueCode', context)
          this.#requireSession(request.sessionToken)
          const code = this.codes.get(request.requestId) ?? `code${this.codes.size + 1}`
          this.codes.set(request.requestId, code)
          return { code, expireTime: timestampFromMs(this.nowMs + 300_000) }
        },
      })
      service(AccountService, {
        listSignInMethods: () => ({ password: true }),
        signIn: (typed, context) => {
          this.#called('signIn', context)
          if (this.signInWaitSeconds > 0) throw failure(ErrorReason.RATE_LIMITED, this.signInWaitSeconds)
          const { username, password } = this.user
          if (typed.username !== username || typed.password !== password) throw failure(ErrorReason.INVALID_CREDENTIALS)
          this.sessions.delete(typed.previousSessionToken)
          const sessionToken = `session${++this.#random}`
          this.sessions.add(sessionToken)
          return { sessionToken, expireTime: timestampFromMs(this.nowMs + DAY_MS) }
        },
        signOut: ({ sessionToken }, context) => {
          this.#called('signOut', context)
          this.sessions.delete(sessionToken)
          return {}
        },
        getSession: ({ sessionToken, appid }, context) => {
          this.#called('getSession', context)
          this.#requireSession(sessionToken)
          return {
            username: this.user.username,
            nickname: this.user.nickname,
            avatar: 'https://elsewhere.example/a.png',
            ...([...this.grants.values()].some((app) => app.appid === appid) && {
              connectTime: timestampFromMs(this.nowMs - 3 * DAY_MS),
            }),
          }
        },
        getAccount: ({ sessionToken }, context) => {
          this.#called('getAccount', context)
          this.#requireSession(sessionToken)
          const times = { startTime: timestampFromMs(this.nowMs - DAY_MS), lastSeenTime: timestampFromMs(this.nowMs) }
          const corp = { provider: 'corp', labelEn: 'Corp account', labelZh: '企业账号' }
          const [way, elsewhere] = [{ password: true }, { provider: corp }]
          return {
            username: this.user.username,
            nickname: this.user.nickname,
            hasPassword: true,
            way,
            identities: [{ provider: corp, subject: 'u-1', createTime: times.startTime, canUnlink: true }],
            sessions: [
              { sessionId: 'a', isThis: true, browser: 'Firefox, Linux', way, ...times },
              { sessionId: 'b', browser: 'WeChat, Android', way: elsewhere, ...times },
              { sessionId: 'c', browser: '', way, ...times },
            ],
          }
        },
        listConnectedApps: ({ sessionToken }, context) => {
          this.#called('listConnectedApps', context)
          this.#requireSession(sessionToken)
          const times = {
            createTime: timestampFromMs(this.nowMs - 3 * DAY_MS),
            lastUseTime: timestampFromMs(this.nowMs),
            expireTime: timestampFromMs(this.nowMs + 27 * DAY_MS),
          }
          const apps = [...this.grants].map(([grantId, app]) => ({ grantId, ...app, scope: 'snsapi_user', ...times }))
          return { apps }
        },
        disconnectApp: ({ sessionToken, grantId }, context) => {
          this.#called('disconnectApp', context)
          this.#requireSession(sessionToken)
          if (!this.grants.delete(grantId)) throw failure(ErrorReason.NOT_FOUND)
          return {}
        },
      })
      service(SurveyService, {})
    })
    return {
      token: createClient(TokenService, transport),
      account: createClient(AccountService, transport),
      survey: createClient(SurveyService, transport),
      publicUrl: new URL(publicUrl),
      look: createLook(),
      now: () => this.nowMs,
      randomBytes: (size) => new Uint8Array(size).fill(++this.#random),
    }
  }

  #called(method: string, { requestHeader, timeoutMs }: HandlerContext): void {
    this.calls.push(method)
    this.causes.push({ requestId: requestHeader.get('x-request-id'), timeoutMs: timeoutMs() })
    if (this.failure === 'bug') throw new Error('a bug')
    if (this.failure !== undefined) throw failure(this.failure)
  }

  #check(asked: { appid: string; redirectUri: string; responseType: string; scope: string; state: string }): void {
    if (asked.appid !== this.app.appid) throw failure(ErrorReason.INVALID_APPID)
    if (!this.app.redirectUris.includes(asked.redirectUri)) throw failure(ErrorReason.INVALID_REDIRECT_URI)
    if (asked.responseType !== 'code') throw failure(ErrorReason.INVALID_RESPONSE_TYPE)
    if (asked.scope !== 'snsapi_user') throw failure(ErrorReason.INVALID_SCOPE)
    if (!/^[a-zA-Z0-9]{0,128}$/.test(asked.state)) throw failure(ErrorReason.INVALID_STATE)
  }

  #requireSession(sessionToken: string): void {
    if (!this.sessions.has(sessionToken)) throw failure(ErrorReason.INVALID_SESSION)
  }
}

function failure(reason: Reason, retryAfterSeconds = 0) {
  return toConnectError(new ServiceError(reason, 'refused by the fake', { retryAfterSeconds }))
}
