// A user's own account, and a provider that ends sessions, in every mode.
import { randomBytes } from 'node:crypto'
import { OAuth2Server } from 'oauth2-mock-server'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { authorizePath, type TestUser, tokensOf, type Verbs } from '../harness/verbs.js'
import type { Page, Visitor } from '../harness/visitor.js'
import { openService } from '../harness.js'
import { writeProvidersFile } from '../oidc/start-provider.js'

const LOGOUT_PATH = '/connect/oidc/corp/backchannel-logout'

let server: OAuth2Server
/** Whom the provider signs in. */
const person = { sub: 'u-1', name: 'Ann', sid: 's-1' }
let service: Verbs

beforeAll(async () => {
  server = new OAuth2Server()
  await server.issuer.keys.generate('RS256')
  await server.start(0, '127.0.0.1')
  const issuer = `http://127.0.0.1:${server.address().port}`
  server.issuer.url = issuer
  server.service.on('beforeTokenSigning', ({ payload }) => Object.assign(payload, person))
  const { file, remove } = writeProvidersFile({ corp: { issuer, clientSecret: 'a-secret' } })
  service = await openService({ env: { OIDC_PROVIDERS_FILE: file } })
  remove()
})
afterAll(async () => {
  await service.backend.close()
  await server.stop()
})

function formTo(page: Page, action: string, fields: Readonly<Record<string, string>> = {}) {
  const isIt = (sent: Readonly<Record<string, string>>) =>
    Object.entries(fields).every(([name, at]) => sent[name] === at)
  const found = page.html.forms.find((form) => form.action.split('?')[0] === action && isIt(form.fields))
  if (!found) throw new Error(`no form to ${action} on: ${page.html.text}`)
  return found
}

/** Where the provider sends the browser, which it signs in at once. */
async function backFrom(address: string | undefined): Promise<string> {
  const answer = await fetch(address ?? '', { redirect: 'manual' })
  const { pathname, search } = new URL(answer.headers.get('location') ?? '')
  return pathname + search
}

async function signInThere(visitor: Visitor, path = '/connect/apps'): Promise<Page> {
  const page = await visitor.open(path)
  const reply = await visitor.submit(page, formTo(page, '/connect/sign-in/elsewhere', { provider: 'corp' }))
  return visitor.open(await backFrom(reply.headers.get('location')))
}

function logoutToken(claims: Readonly<Record<string, unknown>>): Promise<string> {
  const events = { 'http://schemas.openid.net/event/backchannel-logout': {} }
  const more = { aud: 'surveys', jti: randomBytes(8).toString('hex'), events, ...claims }
  return server.issuer.buildToken({ scopesOrTransform: (_, payload) => Object.assign(payload, more) })
}

/** As a provider's server sends it. */
function logOut(fields: Readonly<Record<string, string>>, path = LOGOUT_PATH) {
  const body = new URLSearchParams(fields).toString()
  const headers = { 'content-type': 'application/x-www-form-urlencoded' }
  return service.visitor().request(path, { method: 'POST', body, headers })
}

const isSignedIn = async (visitor: Visitor) =>
  (await visitor.open('/connect/apps')).html.forms.some(({ action }) => action === '/connect/sign-out')

test('a provider that says a session is over ends it here on the very next request, and no access of an app', async () => {
  const app = await service.createApp()
  const visitor = service.visitor()
  const consent = await signInThere(visitor, authorizePath(app, 'st'))
  const callback = new URL((await visitor.decide(consent, 'confirm')).headers.get('location') ?? '')
  const tokens = tokensOf(await service.exchange(app, callback.searchParams.get('code') ?? ''))
  const token = await logoutToken({ sub: 'u-1', sid: 's-1' })
  const reply = await logOut({ logout_token: token })
  expect([reply.status, reply.text, reply.headers.get('cache-control')]).toEqual([200, '', 'no-store'])
  expect(await isSignedIn(visitor)).toBe(false)
  expect((await service.user({ app, tokens })).data).toMatchObject({ nickname: 'Ann' })
  await signInThere(visitor)
  expect((await logOut({ logout_token: token })).status).toBe(400)
  expect(await isSignedIn(visitor)).toBe(true)
})

test('a logout token that is not good gets the 400 that the specification describes, and ends nothing', async () => {
  const visitor = service.visitor()
  await signInThere(visitor)
  const good = await logoutToken({ sub: 'u-1' })
  for (const reply of [
    await logOut({}),
    await logOut({ logout_token: 'x' }),
    await logOut({ logout_token: await logoutToken({ sub: 'u-1', aud: 'others' }) }),
    await logOut({ logout_token: good }, '/connect/oidc/other/backchannel-logout'),
  ]) {
    expect([reply.status, reply.headers.get('cache-control')]).toEqual([400, 'no-store'])
    const description = expect.any(String)
    expect(JSON.parse(reply.text)).toEqual({ error: 'invalid_request', error_description: description })
  }
  expect(await isSignedIn(visitor)).toBe(true)
  expect(service.backend.log()).not.toContain(good.slice(-40))
})

const ACCOUNT = '/connect/account'

function send(
  visitor: Visitor,
  page: Page,
  form: string,
  fields: Readonly<Record<string, string>> = {},
): Promise<Page> {
  return visitor.submitAndFollow(page, formTo(page, `${ACCOUNT}/${form}`), fields)
}

async function signedIn(user: TestUser, userAgent: string): Promise<Visitor> {
  const visitor = service.visitor()
  const page = await visitor.open(ACCOUNT)
  const typed = { username: user.username, password: user.password }
  const headers = { 'user-agent': userAgent }
  await visitor.submit(page, formTo(page, '/connect/sign-in'), typed, { headers })
  return visitor
}

const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:131.0) Gecko/20100101 Firefox/131.0'
const WECHAT = 'Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Chrome/116.0 Mobile Safari/537.36 MicroMessenger/8.0'

test('the account page is where signing in leads that was opened there, and where password managers look', async () => {
  const user = await service.createUser({ nickname: 'Ming' })
  const visitor = service.visitor()
  const known = await visitor.request('/.well-known/change-password')
  expect([known.status, known.headers.get('location')]).toEqual([303, ACCOUNT])
  const page = await visitor.openSignedIn('/.well-known/change-password', user)
  expect(new URL(page.url).pathname).toBe(ACCOUNT)
  expect(page.html.text).toContain('Signed in by password')
  expect(page.text).toContain('href="/connect/apps"')
  expect((await visitor.open('/connect/apps')).text).toContain(`href="${ACCOUNT}"`)
  expect((await visitor.switchLanguage(page, 'zh-CN')).html.text).toContain('您的账号')
  const [form] = page.html.forms.filter(({ action }) => action === `${ACCOUNT}/password`)
  expect(form?.fields.username).toBe(user.username)
})

test('sessions are listed by browser, and ended one by one or all but this one, without any access of an app', async () => {
  const user = await service.createUser()
  const access = await service.grantAccess({ user })
  const [here, there, third] = [
    await signedIn(user, FIREFOX),
    await signedIn(user, WECHAT),
    await signedIn(user, 'curl/8.5 canary-agent'),
  ]
  const page = await here.open(ACCOUNT)
  expect(page.html.text).toMatch(/Firefox, Linux.*This browser/s)
  expect(page.html.text).toContain('WeChat, Android')
  expect(page.html.text).toContain('Unknown browser')
  const buttons = page.html.forms.filter(({ action }) => action === `${ACCOUNT}/sessions`)
  const [first, last] = [buttons[0], buttons.at(-1)]
  if (!first || !last) throw new Error('no buttons')
  expect(buttons).toHaveLength(4) // three others, of which one has confirmed, and all at once
  expect((await here.submitAndFollow(page, first)).html.text).toContain('Signed out there')
  await here.submitAndFollow(page, last)
  for (const ended of [there, third]) expect(await isSignedIn(ended)).toBe(false)
  expect(await isSignedIn(here)).toBe(true)
  expect((await service.user(access)).data).toMatchObject({ openid: access.tokens.openid })
  expect(service.backend.log()).not.toContain('canary-agent')
})

test('a password is changed with the current one, and signs out everywhere else', async () => {
  const user = await service.createUser()
  const [here, there] = [await signedIn(user, FIREFOX), await signedIn(user, WECHAT)]
  const page = await here.open(ACCOUNT)
  const wrong = await send(here, page, 'password', { current_password: 'wrong', new_password: 'canary battery staple' })
  expect(wrong.html.text).toContain('The current password is incorrect')
  const weak = await send(here, page, 'password', { current_password: user.password, new_password: 'short' })
  expect(weak.html.text).toContain('at least 8 characters')
  expect(await isSignedIn(there)).toBe(true)
  const good = await send(here, page, 'password', {
    current_password: user.password,
    new_password: 'canary battery staple',
  })
  expect(good.html.text).toContain('Your password has been changed')
  expect(good.text).not.toContain('canary battery')
  expect([await isSignedIn(here), await isSignedIn(there)]).toEqual([true, false])
  await service.visitor().openSignedIn(ACCOUNT, { ...user, password: 'canary battery staple' })
  expect(service.backend.log()).not.toContain('canary battery')
})

test('a form of another session, or of another site, changes nothing', async () => {
  const user = await service.createUser()
  const [here, there] = [await signedIn(user, FIREFOX), await signedIn(user, WECHAT)]
  const page = await here.open(ACCOUNT)
  const form = formTo(page, `${ACCOUNT}/password`)
  const typed = { current_password: user.password, new_password: 'battery staple' }
  expect((await there.submit(page, form, typed)).status).toBe(403)
  const headers = { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' }
  expect((await here.submit(page, form, typed, { headers })).status).toBe(403)
  expect((await here.request(`${ACCOUNT}/password`)).headers.get('location')).toBe(ACCOUNT)
  await service.visitor().openSignedIn(ACCOUNT, user)
})

test('an identity is linked from the account page, then signs the user in, and can be removed', async () => {
  Object.assign(person, { sub: 'u-linked', sid: 's-linked' })
  const user = await service.createUser()
  const visitor = await signedIn(user, FIREFOX)
  const page = await visitor.open(ACCOUNT)
  const reply = await visitor.submit(page, formTo(page, `${ACCOUNT}/link`))
  const linked = await visitor.open(await backFrom(reply.headers.get('location')))
  expect(linked.html.text).toContain('Connected. You can sign in that way')
  const other = service.visitor()
  await signInThere(other)
  const account = await other.open(ACCOUNT)
  expect(account.html.text).toContain(user.username)
  expect(account.html.text).toContain('Signed in with Provider corp')
  const removed = await send(visitor, linked, 'unlink')
  expect(removed.html.text).toContain('Removed')
  expect((await service.admin.listIdentities({ username: user.username })).identities).toEqual([])
})

test('linking asks for the password again 5 minutes after the sign-in', async () => {
  Object.assign(person, { sub: 'u-late', sid: 's-late' })
  const user = await service.createUser()
  const visitor = await signedIn(user, FIREFOX)
  const fresh = await visitor.open(ACCOUNT)
  service.clock.advance({ minutes: 6 })
  const early = await send(visitor, fresh, 'link')
  expect(early.html.text).toContain('The password is incorrect. Nothing has been connected')
  const form = formTo(early, `${ACCOUNT}/link`)
  expect(form.fields).toHaveProperty('current_password')
  const reply = await visitor.submit(early, form, { current_password: user.password })
  expect(reply.headers.get('location')).toContain(server.issuer.url)
})

test('signing out says what has ended and what has not', async () => {
  Object.assign(person, { sub: 'u-out', sid: 's-out' })
  const visitor = service.visitor()
  const page = await signInThere(visitor)
  const there = await visitor.submitAndFollow(page, formTo(page, '/connect/sign-out'))
  expect(there.html.text).toMatch(
    /signed out here\. You may still be signed in at Provider corp\..*apps keep their access/,
  )
  const user = await service.createUser()
  const own = await service.signedIn(user)
  const apps = await own.open('/connect/apps')
  const here = await own.submitAndFollow(apps, formTo(apps, '/connect/sign-out'))
  expect(here.html.text).toContain('You are signed out. Connected apps keep their access.')
})

test('a user who came from a provider cannot remove that way to sign in, and has no password to change', async () => {
  Object.assign(person, { sub: 'u-only', sid: 's-only' })
  const visitor = service.visitor()
  await signInThere(visitor)
  const page = await visitor.open(ACCOUNT)
  expect(page.html.text).toContain('your only way to sign in')
  expect(page.html.forms.map(({ action }) => action)).not.toContain(`${ACCOUNT}/password`)
})
