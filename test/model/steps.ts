// The steps of the model-based test: each does one thing to the service and to the model and compares the answers.

import { createHash } from 'node:crypto'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { ConnectError } from '@connectrpc/connect'
import fc from 'fast-check'
import { expect } from 'vitest'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import { reasonIn } from '../../services/rpc/service-error.js'
import type { Verbs } from '../harness/verbs.js'
import type { Answer, Boundary, Model, ModelApp, ModelCode, ModelForm, ModelGrant, ModelUser } from './model.js'

/** The service under test; a restart puts another in its place. */
export interface Real {
  service: Verbs
  restart(): Promise<void>
  /** Steps run so far, by name. */
  readonly counts: Map<string, number>
}

type Work = (model: Model, real: Real) => Promise<string>

/** A step of a run; its text is what a counterexample shows, with the outcome of the last time it ran. */
class Step implements fc.AsyncCommand<Model, Real> {
  #outcome = ''

  constructor(
    readonly name: string,
    readonly details: string,
    readonly isPossible: (model: Readonly<Model>) => boolean,
    readonly work: Work,
  ) {}

  check(model: Readonly<Model>): boolean {
    return this.isPossible(model)
  }

  async run(model: Model, real: Real): Promise<void> {
    real.service.clock.advance({ ms: 1 }) // nothing happens at the same time, so "the oldest" is always one
    model.nowMs = real.service.clock.now()
    real.counts.set(this.name, (real.counts.get(this.name) ?? 0) + 1)
    this.#outcome = 'failed'
    this.#outcome = await this.work(model, real)
  }

  toString(): string {
    return `${this.name}(${this.details}) → ${this.#outcome}`
  }
}

const always = () => true
const hasCode = ({ codes }: Readonly<Model>) => codes.length > 0
const hasGrant = ({ grants }: Readonly<Model>) => grants.length > 0

/** The nth from the end: small numbers pick what happened lately. */
function nth<T>(list: readonly T[], n: number): T {
  const item = list[list.length - 1 - (n % list.length)]
  if (item === undefined) throw new Error('nothing to choose from')
  return item
}

const lately = fc.oneof({ weight: 4, arbitrary: fc.nat({ max: 1 }) }, { weight: 1, arbitrary: fc.nat({ max: 30 }) })
const either = fc.nat({ max: 1 })
const often = fc.integer({ min: 0, max: 9 }).map((n) => n !== 9)
const MADE_UP = 'made-up'

/** The wire's error type, or `OK`. */
async function askHttp(real: Real, path: string, query: Record<string, string | undefined>) {
  const envelope = await real.service.get(path, query)
  return { answer: envelope.code === 'OK' ? 'OK' : envelope.type, data: envelope.data }
}

/** The reason an RPC fails with, or `OK`. */
async function askRpc<T>(call: Promise<T>): Promise<{ answer: string; response?: T }> {
  try {
    return { answer: 'OK', response: await call }
  } catch (error) {
    const reason = reasonIn(ConnectError.from(error))
    if (reason === undefined) throw new Error(String(error)) // the error itself prints on many pages
    return { answer: ErrorReason[reason] }
  }
}

function expectAnswer(actual: string, expected: Answer): void {
  expect(actual, 'the answer').toBe(expected)
}

// -- Authorization ---------------------------------------------------------------------------------------------------

async function signIn(model: Model, real: Real, user: ModelUser): Promise<boolean> {
  const { username, password, session } = user
  const request = { username, password, source: '127.0.0.1', previousSessionToken: session ?? '' }
  const { answer, response } = await askRpc(real.service.backend.asGateway.account.signIn(request))
  expectAnswer(answer, model.signIn(user))
  user.session = response?.sessionToken
  user.signedInAtMs = model.nowMs
  return response !== undefined
}

/** A session is used only while it cannot have idled out: its end is not under test here. */
const SESSION_MS = 600_000

/** The user's session, or a new one; false when they cannot sign in. */
async function isSignedIn(model: Model, real: Real, user: ModelUser): Promise<boolean> {
  if (user.session !== undefined && model.nowMs - user.signedInAtMs < SESSION_MS) return true
  return signIn(model, real, user)
}

let forms = 0

async function confirm(
  model: Model,
  real: Real,
  app: ModelApp,
  user: ModelUser,
  uri: string,
  form: ModelForm,
  verifier: string | undefined,
) {
  const expected = model.confirm(app, user, uri, form, verifier)
  const codeChallenge = verifier && createHash('sha256').update(verifier).digest('base64url')
  const { answer, response } = await askRpc(
    real.service.backend.asGateway.token.issueCode({
      sessionToken: form.session,
      requestId: form.id,
      appid: app.appid,
      redirectUri: uri,
      scope: 'snsapi_user',
      ...(codeChallenge && { codeChallenge }),
      permissions: form.readsAnswers ? [Permission.READ_ANSWERS] : [],
    }),
  )
  expectAnswer(answer, expected.answer)
  const { code } = expected
  if (code === undefined || response === undefined) return answer
  if (!expected.isNew) {
    expect(response.code, "the form's live code").toBe(code.text)
    return 'the same code'
  }
  const [earlier, ...more] = model.codes.filter(({ text }) => text === response.code)
  expect(more).toEqual([])
  if (earlier) {
    expect(earlier.state, 'an earlier code of this text').toBe('killed') // a used or expired one never comes back
    model.codes.splice(model.codes.indexOf(earlier), 1)
  }
  code.text = response.code
  return `code ${model.codes.indexOf(code)}`
}

const VERIFIERS = ['first', 'second'].map((text) => text.padEnd(43, '.~'))
const verifier = fc.constantFrom(undefined, undefined, ...VERIFIERS)

const authorize = fc.record({ app: either, user: either, uri: either, verifier }).map(
  (wish) =>
    new Step(
      'authorize',
      `app ${wish.app}, user ${wish.user}, uri ${wish.uri}, ${wish.verifier}`,
      always,
      async (model, real) => {
        const app = model.apps[wish.app] as ModelApp
        const user = model.users[wish.user] as ModelUser
        if (!(await isSignedIn(model, real, user))) return 'no sign-in'
        forms += 1
        const form = {
          id: `form-${String(forms).padStart(16, '0')}`,
          session: user.session ?? '',
          readsAnswers: app.readsAnswers,
        }
        return confirm(model, real, app, user, app.redirectUris[wish.uri] ?? '', form, wish.verifier)
      },
    ),
)

const confirmAgain = lately.map(
  (n) =>
    new Step(
      'confirm the same form again',
      `of code -${n}`,
      (model) => hasCode(model) && model.nowMs - nth(model.codes, n).user.signedInAtMs < SESSION_MS,
      (model, real) => {
        const { app, user, redirectUri, form, verifier } = nth(model.codes, n)
        return confirm(model, real, app, user, redirectUri, form, verifier)
      },
    ),
)

// -- What apps do ----------------------------------------------------------------------------------------------------

type SecretWish = 'right' | 'older' | 'other app' | 'made up'
const secretWish = fc.oneof(
  { weight: 8, arbitrary: fc.constant<SecretWish>('right') },
  { weight: 4, arbitrary: fc.constantFrom<SecretWish[]>('older', 'other app', 'made up') },
)

/** `right` is the newest secret, which may have been revoked or have expired meanwhile. */
function secretOf(model: Model, app: ModelApp, wish: SecretWish): string {
  const ofOther = model.apps.find((other) => other !== app)
  if (wish === 'right') return nth(app.secrets, 0).text
  if (wish === 'older') return nth(app.secrets, 1).text
  return wish === 'other app' ? (ofOther?.secrets[0]?.text ?? MADE_UP) : MADE_UP
}

function appOf(model: Model, app: ModelApp, isOwn: boolean): ModelApp {
  return isOwn ? app : (model.apps.find((other) => other !== app) ?? app)
}

type UriWish = 'none' | 'same' | 'other'
const uriWish = fc.constantFrom<UriWish[]>('none', 'none', 'same', 'other')

function uriOf(code: ModelCode, wish: UriWish): string | undefined {
  if (wish === 'none') return undefined
  return wish === 'same' ? code.redirectUri : code.app.redirectUris.find((uri) => uri !== code.redirectUri)
}

interface Exchange {
  readonly app: ModelApp
  readonly secret: string
  readonly code: ModelCode
  readonly redirectUri: string | undefined
  readonly verifier: string | undefined
}

function askToExchange(real: Real, { app, secret, code, redirectUri, verifier }: Exchange) {
  return askHttp(real, '/api/oauth2/access_token', {
    appid: app.appid,
    secret,
    code: code.text,
    grant_type: 'authorization_code',
    redirect_uri: redirectUri,
    code_verifier: verifier,
  })
}

/** Takes over the service's names for the parts of a grant, and checks the openid against decisions 14. */
async function adopt(model: Model, real: Real, grant: ModelGrant, data: Record<string, unknown>): Promise<string> {
  const [token] = grant.tokens
  if (token === undefined) throw new Error('a grant without a token')
  token.text = String(data.access_token)
  grant.refreshToken = String(data.refresh_token)
  grant.openid = String(data.openid)
  expect(data.expires_in).toBe(model.rules.accessTokenMs / 1000)
  for (const other of model.grants) {
    const isSamePair = other.app === grant.app && other.user === grant.user
    expect(other.openid === grant.openid, 'one openid for one app and user').toBe(isSamePair)
  }
  const request = { appid: grant.app.appid, accessToken: token.text }
  grant.id = (await real.service.backend.token.verifyAccessToken(request)).grantId
  return `grant ${model.grants.indexOf(grant)}`
}

async function exchange(model: Model, real: Real, wish: Exchange): Promise<string> {
  const expected = model.exchange(wish.app, wish.secret, wish.code, wish.redirectUri, wish.verifier)
  const { answer, data } = await askToExchange(real, wish)
  expectAnswer(answer, expected.answer)
  return expected.grant ? adopt(model, real, expected.grant, data) : answer
}

const exchanges = fc
  .record({ code: lately, secret: secretWish, isOwnApp: often, uri: uriWish, isOwnVerifier: often, verifier })
  .map(
    (wish) =>
      new Step(
        'exchange',
        `code -${wish.code}, secret ${wish.secret}, ${wish.isOwnApp ? 'its' : 'other'} app, uri ${wish.uri}, ${wish.isOwnVerifier ? 'its verifier' : wish.verifier}`,
        hasCode,
        (model, real) => {
          const code = nth(model.codes, wish.code)
          const app = appOf(model, code.app, wish.isOwnApp)
          const secret = secretOf(model, app, wish.secret)
          const verifier = wish.isOwnVerifier ? code.verifier : wish.verifier
          return exchange(model, real, { app, secret, code, redirectUri: uriOf(code, wish.uri), verifier })
        },
      ),
  )

const exchangesAtOnce = lately.map(
  (n) =>
    new Step('exchange three times at once', `code -${n}`, hasCode, async (model, real) => {
      const code = nth(model.codes, n)
      const { app, verifier } = code
      const wish = { app, secret: nth(app.secrets, 0).text, code, redirectUri: undefined, verifier }
      const expected = [1, 2, 3].map(() => model.exchange(app, wish.secret, code, undefined, verifier))
      const answers = await Promise.all([1, 2, 3].map(() => askToExchange(real, wish)))
      expect(answers.map(({ answer }) => answer).sort()).toEqual(expected.map(({ answer }) => answer).sort())
      const grant = expected.find((one) => one.grant)?.grant
      const won = answers.find(({ answer }) => answer === 'OK')
      return grant && won ? adopt(model, real, grant, won.data) : (answers[0]?.answer ?? '')
    }),
)

function askToRefresh(real: Real, app: ModelApp, grant: ModelGrant, secret: string) {
  return askHttp(real, '/api/oauth2/refresh_token', {
    appid: app.appid,
    refresh_token: grant.refreshToken,
    grant_type: 'refresh_token',
    secret: secret === '' ? undefined : secret,
  })
}

async function refresh(model: Model, real: Real, app: ModelApp, grant: ModelGrant, secret: string): Promise<string> {
  const expected = model.refresh(app, grant, secret)
  const { answer, data } = await askToRefresh(real, app, grant, secret)
  expectAnswer(answer, expected.answer)
  if (!expected.token) return answer
  const { text, expiresAtMs } = expected.token
  expect(data).toEqual({
    access_token: text || expect.any(String),
    expires_in: Math.floor((expiresAtMs - model.nowMs) / 1000),
  })
  expected.token.text = String(data.access_token)
  return `token ${grant.tokens.length - 1}`
}

const refreshes = fc
  .record({
    grant: lately,
    secret: fc.oneof({ weight: 3, arbitrary: fc.constant('none' as const) }, { weight: 1, arbitrary: secretWish }),
    isOwnApp: often,
  })
  .map(
    (wish) =>
      new Step(
        'refresh',
        `grant -${wish.grant}, secret ${wish.secret}, ${wish.isOwnApp ? 'its' : 'other'} app`,
        hasGrant,
        async (model, real) => {
          const grant = nth(model.grants, wish.grant)
          const app = appOf(model, grant.app, wish.isOwnApp)
          // The API refuses an app that must authenticate and sends nothing in the same way as one that sends nonsense.
          const secret = wish.secret === 'none' ? '' : secretOf(model, app, wish.secret)
          return refresh(model, real, app, grant, secret)
        },
      ),
  )

const refreshDuringRevocation = lately.map(
  (n) =>
    new Step('refresh while the operator revokes', `grant -${n}`, hasGrant, async (model, real) => {
      const grant = nth(model.grants, n)
      const [first, , second] = await Promise.all([
        askToRefresh(real, grant.app, grant, ''),
        revokeByOperator(model, real, grant),
        askToRefresh(real, grant.app, grant, ''),
      ])
      const { answer } = model.refresh(grant.app, grant, '')
      model.revoke(grant)
      for (const reply of [first, second]) {
        if (reply.answer !== 'OK') expect([answer, 'invalid_refresh_token']).toContain(reply.answer)
        else {
          expect(answer).toBe('OK')
          grant.tokens.push({
            text: String(reply.data.access_token),
            refreshedAtMs: undefined,
            expiresAtMs: model.nowMs + 1000,
          })
        }
      }
      grant.tokens.splice(0, grant.tokens.length, ...grant.tokens.filter(({ text }) => text !== ''))
      return `${first.answer}, ${second.answer}`
    }),
)

interface Exchanged {
  readonly app: ModelApp
  readonly grant: ModelGrant
  readonly token: ModelGrant['tokens'][number]
  readonly openid: string
}

async function user(model: Model, real: Real, wish: Exchanged): Promise<string> {
  const { app, grant, token, openid } = wish
  const expected = model.user(app, grant, token, openid)
  const query = { appid: app.appid, access_token: token.text, openid }
  const { answer, data } = await askHttp(real, '/api/oauth2/user', query)
  expectAnswer(answer, expected)
  if (answer === 'OK') expect(data).toEqual({ openid, nickname: grant.user.nickname, avatar: '' })
  return answer
}

const users = fc.record({ grant: lately, token: lately, isOwnApp: often, isOwnOpenid: often }).map(
  (wish) =>
    new Step(
      'user',
      `grant -${wish.grant}, token -${wish.token}, ${wish.isOwnApp ? 'its' : 'other'} app, ${wish.isOwnOpenid ? 'its' : 'other'} openid`,
      hasGrant,
      (model, real) => {
        const grant = nth(model.grants, wish.grant)
        const other = model.grants.find(({ openid }) => openid !== grant.openid)
        return user(model, real, {
          app: appOf(model, grant.app, wish.isOwnApp),
          grant,
          token: nth(grant.tokens, wish.token),
          openid: wish.isOwnOpenid ? grant.openid : (other?.openid ?? MADE_UP),
        })
      },
    ),
)

async function answers(model: Model, real: Real, { app, grant, token }: Omit<Exchanged, 'openid'>): Promise<string> {
  const request = { appid: app.appid, accessToken: token.text, permission: Permission.READ_ANSWERS }
  const { answer } = await askRpc(real.service.backend.token.verifyAccessToken(request))
  expectAnswer(answer, model.answers(app, grant, token))
  return answer
}

const readsAnswers = fc.record({ grant: lately, token: lately, isOwnApp: often }).map(
  (wish) =>
    new Step(
      'read answers',
      `grant -${wish.grant}, token -${wish.token}, ${wish.isOwnApp ? 'its' : 'other'} app`,
      hasGrant,
      (model, real) => {
        const grant = nth(model.grants, wish.grant)
        const [app, token] = [appOf(model, grant.app, wish.isOwnApp), nth(grant.tokens, wish.token)]
        return answers(model, real, { app, grant, token })
      },
    ),
)

// -- What ends things ------------------------------------------------------------------------------------------------

/** A grant without a live token that the janitor has removed is not found; every other is. */
function expectFound(model: Model, grant: ModelGrant, answer: string): void {
  if (answer === 'NOT_FOUND') expect(model.hasGoodToken(grant), 'a grant that is not found has ended').toBe(false)
  else expect(answer).toBe('OK')
}

async function revokeByOperator(model: Model, real: Real, grant: ModelGrant): Promise<string> {
  const { answer } = await askRpc(real.service.admin.revokeGrant({ grantId: grant.id }))
  expectFound(model, grant, answer)
  return answer
}

const operatorRevokes = lately.map(
  (n) =>
    new Step('the operator revokes', `grant -${n}`, hasGrant, async (model, real) => {
      const grant = nth(model.grants, n)
      const answer = await revokeByOperator(model, real, grant)
      model.revoke(grant)
      return answer
    }),
)

const userDisconnects = fc.record({ grant: lately, isOwn: often }).map(
  (wish) =>
    new Step(
      'a user disconnects',
      `grant -${wish.grant}, ${wish.isOwn ? 'their own' : "another's"}`,
      hasGrant,
      async (model, real) => {
        const grant = nth(model.grants, wish.grant)
        const { username } = grant.user // whoever has the name now
        const by = model.users.find((user) => (user.username === username) === wish.isOwn) as ModelUser
        if (!(await isSignedIn(model, real, by))) return 'no sign-in'
        const request = { sessionToken: by.session ?? '', grantId: grant.id }
        const { answer } = await askRpc(real.service.backend.asGateway.account.disconnectApp(request))
        if (by !== grant.user) expect(answer).toBe('NOT_FOUND')
        else {
          expectFound(model, grant, answer)
          if (answer === 'OK') model.disconnect(grant)
        }
        return answer
      },
    ),
)

const DAY_MS = 86_400_000

const addsSecret = fc.record({ app: either, isShortLived: fc.boolean() }).map(
  (wish) =>
    new Step(
      'add a secret',
      `app ${wish.app}, ${wish.isShortLived ? 'for a day' : 'for ever'}`,
      always,
      async (model, real) => {
        const app = model.apps[wish.app] as ModelApp
        const expiresAtMs = wish.isShortLived ? model.nowMs + DAY_MS : Number.MAX_SAFE_INTEGER
        const { secretId, secret } = await real.service.admin.addAppSecret({
          appid: app.appid,
          name: `secret ${app.secrets.length}`,
          ...(wish.isShortLived ? { expireTime: timestampFromMs(expiresAtMs) } : {}),
        })
        app.secrets.push({ id: secretId, text: secret, expiresAtMs, isRevoked: false })
        return 'OK'
      },
    ),
)

const revokesSecret = fc.record({ app: either, secret: lately }).map(
  (wish) =>
    new Step('revoke a secret', `app ${wish.app}, secret -${wish.secret}`, always, async (model, real) => {
      const app = model.apps[wish.app] as ModelApp
      const secret = nth(app.secrets, wish.secret)
      await real.service.admin.revokeAppSecret({ appid: app.appid, secretId: secret.id })
      secret.isRevoked = true
      return 'OK'
    }),
)

const disablesApp = fc.record({ app: either, isDisabled: fc.boolean() }).map(
  (wish) =>
    new Step(wish.isDisabled ? 'disable an app' : 'enable an app', `app ${wish.app}`, always, async (model, real) => {
      const app = model.apps[wish.app] as ModelApp
      await real.service.admin.setAppDisabled({ appid: app.appid, disabled: wish.isDisabled })
      model.setAppDisabled(app, wish.isDisabled)
      return 'OK'
    }),
)

const permitsAnswers = fc.record({ app: either, readsAnswers: fc.boolean() }).map(
  (wish) =>
    new Step(
      wish.readsAnswers ? 'let an app ask for answers' : 'refuse an app answers',
      `app ${wish.app}`,
      always,
      async (model, real) => {
        const app = model.apps[wish.app] as ModelApp
        const { readsAnswers } = wish
        await real.service.admin.updateApp({ appid: app.appid, readsAnswers })
        app.readsAnswers = readsAnswers
        return 'OK'
      },
    ),
)

const changesProfile = fc.record({ user: either, nickname: fc.constantFrom('', 'Ming', '小明') }).map(
  (wish) =>
    new Step('change a profile', `user ${wish.user}, '${wish.nickname}'`, always, async (model, real) => {
      const target = model.users[wish.user] as ModelUser
      await real.service.admin.updateUser({ username: target.username, nickname: wish.nickname })
      target.nickname = wish.nickname
      return 'OK'
    }),
)

const disablesUser = fc.record({ user: either, isDisabled: fc.boolean() }).map(
  (wish) =>
    new Step(wish.isDisabled ? 'disable a user' : 'enable a user', `user ${wish.user}`, always, async (model, real) => {
      const target = model.users[wish.user] as ModelUser
      await real.service.admin.setUserDisabled({ username: target.username, disabled: wish.isDisabled })
      model.setUserDisabled(target, wish.isDisabled)
      return 'OK'
    }),
)

const deletesUser = fc.record({ user: either }).map(
  (wish) =>
    new Step('delete a user and give the name again', `user ${wish.user}`, always, async (model, real) => {
      const target = model.users[wish.user] as ModelUser
      const { username, password } = target
      const { admin } = real.service
      await admin.setUserDisabled({ username, disabled: true })
      await admin.deleteUser({ username })
      await admin.createUser({ username, password, nickname: '', avatar: '' })
      model.deleteUser(target)
      return 'OK'
    }),
)

// -- Time and processes ----------------------------------------------------------------------------------------------

const boundary = fc.record({
  n: fc.oneof(fc.constant(0), fc.nat({ max: 8 })),
  offsetMs: fc.integer({ min: -1, max: 1 }),
})
type BoundaryWish = { readonly n: number; readonly offsetMs: number }

function describeBoundary({ n, offsetMs }: BoundaryWish): string {
  return `${['1 ms before', 'exactly', '1 ms after'][offsetMs + 1]} boundary ${n}`
}

/** Whether a boundary is still ahead when the step runs, a millisecond later. */
const hasBoundary = (model: Readonly<Model>) => model.boundaries().some(({ atMs }) => atMs > model.nowMs + 4)

/** Moves the clock so that it shows the boundary `aheadMs` from now. */
function goTo(model: Model, real: Real, wish: BoundaryWish, aheadMs: number): Boundary {
  const boundaries = model.boundaries()
  const chosen = boundaries[wish.n % boundaries.length] as Boundary
  real.service.clock.advance({ ms: chosen.atMs + wish.offsetMs - model.nowMs - aheadMs })
  model.nowMs = real.service.clock.now()
  return chosen
}

const advances = boundary.map(
  (wish) =>
    new Step('go to', describeBoundary(wish), hasBoundary, async (model, real) => {
      const beforeMs = model.nowMs
      goTo(model, real, wish, 1) // the next step adds one
      return `${model.nowMs - beforeMs} ms later`
    }),
)

const probes = boundary.map(
  (wish) =>
    new Step('ask for what changes', describeBoundary(wish), hasBoundary, async (model, real) => {
      const { code, grant, token } = goTo(model, real, wish, 0).of
      const newest = (app: ModelApp) => nth(app.secrets, 0).text
      if (code) {
        const { app, verifier } = code
        const wish = { app, secret: newest(app), code, redirectUri: undefined, verifier }
        return `exchange: ${await exchange(model, real, wish)}`
      }
      if (grant && token) {
        return `user: ${await user(model, real, { app: grant.app, grant, token, openid: grant.openid })}`
      }
      return grant ? `refresh: ${await refresh(model, real, grant.app, grant, newest(grant.app))}` : ''
    }),
)

const restarts = fc.constant(
  new Step('restart', '', always, async (_model, real) => {
    await real.restart()
    return 'OK'
  }),
)

const tidies = fc.constant(
  new Step('the janitor runs', '', always, async (_model, real) => {
    await real.service.backend.runJanitors()
    return 'OK'
  }),
)

export const anyStep = fc.oneof(
  { weight: 16, arbitrary: authorize },
  { weight: 2, arbitrary: confirmAgain },
  { weight: 20, arbitrary: exchanges },
  { weight: 2, arbitrary: exchangesAtOnce },
  { weight: 16, arbitrary: refreshes },
  { weight: 2, arbitrary: refreshDuringRevocation },
  { weight: 20, arbitrary: users },
  { weight: 8, arbitrary: readsAnswers },
  { weight: 3, arbitrary: operatorRevokes },
  { weight: 3, arbitrary: userDisconnects },
  { weight: 2, arbitrary: addsSecret },
  { weight: 1, arbitrary: revokesSecret },
  { weight: 3, arbitrary: disablesApp },
  { weight: 4, arbitrary: permitsAnswers },
  { weight: 3, arbitrary: disablesUser },
  { weight: 3, arbitrary: changesProfile },
  { weight: 2, arbitrary: deletesUser },
  { weight: 6, arbitrary: advances },
  { weight: 8, arbitrary: probes },
  { weight: 1, arbitrary: restarts },
  { weight: 1, arbitrary: tidies },
)

/** Asks for everything the model knows, so that no run ends with an unnoticed difference. */
export async function compareAll(model: Model, real: Real): Promise<void> {
  for (const grant of model.grants) {
    for (const token of grant.tokens) {
      await user(model, real, { app: grant.app, grant, token, openid: grant.openid })
      await answers(model, real, { app: grant.app, grant, token })
    }
  }
  for (const person of model.users) {
    if (!(await isSignedIn(model, real, person))) continue
    const { apps } = await real.service.backend.asGateway.account.listConnectedApps({
      sessionToken: person.session ?? '',
    })
    const good = model.grants.filter((grant) => grant.user === person && model.hasGoodToken(grant)).reverse()
    const newest = good.filter((grant, at) => good.findIndex(({ app }) => app === grant.app) === at)
    expect(apps.map(({ grantId }) => grantId)).toEqual(newest.map(({ id }) => id))
  }
  for (const code of model.codes) {
    const { app, verifier } = code
    await exchange(model, real, { app, secret: nth(app.secrets, 0).text, code, redirectUri: undefined, verifier })
  }
}
