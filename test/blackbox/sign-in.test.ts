import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Form } from '../harness/html.js'
import { mode } from '../harness/mode.js'
import { authorizePath, type TestUser, type Verbs } from '../harness/verbs.js'
import { formWith, type Page, type Visitor } from '../harness/visitor.js'
import { openService, startService } from '../harness.js'

let service: Verbs
let user: TestUser
beforeAll(async () => {
  service = await openService({ isPasswordCostReal: true })
  user = await service.createUser()
})
afterAll(() => service.backend.close())

async function tryToSignIn(visitor: Visitor, username: string, password: string): Promise<Page> {
  const page = await visitor.open('/connect/apps')
  const form = signInForm(page)
  return visitor.submitAndFollow(page, form, { username, password })
}

function signInForm(page: Page): Form {
  const form = formWith(page, 'password')
  if (form === undefined) throw new Error(`no sign-in form on: ${page.html.text}`)
  return form
}

const isSignInPage = (page: Page) => formWith(page, 'password') !== undefined

describe('signing in', () => {
  test('answers an unknown user, a wrong password, a disabled user and one without a password alike', async () => {
    const disabled = await service.createUser()
    await service.admin.setUserDisabled({ username: disabled.username, disabled: true })
    const { user: elsewhere } = await service.admin.createUser({ username: 'from.elsewhere', externalId: '4711' })
    expect(elsewhere).toMatchObject({ externalId: '4711', hasPassword: false })
    const pages = [
      await tryToSignIn(service.visitor(), 'nobody', 'some password'),
      await tryToSignIn(service.visitor(), user.username, 'wrong password'),
      await tryToSignIn(service.visitor(), disabled.username, disabled.password),
      await tryToSignIn(service.visitor(), 'from.elsewhere', 'some password'),
    ]
    expect(pages.map(isSignInPage)).toEqual([true, true, true, true])
    expect(new Set(pages.map(({ html }) => html.text)).size).toBe(1)
  })

  test('accepts a password in composed and decomposed form, and no similar letters instead', async () => {
    const typed = 'Ångström-Việt-한국-ｗ ﬁ'
    for (const [set, given] of [
      [typed.normalize('NFC'), typed.normalize('NFD')],
      [typed.normalize('NFD'), typed.normalize('NFC')],
    ] as const) {
      expect(given).not.toBe(set)
      const { username } = await service.createUser({ password: set })
      for (const [password, isRight] of [
        [given, true],
        [set, true],
        [given.normalize('NFKC'), false],
        [given.toLowerCase(), false],
        [given.normalize('NFD').replaceAll(/\p{M}/gu, ''), false],
      ] as const) {
        expect(isSignInPage(await tryToSignIn(service.visitor(), username, password))).toBe(!isRight)
      }
      await service.admin.setUserPassword({ username, password: given })
      expect(isSignInPage(await tryToSignIn(service.visitor(), username, set))).toBe(false)
    }
  })

  test('takes about as long for an unknown user as for a wrong password', { retry: 2 }, async () => {
    const attempt = async (username: string) => {
      const visitor = service.visitor()
      const page = await visitor.open('/connect/apps')
      const startedAt = performance.now()
      await visitor.submit(page, signInForm(page), { username, password: 'wrong password' })
      return performance.now() - startedAt
    }
    // The fastest of several attempts in turn: the time of the work itself, whatever else the machine does.
    const fastest = { known: Number.POSITIVE_INFINITY, unknown: Number.POSITIVE_INFINITY }
    for (let i = 0; i < 10; i += 1) {
      fastest.known = Math.min(fastest.known, await attempt(user.username))
      fastest.unknown = Math.min(fastest.unknown, await attempt('nobody'))
    }
    const [short = 0, long = 0] = Object.values(fastest).sort((a, b) => a - b)
    expect(long / short).toBeLessThan(4) // without a comparison it would be about 20
  })

  test.each([
    { username: '', password: '' },
    { username: '', password: 'x' },
    { username: 'x', password: '' },
    { username: 'x'.repeat(500), password: 'x' },
    { username: 'x', password: 'x'.repeat(5_000) },
    { username: 'x\0y', password: 'x' },
    { username: "' OR 1=1 --", password: "' OR 1=1 --" },
    { username: '小明', password: '密码密码密码' },
  ])('with $username and $password shows the form again', async ({ username, password }) => {
    const page = await tryToSignIn(service.visitor(), username, password)
    expect(isSignInPage(page)).toBe(true)
    expect(page.text).not.toContain(`value="${'x'.repeat(200)}`)
  })

  test('never shows the password again', async () => {
    const page = await tryToSignIn(service.visitor(), user.username, 'canary-password-1')
    expect(page.text).not.toContain('canary-password-1')
  })

  test('is case-sensitive in name and password', async () => {
    expect(isSignInPage(await tryToSignIn(service.visitor(), user.username.toUpperCase(), user.password))).toBe(true)
    expect(isSignInPage(await tryToSignIn(service.visitor(), user.username, user.password.toUpperCase()))).toBe(true)
  })

  test('starts a session with a new id and does not keep one the browser brought along', async () => {
    const visitor = service.visitor()
    visitor.cookies.set('sa_session', 'sase_planted')
    await visitor.openSignedIn('/connect/apps', user)
    const first = visitor.cookies.get('sa_session')
    expect(first).not.toBe('sase_planted')
    const planter = service.visitor()
    planter.cookies.set('sa_session', 'sase_planted')
    expect(isSignInPage(await planter.open('/connect/apps'))).toBe(true)
  })

  test('again ends the session the browser had before', async () => {
    const visitor = service.visitor()
    const form = await visitor.open('/connect/apps')
    await visitor.openSignedIn('/connect/apps', user)
    const old = new Map(visitor.cookies)
    await visitor.submit(form, signInForm(form), {
      username: user.username,
      password: user.password,
    })
    const stale = service.visitor()
    for (const [name, value] of old) stale.cookies.set(name, value)
    expect(visitor.cookies.get('sa_session')).not.toBe(old.get('sa_session'))
    expect(isSignInPage(await stale.open('/connect/apps'))).toBe(true)
    expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(false)
  })

  test('needs the csrf value of its own form and our own origin', async () => {
    const visitor = service.visitor()
    const page = await visitor.open('/connect/apps')
    const form = signInForm(page)
    const credentials = { username: user.username, password: user.password }
    const refused = [
      await visitor.submit(page, form, { ...credentials, csrf: 'x' }),
      await visitor.submit(page, form, credentials, {
        headers: { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
      }),
      await service.visitor().submit(page, form, credentials),
    ]
    for (const reply of refused) {
      expect([303, 403]).toContain(reply.status)
      expect(reply.headers.get('set-cookie') ?? '').not.toContain('sa_session')
    }
  })

  test('by GET starts no session and leads to the page with the form', async () => {
    const visitor = service.visitor()
    const query = new URLSearchParams({ username: user.username, password: user.password })
    const reply = await visitor.request(`/connect/sign-in?${query}`)
    expect([reply.status, reply.headers.get('location')]).toEqual([303, '/connect/apps'])
    expect(visitor.cookies.has('sa_session')).toBe(false)
  })

  test('follows no address given in the link', async () => {
    const app = await service.createApp()
    for (const name of ['next', 'return_to', 'redirect', 'continue', 'url']) {
      const page = await service.visitor().openSignedIn(`${authorizePath(app)}&${name}=https://evil.example/`, user)
      expect(page.url.startsWith(service.url)).toBe(true)
      expect(page.text).not.toContain('evil.example')
    }
  })
})

describe('a session', () => {
  /** Its clock is moved. */
  let own: Verbs
  beforeAll(async () => {
    own = await openService()
  })
  afterAll(() => own.backend.close())

  test('ends by sign-out on the server, not only in the browser', async () => {
    const visitor = await service.signedIn(user)
    const stolen = service.visitor()
    for (const [name, value] of visitor.cookies) stolen.cookies.set(name, value)
    const page = await visitor.open('/connect/apps')
    const form = page.html.forms.find(({ action }) => action.includes('sign-out'))
    if (form === undefined) throw new Error('no sign-out')
    await visitor.submitAndFollow(page, form)
    expect(visitor.cookies.has('sa_session')).toBe(false)
    expect(isSignInPage(await stolen.open('/connect/apps'))).toBe(true)
  })

  test.each([
    { ms: -1, signedIn: true },
    { ms: 0, signedIn: false },
  ])('idle for an hour and $ms ms is alive: $signedIn', async ({ ms, signedIn }) => {
    const visitor = await own.signedIn(await own.createUser())
    await visitor.open('/connect/apps')
    own.clock.advance({ hours: 1, ms })
    expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(!signedIn)
  })

  test('of an active user lasts an hour from the last request, to the minute', async () => {
    const visitor = await own.signedIn(await own.createUser())
    own.clock.advance({ minutes: 1 })
    expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(false)
    own.clock.advance({ minutes: 59 })
    expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(false)
  })

  test('of an active user goes on, however short the idle time', async () => {
    const own = await startService({ env: { SESSION_IDLE_SECONDS: '20' } })
    const visitor = await own.signedIn(await own.createUser())
    for (let i = 0; i < 10; i += 1) {
      own.clock.advance({ seconds: 14 })
      expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(false)
    }
  })

  test('that is never idle ends after 12 hours', async () => {
    const visitor = await own.signedIn(await own.createUser())
    for (let i = 0; i < 23; i += 1) {
      own.clock.advance({ minutes: 30 })
      expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(false)
    }
    own.clock.advance({ minutes: 30 })
    expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(true)
  })

  test('is one of at most MAX_SESSIONS_PER_USER: the oldest ends', async () => {
    const own = await startService({ env: { MAX_SESSIONS_PER_USER: '2' } })
    const person = await own.createUser()
    const visitors: Visitor[] = []
    for (let i = 0; i < 3; i += 1) {
      own.clock.advance({ seconds: 1 })
      visitors.push(await own.signedIn(person))
    }
    const signedOut = await Promise.all(
      visitors.map(async (visitor) => isSignInPage(await visitor.open('/connect/apps'))),
    )
    expect(signedOut).toEqual([true, false, false])
  })

  test('ends when the password is replaced', async () => {
    const person = await own.createUser()
    const visitor = await own.signedIn(person)
    await own.admin.setUserPassword({ username: person.username, password: 'a new password' })
    const nobody = { username: 'nobody', password: 'a new password' }
    await expect(own.admin.setUserPassword(nobody)).rejects.toThrow('there is no such user')
    expect(isSignInPage(await visitor.open('/connect/apps'))).toBe(true)
    expect(isSignInPage(await tryToSignIn(own.visitor(), person.username, person.password))).toBe(true)
    expect(isSignInPage(await tryToSignIn(own.visitor(), person.username, 'a new password'))).toBe(false)
  })

  test.each(['garbage', '', 'sase_x', 'x'.repeat(4_000), '%00', '"quoted"'])(
    'cookie %j signs nobody in and breaks nothing',
    async (value) => {
      const reply = await service.visitor().request('/connect/apps', { headers: { cookie: `sa_session=${value}` } })
      expect(reply.status).toBe(200)
      expect(reply.text).toContain('name="password"')
    },
  )

  test('confirms nothing after it has ended while the page was open', async () => {
    const own = await startService({ env: { SESSION_IDLE_SECONDS: '60' } })
    const app = await own.createApp()
    const visitor = own.visitor()
    const page = await own.authorizationPage(visitor, app, await own.createUser(), 'abc')
    own.clock.advance({ seconds: 61 })
    const reply = await visitor.decide(page, 'confirm')
    expect(reply.headers.get('location')).toBe(`${authorizePath(app, 'abc')}#wj_redirect`)
    expect(isSignInPage(await visitor.open(authorizePath(app, 'abc')))).toBe(true)
  })
})

describe('guessing passwords', () => {
  const LIMITED = { RATE_LIMIT: 'on', SIGN_IN_FAILURES_PER_ACCOUNT_AND_SOURCE: '3', TRUSTED_PROXIES: '127.0.0.1' }

  /** The status if there was an error, or whether the visitor is signed in. */
  async function attempt(own: Verbs, username: string, password: string, source: string): Promise<number | string> {
    const visitor = own.visitor()
    const page = await visitor.open('/connect/apps')
    const form = signInForm(page)
    const headers = { 'x-forwarded-for': source }
    const { status } = await visitor.submit(page, form, { username, password }, { headers })
    if (status !== 303) return status
    return visitor.cookies.has('sa_session') ? 'signed in' : 'refused'
  }

  test('is slowed down per account and source with Retry-After, unknown names included', async () => {
    const own = await startService({ env: LIMITED })
    const person = await own.createUser()
    for (const username of [person.username, 'nobody']) {
      const statuses: (number | string)[] = []
      for (let i = 0; i < 5; i += 1) statuses.push(await attempt(own, username, 'wrong password', '192.0.2.1'))
      expect(statuses).toEqual(['refused', 'refused', 'refused', 429, 429])
    }
  })

  test('is not slowed down where RATE_LIMIT is off', async () => {
    const own = await startService({ env: { ...LIMITED, RATE_LIMIT: 'off' } })
    for (let i = 0; i < 5; i += 1) expect(await attempt(own, 'nobody', 'wrong password', '192.0.2.1')).toBe('refused')
  })

  test('from many addresses of one IPv6 /64 network counts as from one address', async () => {
    const own = await startService({ env: LIMITED })
    const { username } = await own.createUser()
    const statuses: (number | string)[] = []
    for (let i = 1; i <= 4; i += 1) statuses.push(await attempt(own, username, 'wrong password', `2001:db8:1:2::${i}`))
    expect(statuses).toEqual(['refused', 'refused', 'refused', 429])
    expect(await attempt(own, username, 'wrong password', '2001:db8:1:3::1')).toBe('refused')
  })

  test('is counted as usual after the clock was ahead for a moment', async () => {
    const own = await startService({ env: LIMITED })
    const { username } = await own.createUser()
    const guess = () => attempt(own, username, 'wrong password', '192.0.2.1')
    own.clock.advance({ seconds: 86_400 })
    expect(await guess()).toBe('refused')
    own.clock.advance({ seconds: -86_400 })
    // Of two token services the one that was asked goes on with its own time, so each counts in a window of its own.
    const most = mode === 'two-of-each' ? 5 : 2
    let refused = 0
    while (refused <= most && (await guess()) === 'refused') refused += 1
    expect(refused).toBeGreaterThanOrEqual(2)
    expect(refused).toBeLessThanOrEqual(most)
  })

  test('does not lock the owner of the account out: other sources still sign in', async () => {
    const own = await startService({ env: LIMITED })
    const person = await own.createUser()
    for (let i = 0; i < 5; i += 1) await attempt(own, person.username, 'wrong password', '192.0.2.1')
    expect(await attempt(own, person.username, person.password, '192.0.2.1')).toBe(429)
    expect(await attempt(own, person.username, person.password, '192.0.2.2')).toBe('signed in')
  })

  test('does not include sign-ins that were refused because too many were waiting', async () => {
    const own = await startService({
      isPasswordCostReal: true,
      env: { ...LIMITED, SIGN_IN_FAILURES_PER_SOURCE: '3', PASSWORD_HASH_QUEUE_LIMIT: '1' },
    })
    const person = await own.createUser()
    const visitor = own.visitor()
    const page = await visitor.open('/connect/apps')
    const headers = { 'x-forwarded-for': '192.0.2.1' }
    const { username, password } = person
    const signIn = () => visitor.submit(page, signInForm(page), { username, password }, { headers })
    const replies = await Promise.all(Array.from({ length: 12 }, signIn)) // at the same moment
    expect(replies.map(({ status }) => status)).toContain(429)
    expect(await attempt(own, username, password, '192.0.2.1')).toBe('signed in')
  })

  test('by many at once does not slow the token endpoint down', async () => {
    const own = await startService({ isPasswordCostReal: true })
    const { app } = await own.grantAccess()
    const visitor = own.visitor()
    const page = await visitor.open('/connect/apps')
    let answered = 0
    const flood = Array.from({ length: 60 }, async () => {
      await visitor.submit(page, signInForm(page), { username: 'nobody', password: 'wrong password' })
      answered += 1
    })
    await own.exchange(app, 'x')
    expect(answered).toBeLessThan(20) // it overtakes most of the queued sign-ins
    await Promise.all(flood)
  })
})
