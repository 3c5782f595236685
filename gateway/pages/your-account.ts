// A user's own account: how they are signed in and can sign in, their password and their sessions.
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type {
  GetAccountResponse,
  ListSignInMethodsResponse,
  Session,
  SignInProvider,
  SignInWay,
} from '../../gen/surveyauth/v1/account_service_pb.js'
import { toProblem } from '../errors.js'
import type { Answer, GatewayDeps, Route } from '../http.js'
import type { Params } from '../query.js'
import type { GatewayRequest } from '../request.js'
import { networkOf } from '../source.js'
import type { FormName, FormUse } from './csrf.js'
import { displayTime, displayUser, displayWait } from './display.js'
import { guarded } from './failures.js'
import { answerForm, csrfField, requireForm } from './forms.js'
import { type AccountNotice, isOfAccount } from './notice.js'
import { signInAgain, signInPage, waysElsewhere } from './sign-in.js'
import { leaveToLink } from './sign-in-elsewhere.js'
import { SIGN_OUT_PATH, signOutUse } from './sign-out.js'
import { fill } from './texts.js'
import { type FormView, type Message, redirectTo, renderPage, type SessionView } from './view.js'
import { ACCOUNT_PATH, isProblem, labelOf, openVisit, redirectWith, type Visit } from './visit.js'

const PATHS = {
  change_password: `${ACCOUNT_PATH}/password`,
  end_sessions: `${ACCOUNT_PATH}/sessions`,
  link: `${ACCOUNT_PATH}/link`,
  unlink: `${ACCOUNT_PATH}/unlink`,
} as const satisfies Partial<Record<FormName, string>>
type AccountForm = keyof typeof PATHS

export const ACCOUNT_FORM_PATHS = Object.values(PATHS)

export const yourAccountRoutes: readonly Route[] = [
  { name: 'account', method: 'GET', path: ACCOUNT_PATH, kind: 'page', answer: show },
  // Where password managers look for the page. https://w3c.github.io/webappsec-change-password-url/
  {
    name: 'change_password_url',
    method: 'GET',
    path: '/.well-known/change-password',
    kind: 'page',
    answer: async () => redirectTo(ACCOUNT_PATH, { outcome: 'account' }),
  },
  formRoute('change_password', changePassword),
  formRoute('end_sessions', endSessions),
  formRoute('link', link),
  formRoute('unlink', unlink),
]

type Act = (visit: Visit, sessionToken: string, form: Params) => Promise<Answer>

/** What a form is about, besides the session. */
const signed: Readonly<Record<AccountForm, readonly string[]>> = {
  change_password: [],
  end_sessions: ['session_id'],
  link: ['provider'],
  unlink: ['provider', 'subject'],
}

function formRoute(name: AccountForm, act: Act): Route {
  const answer = (request: GatewayRequest, deps: GatewayDeps) =>
    answerForm(request, deps, async (visit, form) => {
      const { sessionToken } = visit
      if (sessionToken === undefined) return signInAgain(visit, undefined, 'signedOut')
      const about = signed[name].map((field) => form.optional(field, 255))
      requireForm(visit, form, useOf(name, sessionToken, about))
      try {
        return await act(visit, sessionToken, form)
      } catch (error) {
        if (isProblem(error, 'invalid_session')) return signInAgain(visit, undefined, 'signedOut')
        throw error
      }
    })
  return { name, method: 'POST', path: PATHS[name], kind: 'page', answer }
}

const useOf = (form: AccountForm, sessionToken: string, about: readonly string[]): FormUse => {
  return { form, sessionToken, about }
}

function formOf(visit: Visit, name: AccountForm, values: readonly string[] = []): FormView {
  const fields = signed[name].map((field, at) => ({ name: field, value: values[at] ?? '' }))
  const csrf = csrfField(visit, useOf(name, visit.sessionToken ?? '', values))
  return { action: PATHS[name], hidden: [...fields, csrf] }
}

function show(request: GatewayRequest, deps: GatewayDeps): Promise<Answer> {
  const visit = openVisit(request, deps)
  return guarded(visit, ACCOUNT_PATH, async () => {
    const { sessionToken } = visit
    if (sessionToken === undefined) return signInPage(visit, undefined)
    try {
      const [account, methods] = await Promise.all([
        deps.account.getAccount({ sessionToken }, request.rpc),
        deps.account.listSignInMethods({}, request.rpc),
      ])
      return accountPage(visit, account, methods)
    } catch (error) {
      if (isProblem(error, 'invalid_session')) return signInPage(visit, undefined)
      throw error
    }
  })
}

function accountPage(visit: Visit, account: GetAccountResponse, { providers }: ListSignInMethodsResponse): Answer {
  const { language, t, sessionToken, notice, setCookies, deps } = visit
  const { username, hasPassword, justBegan, identities, sessions } = account
  const linkable = providers.filter(({ provider }) => !identities.some((of) => of.provider?.provider === provider))
  return renderPage(
    deps.look,
    'your-account',
    { language, title: t.account.title, href: ACCOUNT_PATH, isWide: true },
    {
      user: displayUser(account, deps.publicUrl),
      leave: { action: SIGN_OUT_PATH, hidden: [csrfField(visit, signOutUse(sessionToken, undefined))] },
      message: isOfAccount(notice) ? messageOf(visit, notice) : undefined,
      way: wayText(visit, account.way),
      username,
      password: hasPassword ? formOf(visit, 'change_password', []) : undefined,
      identities: identities.map(({ provider, subject, createTime, canUnlink }) => ({
        label: provider ? labelOf(visit, provider) : '',
        since: displayTime(createTime ? timestampMs(createTime) : 0, language),
        unlink: canUnlink ? formOf(visit, 'unlink', [provider?.provider ?? '', subject]) : undefined,
      })),
      linkable: linkable.map((provider) => ({
        label: fill(t.account.link, { place: labelOf(visit, provider) }),
        form: formOf(visit, 'link', [provider.provider]),
      })),
      signInAgain: waysElsewhere(visit, waysOf(account, providers), undefined, 'reauthenticate'),
      proof: justBegan ? 'none' : hasPassword ? 'password' : 'sign-in',
      sessions: sessions.map((session) => sessionView(visit, session)),
      endOthers: sessions.length > 1 ? formOf(visit, 'end_sessions', ['']) : undefined,
    },
    { status: 200, outcome: 'account', setCookies, headers: ['cross-origin-opener-policy', 'same-origin'] },
  )
}

/** Where the user can sign in elsewhere, as far as the account tells. */
function waysOf({ way, identities }: GetAccountResponse, providers: readonly SignInProvider[]) {
  const isLinked = ({ provider }: SignInProvider) => identities.some((of) => of.provider?.provider === provider)
  return { platform: way !== undefined && !way.password && !way.provider, providers: providers.filter(isLinked) }
}

function sessionView(visit: Visit, session: Session): SessionView {
  const { startTime, lastSeenTime, isThis, sessionId } = session
  const shown = (time: typeof startTime) => displayTime(time ? timestampMs(time) : 0, visit.language)
  return {
    browser: session.browser || visit.t.account.unknownBrowser,
    way: wayText(visit, session.way),
    started: shown(startTime),
    lastSeen: shown(lastSeenTime),
    end: isThis ? undefined : formOf(visit, 'end_sessions', [sessionId]),
  }
}

function wayText(visit: Visit, way: SignInWay | undefined): string {
  const { t } = visit
  if (way?.password) return t.account.byPassword
  return way?.provider ? fill(t.account.byProvider, { place: labelOf(visit, way.provider) }) : t.account.byPlatform
}

function messageOf({ t, language }: Visit, { about, detail }: AccountNotice): Message {
  const text = fill(t.account.notices[about], { wait: displayWait(Number(detail), language) })
  return { kind: WRONG.includes(about) ? 'alert' : 'done', text }
}

const WRONG: readonly AccountNotice['about'][] = [
  'passwordWrong',
  'passwordUnfit',
  'linkRefused',
  'unlinkRefused',
  'tooManyAttempts',
]

function done(visit: Visit, about: AccountNotice['about'], detail = ''): Answer {
  const outcome = about.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  return redirectWith(visit, ACCOUNT_PATH, { about, detail }, { outcome })
}

async function changePassword(visit: Visit, sessionToken: string, form: Params): Promise<Answer> {
  const { request, deps } = visit
  const currentPassword = form.first('current_password') ?? ''
  const newPassword = form.first('new_password') ?? ''
  if (currentPassword === '') return done(visit, 'passwordWrong')
  const typed = { sessionToken, currentPassword, newPassword, source: networkOf(request.source) }
  try {
    await deps.account.changePassword(typed, await request.rpcForClient())
    return done(visit, 'passwordChanged')
  } catch (error) {
    if (isProblem(error, 'invalid_argument')) return done(visit, 'passwordUnfit')
    return passwordRefused(visit, error, 'passwordWrong')
  }
}

function passwordRefused(visit: Visit, error: unknown, wrong: AccountNotice['about']): Answer {
  const { type, options } = toProblem(error)
  if (type === 'invalid_credentials') return done(visit, wrong)
  if (type === 'request_rate_limited') return done(visit, 'tooManyAttempts', String(options.retryAfterSeconds ?? 1))
  throw error
}

async function endSessions(visit: Visit, sessionToken: string, form: Params): Promise<Answer> {
  const sessionId = form.optional('session_id', 64)
  await visit.deps.account.endSessions({ sessionToken, sessionId }, visit.request.rpc)
  return done(visit, 'sessionsEnded')
}

async function link(visit: Visit, sessionToken: string, form: Params): Promise<Answer> {
  const password = form.first('current_password') ?? ''
  try {
    return await leaveToLink(visit, form.required('provider', 32), { sessionToken, password })
  } catch (error) {
    return passwordRefused(visit, error, 'linkRefused')
  }
}

async function unlink(visit: Visit, sessionToken: string, form: Params): Promise<Answer> {
  const identity = { provider: form.required('provider', 32), subject: form.required('subject', 255) }
  try {
    await visit.deps.account.unlink({ sessionToken, ...identity }, visit.request.rpc)
    return done(visit, 'unlinked')
  } catch (error) {
    if (isProblem(error, 'not_found')) return redirectTo(ACCOUNT_PATH, { outcome: 'not_linked' })
    if (isProblem(error, 'invalid_argument')) return done(visit, 'unlinkRefused')
    throw error
  }
}
