// The pages through HTTP, with fake services behind the gateway: what is shown, what is refused, what is kept.
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { originOf } from '../../gateway/pages/own-origin.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { type Form, readHtml } from '../harness/html.js'
import type { Outgoing, Reply } from '../harness/http.js'
import { decisionForm, formAskingFor, formWith, type Page, Visitor } from '../harness/visitor.js'
import { type Served, serve } from './serve.js'

const USER = { username: 'lin', password: 'right password' }
const CALLBACK = 'https://app.example/callback'
const HALF_HOUR_MS = 30 * 60_000

let served: Served
let visitor: Visitor

beforeEach(async () => {
  served = await serve()
  visitor = new Visitor(served.origin)
})

afterEach(async () => {
  await served.close()
})

function authorizePath(changed: Record<string, string | undefined> = {}): string {
  const asked = { appid: 'app1', redirect_uri: CALLBACK, response_type: 'code', scope: 'snsapi_user', state: 'Abc123' }
  const fields = Object.entries({ ...asked, ...changed }).filter(
    (field): field is [string, string] => field[1] !== undefined,
  )
  return `/connect/oauth2/authorize?${new URLSearchParams(fields)}`
}

function form(page: Page, input: string): Form {
  const found = formWith(page, input)
  if (!found) throw new Error(`no form with ${input} on: ${page.html.text}`)
  return found
}

function formTo(page: Page, action: string): Form {
  const found = page.html.forms.find((one) => one.action.split('?')[0] === action)
  if (!found) throw new Error(`no form to ${action} on: ${page.html.text}`)
  return found
}

const authorizationPage = (path = authorizePath()) => visitor.openSignedIn(path, USER)

describe('a link with a mistake gets our page with status 400, no redirect, and a note on what to change', () => {
  test.each<[string, string, RegExp]>([
    ['an unknown appid', authorizePath({ appid: 'nobody' }), /appid is unknown/],
    ['no appid', authorizePath({ appid: undefined }), /appid is missing/],
    ['an empty appid', authorizePath({ appid: '' }), /appid is missing/],
    [
      'an unregistered redirect_uri',
      authorizePath({ redirect_uri: 'https://evil.example/' }),
      /redirect_uri is not registered/,
    ],
    [
      'a redirect_uri longer by a slash',
      authorizePath({ redirect_uri: `${CALLBACK}/` }),
      /redirect_uri is not registered/,
    ],
    [
      'a redirect_uri that is URL-encoded twice',
      authorizePath({ redirect_uri: encodeURIComponent(CALLBACK) }),
      /URL-encoded once/,
    ],
    ['no redirect_uri', authorizePath({ redirect_uri: undefined }), /redirect_uri is missing/],
    ['another response_type', authorizePath({ response_type: 'token' }), /response_type must be/],
    ['another scope', authorizePath({ scope: 'all' }), /scope must be/],
    ['a state with markup', authorizePath({ state: '<script>' }), /state may contain only/],
    ['a state of 129 characters', authorizePath({ state: 'a'.repeat(129) }), /state may contain only/],
    ['a parameter given twice', `${authorizePath()}&state=b`, /state is given more than once/],
    ['bad percent-encoding', `${authorizePath()}&x=%zz`, /not percent-encoded/],
  ])('%s', async (_, path, note) => {
    const page = await visitor.open(path)
    expect(page.status).toBe(400)
    expect(page.headers.has('location')).toBe(false)
    expect(page.html.text).toMatch(note)
    expect(page.text).not.toContain('evil.example')
    expect(page.html.tags.filter(({ name }) => name === 'script')).toHaveLength(1)
  })

  test.each([
    [authorizePath({ appid: undefined }), '缺少参数 appid，或其值为空'],
    [`${authorizePath()}&state=b`, '参数 state 只能出现一次'],
    [authorizePath({ scope: 'x'.repeat(2000) }), '参数 scope 过长，最多 '],
    [authorizePath({ scope: 'a\0' }), '参数 scope 含有控制字符'],
    [`${authorizePath()}&x=%zz`, '参数不是 UTF-8 的 URL 编码'],
  ])('in Chinese, too: %s', async (path, note) => {
    visitor = new Visitor(served.origin, 'zh')
    expect((await visitor.open(path)).html.text).toContain(`链接格式有误：${note}`)
  })

  test('but nobody is blamed for the address alone, which is what a page that answers a form leaves in the address bar', async () => {
    const page = await visitor.open('/connect/oauth2/authorize')
    expect([page.status, page.html.title]).toEqual([400, 'Please start in the app · Survey Authorization'])
    expect(page.html.text).not.toContain('mistake')
  })
})

describe('signing in', () => {
  test('the form names the app and leads back to the authorization', async () => {
    const page = await visitor.open(authorizePath())
    expect(page.status).toBe(200)
    expect(page.html.text).toContain('Harvest Insights')
    const reply = await visitor.submit(page, form(page, 'password'), USER)
    expect(reply.status).toBe(303)
    expect(reply.headers.get('location')).toBe(`${authorizePath()}#wj_redirect`)
    expect(reply.headers.get('set-cookie')).toMatch(/^sa_session=\w+; Path=\/; HttpOnly; SameSite=Lax$/)
  })

  test.each([
    ['a wrong password', { username: 'lin', password: 'wrong' }],
    ['an unknown user', { username: 'nobody', password: 'right password' }],
    ['a password longer than any', { username: 'lin', password: 'x'.repeat(2000) }],
  ])('%s shows the same form again, with the name kept and the password not', async (_, typed) => {
    const page = await visitor.open(authorizePath())
    const reply = await visitor.submit(page, form(page, 'password'), typed)
    expect([reply.status, reply.headers.get('location')]).toEqual([303, `${authorizePath()}#wj_redirect`])
    expect(reply.headers.get('set-cookie')).toMatch(/^sa_notice=[\w.-]+; Max-Age=60; Path=\/; HttpOnly; SameSite=Lax$/)
    const again = await visitor.open(authorizePath())
    expect(again.text).toContain('The username or password is incorrect')
    expect(again.text).toContain(`value="${typed.username}"`)
    expect(again.text).not.toContain(`value="${typed.password}"`)
    expect(again.text).toContain('aria-invalid')
    const reloaded = await visitor.open(authorizePath())
    expect(reloaded.text, 'it says so once').not.toContain('is incorrect')
    expect(form(reloaded, 'password').fields.username).toBe('')
  })

  test.each([
    ['no name', { username: '', password: 'right password' }],
    ['a name of spaces', { username: '  ', password: 'right password' }],
    ['no password', { username: 'lin', password: '' }],
  ])('with %s the form asks again, without calling a service', async (_, typed) => {
    const page = await visitor.open(authorizePath())
    const reply = await visitor.submitAndFollow(page, form(page, 'password'), typed)
    expect(reply.text).toContain('Please enter your username and your password.')
    expect(reply.text).toContain(`value="${typed.username.trim()}"`)
    expect(served.services.calls).not.toContain('signIn')
  })

  test('spaces around a name, such as a phone adds, are ignored', async () => {
    const page = await visitor.open(authorizePath())
    const reply = await visitor.submit(page, form(page, 'password'), { ...USER, username: ' lin ' })
    expect(reply.status).toBe(303)
    expect(served.services.sessions.size).toBe(1)
  })

  test('only pages opened by the link of an app expect its #wj_redirect fragment', async () => {
    const expects = (page: { readonly text: string }) => page.text.includes('data-expects-fragment="wj_redirect"')
    const page = await visitor.open(authorizePath())
    served.services.signInWaitSeconds = 40
    const refused = await visitor.submit(page, form(page, 'password'), USER)
    served.services.signInWaitSeconds = 0
    const ownSignIn = await visitor.open('/connect/apps')
    const authorization = await authorizationPage()
    expect([page, authorization].map(expects)).toEqual([true, true])
    expect([refused, ownSignIn, await visitor.open('/connect/apps')].map(expects)).toEqual([false, false, false])
  })

  test('works with the longest name and the longest password that AccountService takes', async () => {
    const longest = { username: 'n'.repeat(128), password: 'p'.repeat(1024) }
    Object.assign(served.services.user, longest)
    const page = await visitor.open(authorizePath())
    expect((await visitor.submit(page, form(page, 'password'), longest)).status).toBe(303)
  })

  test('a name or password that the service rejects as malformed is answered like a wrong one', async () => {
    const page = await visitor.open('/connect/apps')
    served.services.failure = ErrorReason.INVALID_ARGUMENT
    await visitor.submit(page, form(page, 'password'), USER)
    served.services.failure = undefined
    const reply = await visitor.open('/connect/apps')
    expect(reply.text).toContain('The username or password is incorrect')
  })

  test.each([
    ['is away', 503, ErrorReason.UNAVAILABLE],
    ['has a bug', 500, 'bug'],
  ] as const)('through a service that %s is a %i, and does not say "too many attempts"', async (_, status, failure) => {
    const page = await visitor.open('/connect/apps')
    served.services.failure = failure
    const reply = await visitor.submit(page, form(page, 'password'), USER)
    expect(reply.status).toBe(status)
    expect(reply.text).not.toContain('Too many')
  })

  test('after too many attempts the time to wait is rounded up', async () => {
    const page = await visitor.open(authorizePath())
    served.services.signInWaitSeconds = 179
    expect((await visitor.submit(page, form(page, 'password'), USER)).text).toContain('3 minutes')
  })

  test('from the connected apps leads to the connected apps', async () => {
    const page = await visitor.open('/connect/apps')
    const reply = await visitor.submit(page, form(page, 'password'), USER)
    expect(reply.headers.get('location')).toBe('/connect/apps')
  })

  test('a sign-in form made for one request is not accepted for another', async () => {
    const page = await visitor.open(authorizePath())
    const next = await visitor.submitAndFollow(page, formAskingFor(form(page, 'password'), { state: 'Other' }), USER)
    expect(next.html.text).toContain('This form was replaced')
    expect(served.services.sessions.size).toBe(0)
    expect(served.services.calls).not.toContain('signIn')
  })
})

describe('the authorization page', () => {
  test('names the app, the callback, the account, what is granted, for how long and how to take it back', async () => {
    const page = await authorizationPage()
    for (const shown of [
      'Harvest Insights',
      'app.example',
      'Lin Xiaomei',
      'lin',
      'basic profile',
      'Read your surveys',
      '30 days',
    ]) {
      expect(page.html.text).toContain(shown)
    }
    expect(page.html.title).toBe('Authorize Harvest Insights · Survey Authorization')
    expect(page.html.text).toContain('to your surveys You will return to app.example')
    expect(page.html.text).toContain('It will not be able to see the answers people gave change or delete your surveys')
    expect(page.html.text).not.toContain('Already connected')
    expect(page.html.links.map(({ href }) => href)).toContain('/connect/apps')
    expect(decisionForm(page).buttons.map(({ value, label }) => [value, label])).toEqual([
      ['cancel', 'Cancel'],
      ['confirm', 'Confirm'],
    ])
    expect(page.html.text, 'what stands behind the host could look like another one').not.toContain('/callback')
    expect(page.text).not.toContain('elsewhere.example')
  })

  test('says since when the app is connected, if it is', async () => {
    served.services.grants.set('g1', { appid: 'app2', appName: 'Other' })
    expect((await authorizationPage()).html.text).not.toContain('Already connected')
    served.services.grants.set('g2', { appid: 'app1', appName: 'Harvest Insights' })
    expect((await authorizationPage()).html.text).toContain('Already connected since 18 Nov 2026 .')
  })

  test('leaves a gap between the name of the app and the Chinese words after it', async () => {
    visitor = new Visitor(served.origin, 'zh')
    expect((await authorizationPage()).text).toContain('Harvest Insights</bdi> <span class="phrase">申请')
  })

  test.each([
    ['adds code and state', CALLBACK, 'Abc123', `${CALLBACK}?code=code1&state=Abc123`],
    ['adds no state when there was none', CALLBACK, undefined, `${CALLBACK}?code=code1`],
    ['adds no state when it was empty', CALLBACK, '', `${CALLBACK}?code=code1`],
    ['keeps a query', `${CALLBACK}?a=1&b=%20`, 'S', `${CALLBACK}?a=1&b=%20&code=code1&state=S`],
    ['keeps an empty query', `${CALLBACK}?`, 'S', `${CALLBACK}?code=code1&state=S`],
    ['keeps an open query', `${CALLBACK}?a=1&`, 'S', `${CALLBACK}?a=1&code=code1&state=S`],
    [
      'encodes what no header can hold',
      `${CALLBACK}/é 🎉`,
      'S',
      `${CALLBACK}/%C3%A9%20%F0%9F%8E%89?code=code1&state=S`,
    ],
  ])('confirming %s', async (_, redirectUri, state, location) => {
    served.services.app.redirectUris = [redirectUri]
    const reply = await visitor.decide(
      await authorizationPage(authorizePath({ redirect_uri: redirectUri, state })),
      'confirm',
    )
    expect(reply.status).toBe(303)
    expect(reply.headers.get('location')).toBe(location)
    expect(reply.headers.get('cache-control')).toBe('no-store')
    expect(reply.headers.get('referrer-policy')).toBe('same-origin')
  })

  test('the id of a form begins with the time, so that codes are stored close together, and has 18 more bytes', async () => {
    await visitor.decide(await authorizationPage(), 'confirm')
    const [formId = ''] = served.services.codes.keys()
    const bytes = Buffer.from(formId, 'base64url')
    expect([bytes.readUIntBE(0, 6), bytes.length]).toEqual([served.services.nowMs, 24])
  })

  test('"switch account" signs out even if the redirect_uri was removed meanwhile', async () => {
    const page = await authorizationPage()
    served.services.app.redirectUris = []
    expect((await visitor.submitAndFollow(page, formTo(page, '/connect/sign-out'))).status).toBe(400)
    expect(served.services.sessions.size).toBe(0)
  })

  test('a session that ended meanwhile leads to the sign-in form with the request kept', async () => {
    const page = await authorizationPage()
    served.services.sessions.clear()
    const reply = await visitor.decide(page, 'confirm')
    expect([reply.status, reply.headers.get('location')]).toEqual([303, `${authorizePath()}#wj_redirect`])
    const next = await visitor.open(authorizePath())
    expect(formWith(next, 'password')).toBeDefined()
    expect(next.html.text).toContain('Your session has ended, so nothing was shared.')
    expect(next.text, 'it is no mistake of the user').not.toContain('class="alert"')
    expect((await visitor.open(authorizePath())).html.text, 'it says so once').not.toContain('has ended')
  })

  test('an app without a visible name is called by its appid, on every page', async () => {
    served.services.app.name = ' \t'
    served.services.grants.set('g1', { appid: 'app1', appName: ' \t' })
    const pages = [await visitor.open(authorizePath()), await authorizationPage(), await visitor.open('/connect/apps')]
    expect(pages.filter(({ html }) => !html.text.includes('app1'))).toEqual([])
  })

  test('hostile names are escaped, isolated, stripped of what reorders text, and cut', async () => {
    served.services.app.name = `</h1><script>alert(1)</script>\u202e${'é'.repeat(200)}`
    const page = await authorizationPage()
    expect(page.text).not.toContain('<script>alert')
    expect(page.text).not.toContain('\u202e')
    expect(page.html.text).toContain(`</h1><script>alert(1)</script>\ufffd${'é'.repeat(29)}…`)
    expect(page.text).toMatch(/<bdi class="name">&lt;\/h1&gt;/)
  })
})

/** As by a browser without Fetch Metadata that hides the origin of the form, or a proxy that does. */
function sendHiding({ action, fields }: Form, sent: Readonly<Record<string, string>>): Promise<Reply> {
  const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: 'null' }
  return visitor.request(action, {
    method: 'POST',
    headers,
    body: new URLSearchParams({ ...fields, ...sent }).toString(),
  })
}

/** The steps of an authorization: each one's page, and the form on it. */
const forms: [string, () => Promise<Page>, (page: Page) => Form][] = [
  ['to sign in', () => visitor.open(authorizePath()), (page) => form(page, 'password')],
  ['to decide', () => authorizationPage(), decisionForm],
  ['to switch the account', () => authorizationPage(), (page) => formTo(page, '/connect/sign-out')],
]

describe('a form is acted on only when it is ours, of this session, for this request, and fresh', () => {
  test.each<[string, Record<string, string>]>([
    ['without a token', { csrf: '' }],
    ['with a made-up token', { csrf: '1.aaaaaaaaaaaaaaaaaaaaaaaa.bbbb' }],
    ['with another state', { state: 'Other' }],
    ['with another redirect_uri', { redirect_uri: 'https://evil.example/' }],
    ['with another app', { appid: 'app2' }],
    ['with letters that went from one parameter to the next', { scope: 'snsapi_userA', state: 'bc123' }],
  ])('%s it is refused', async (_, { csrf, ...asked }) => {
    const page = await authorizationPage()
    const sent = { decision: 'confirm', ...(csrf === undefined ? {} : { csrf }) }
    const reply = await visitor.submit(page, formAskingFor(decisionForm(page), asked), sent)
    expect(reply.status).toBe(403)
    expect(reply.headers.has('location')).toBe(false)
    expect(served.services.calls).not.toContain('issueCode')
  })

  test.each([
    ['a later time', 0, 'zzzzzzzz'],
    ['another id', 1, 'x'.repeat(32)],
    ['another signature', 2, 'x'.repeat(43)],
  ])('its token with %s is refused', async (_, part, value) => {
    const page = await authorizationPage()
    const parts = (decisionForm(page).fields.csrf ?? '').split('.')
    const csrf = parts.with(part, value).join('.')
    expect((await visitor.submit(page, decisionForm(page), { decision: 'confirm', csrf })).status).toBe(403)
  })

  test('a sign-in form issued to another browser, which another site could have opened, signs nobody in', async () => {
    const other = await new Visitor(served.origin).open(authorizePath())
    const page = await visitor.open(authorizePath())
    const next = await visitor.submitAndFollow(page, form(other, 'password'), USER)
    expect(next.html.text).toContain('This form was replaced')
    expect(served.services.calls).not.toContain('signIn')
  })

  test('of two first visits at once both can sign in, one by a replaced form that keeps the name and not the password', async () => {
    const pages = await Promise.all([visitor.open(authorizePath()), visitor.open('/connect/apps')])
    const anew: Page[] = []
    for (const page of pages) {
      const next = await visitor.submitAndFollow(page, form(page, 'password'), USER)
      if (formWith(next, 'password')) anew.push(next)
    }
    const [page] = anew
    if (anew.length !== 1 || !page) throw new Error(`${anew.length} forms were made anew`)
    expect(page.html.text).toContain('This form was replaced')
    expect(form(page, 'password').fields).toMatchObject({ username: USER.username, password: '' })
    expect(page.text).not.toContain(USER.password)
    expect((await visitor.submit(page, form(page, 'password'), USER)).status).toBe(303)
  })

  test.each([
    ['a browser that sends no key', () => ({ origin: served.origin, cookie: '' }), 'Cookies are needed'],
    ['one that does not say it comes from our page', () => ({}), 'This form can no longer be used'],
  ])('a sign-in form of another key is not replaced for %s', async (_, said, title) => {
    const other = await new Visitor(served.origin).open(authorizePath())
    await visitor.open(authorizePath())
    const headers = { 'content-type': 'application/x-www-form-urlencoded', ...said() }
    const body = new URLSearchParams({ ...form(other, 'password').fields, ...USER }).toString()
    const reply = await visitor.request('/connect/sign-in', { method: 'POST', headers, body })
    expect(reply.status).toBe(403)
    expect(reply.text).toContain(title)
  })

  test('the form of an earlier session is refused', async () => {
    const page = await authorizationPage()
    visitor.cookies.delete('sa_session')
    await authorizationPage()
    expect((await visitor.decide(page, 'confirm')).status).toBe(403)
    expect(served.services.calls).not.toContain('issueCode')
  })

  test('a browser that has lost its form key gets a new one with the page', async () => {
    await authorizationPage()
    expect(visitor.cookies.delete('sa_form_key')).toBe(true)
    const page = await visitor.open(authorizePath())
    expect((await visitor.decide(page, 'confirm')).status).toBe(303)
    expect(visitor.cookies.delete('sa_form_key')).toBe(true)
    const apps = await visitor.open('/connect/apps')
    expect((await visitor.submit(apps, formTo(apps, '/connect/sign-out'))).status).toBe(303)
  })

  test.each<[string, () => Promise<Reply>, number, string, string]>([
    [
      'cross_site',
      async () => {
        const page = await authorizationPage()
        const headers = { 'sec-fetch-site': 'cross-site' }
        return visitor.submit(page, decisionForm(page), { decision: 'confirm' }, { headers })
      },
      403,
      'This form came from another address',
      '该表单来自其他地址',
    ],
    [
      'hidden_origin',
      async () => sendHiding(decisionForm(await authorizationPage()), { decision: 'confirm' }),
      403,
      'Your browser did not say where this form came from',
      '您的浏览器没有说明表单的来源',
    ],
    [
      'expired',
      async () => {
        const page = await authorizationPage()
        served.services.nowMs += HALF_HOUR_MS
        return visitor.decide(page, 'confirm')
      },
      400,
      'This form has expired',
      '表单已过期',
    ],
    [
      'rejected',
      async () => {
        const page = await authorizationPage()
        return visitor.submit(page, decisionForm(page), { decision: 'confirm', csrf: '' })
      },
      403,
      'This form can no longer be used',
      '此表单已不可用',
    ],
  ])(
    'one that is %s is refused with a message of its own, in the language of the page',
    async (why, send, status, ...words) => {
      for (const [language, text] of [
        ['en', words[0]],
        ['zh', words[1]],
      ] as const) {
        visitor = new Visitor(served.origin, language)
        const reply = await send()
        const { title, lang } = readHtml(reply.text)
        expect([reply.status, title.includes(text), lang.slice(0, 2)]).toEqual([status, true, language])
        expect(reply.text.includes(served.origin)).toBe(['cross_site', 'hidden_origin'].includes(why))
        expect(served.records.at(-1)?.outcome).toBe(`form_${why}`)
      }
    },
  )

  test('without cookies it is refused, and the page says for which address they are needed', async () => {
    const page = await authorizationPage()
    const reply = await new Visitor(served.origin).submit(page, decisionForm(page), { decision: 'confirm' })
    expect(reply.status).toBe(403)
    expect(reply.text).toContain(`Please allow cookies for ${served.origin}, then start again.`)
  })

  test.each([
    [-1, 303],
    [0, 400],
    [1, 400],
  ])('%d ms from the end of its half hour the answer is %d', async (offsetMs, status) => {
    const page = await authorizationPage()
    served.services.nowMs += HALF_HOUR_MS + offsetMs
    const reply = await visitor.decide(page, 'confirm')
    expect(reply.status).toBe(status)
    if (status === 400) expect(reply.text).toContain('This form has expired')
  })

  test('an expired form to sign in is shown anew for the same request, with the name kept and the password not', async () => {
    const page = await visitor.open(authorizePath())
    served.services.nowMs += HALF_HOUR_MS
    const anew = await visitor.submitAndFollow(page, form(page, 'password'), USER)
    expect(anew.html.text).toContain('This page was open for more than 30 minutes.')
    expect(form(anew, 'password').fields).toMatchObject({ username: USER.username, password: '' })
    expect(served.services.calls).not.toContain('signIn')
    const reply = await visitor.submit(anew, form(anew, 'password'), USER)
    expect([reply.status, reply.headers.get('location')]).toEqual([303, `${authorizePath()}#wj_redirect`])
  })

  test.each(forms.slice(1))(
    'an expired form %s offers a link to start the same request again',
    async (_, open, formOf) => {
      const page = await open()
      served.services.nowMs += HALF_HOUR_MS
      const expired = await visitor.submitAndFollow(page, formOf(page), { decision: 'confirm' })
      const wayOn = expired.html.links.find(({ text }) => text === 'Start again')
      expect(wayOn?.href).toBe(`${authorizePath()}#wj_redirect`)
    },
  )

  test.each(forms)('without a proven origin, a form %s leads back to the same request', async (_, open, formOf) => {
    const sent = { decision: 'confirm', ...USER }
    const calls = new Set(['issueCode', 'signOut'])
    const page = await open()
    const wayOn = (reply: Reply) => readHtml(reply.text).links.find(({ text }) => text === 'Start again')?.href
    expect(wayOn(await sendHiding(formOf(page), sent))).toBe(`${authorizePath()}#wj_redirect`)
    const elsewhere = { origin: 'http://localhost:1' }
    const reply = await visitor.submit(page, formOf(page), sent, { headers: elsewhere })
    expect(wayOn(reply), 'at the address where forms are accepted').toBe(
      `${served.origin}${authorizePath()}#wj_redirect`,
    )
    expect(served.services.calls.filter((call) => calls.has(call))).toEqual([])
  })

  test.each(['/connect/oauth2/authorize', '/connect/sign-in', '/connect/sign-out', '/connect/apps/disconnect'])(
    'one that another site sends to %s is refused, and the link to start again does not use its parameters',
    async (path) => {
      const body = new URL(authorizePath(), served.origin).search.slice(1)
      const headers = { 'content-type': 'application/x-www-form-urlencoded', 'sec-fetch-site': 'cross-site' }
      const reply = await visitor.request(path, { method: 'POST', headers, body })
      expect(reply.status).toBe(403)
      expect(readHtml(reply.text).links.find(({ text }) => text === 'Start again')?.href).toBe(
        `${served.origin}/connect/apps`,
      )
    },
  )
})

const LOOPBACK = 'http://127.0.0.1:8080'
const PUBLIC = 'https://auth.example'

function judge(publicUrl: string, site: string | undefined, origin: string | undefined) {
  return originOf({ header: (name) => (name === 'origin' ? origin : site) }, new URL(publicUrl))
}

test.each([LOOPBACK, PUBLIC, 'http://auth.example:8080'])(
  'with public URL %s, a form is judged by what its browser says of its origin',
  (url) => {
    for (const origin of [url, 'null', undefined]) expect(judge(url, 'same-origin', origin), origin).toBe('own')
    for (const site of ['same-site', 'cross-site', 'none'])
      for (const origin of [url, 'null', undefined])
        expect(judge(url, site, origin), `${site} ${origin}`).toBe('foreign')
    for (const origin of [url, undefined]) expect(judge(url, undefined, origin), origin).toBe('own')
    for (const origin of ['https://evil.example', 'http://evil.example:8080', 'nonsense'])
      expect(judge(url, undefined, origin), origin).toBe('foreign')
    expect(judge(url, undefined, 'null')).toBe('hidden')
  },
)

test.each([
  [LOOPBACK, 'http://[::1]:8080', 'own'],
  [LOOPBACK, 'http://localhost:8080', 'own'],
  [LOOPBACK, 'http://localhost:8081', 'foreign'],
  [LOOPBACK, 'https://localhost:8080', 'foreign'],
  [PUBLIC, 'https://localhost', 'foreign'],
  [PUBLIC, 'http://auth.example', 'foreign'],
])('with public URL %s, %s is %s', (publicUrl, origin, said) => {
  expect(judge(publicUrl, 'same-origin', origin)).toBe(said)
})

describe('connected apps', () => {
  beforeEach(() => {
    served.services.grants.set('g1', { appid: 'app1', appName: 'Harvest Insights' })
    served.services.grants.set('g2', { appid: 'app2', appName: 'Other' })
  })

  test('are listed with what they may do, first use, last use and expiry', async () => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    for (const shown of [
      'Harvest Insights',
      'see your basic profile and read your surveys',
      '18 Nov 2026, 00:30 UTC',
      '21 Nov 2026',
      '18 Dec 2026',
    ]) {
      expect(page.html.text).toContain(shown)
    }
  })

  test('are disconnected at once', async () => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    const next = await visitor.submitAndFollow(page, form(page, 'grant_id'))
    expect(next.html.text).toContain('Access has ended. Harvest Insights can no longer read your surveys.')
    expect((await visitor.open('/connect/apps')).html.text, 'it says so once').not.toContain('Access has ended')
    expect([...served.services.grants.keys()]).toEqual(['g2'])
  })

  test('name a user without a nickname once', async () => {
    served.services.user.nickname = ''
    const page = await visitor.openSignedIn('/connect/apps', USER)
    expect(page.html.text.match(/\blin\b/g)).toHaveLength(1)
  })

  test('are ended after a second step, which says what it is about', async () => {
    const { html } = await visitor.openSignedIn('/connect/apps', USER)
    expect(html.text).toContain('End access Keep access Harvest Insights will no longer be able to read your surveys.')
    const order = html.tags.flatMap(({ name, attributes }) =>
      name === 'details' || attributes.name === 'grant_id' ? name : [],
    )
    expect(order).toEqual(['details', 'details', 'input', 'details', 'details', 'input'])
    expect(html.tags.some(({ attributes }) => 'open' in attributes)).toBe(false)
  })

  test('of one name are told apart by the hosts of their callbacks and their appids', async () => {
    for (const [grantId, appid, host] of [
      ['g1', 'app1', 'https://a.example/cb'],
      ['g2', 'app2', 'https://\u0430.example/cb'],
    ] as const)
      served.services.grants.set(grantId, { appid, appName: 'Harvest', redirectUris: [host, `${host}2`] })
    const { html } = await visitor.openSignedIn('/connect/apps', USER)
    expect(html.text).toContain('Harvest a.example app1')
    expect(html.text).toContain('Harvest xn--80a.example app2')
  })

  test.each([
    ['part of a name in other case', 'BUILDER 1', ['Builder 1', 'Builder 10', 'Builder 11']],
    ['a host', 'r7.example', ['Builder 7']],
    ['an appid', 'app-3', ['Builder 3']],
    ['nothing there is', '<zz>', []],
  ])('that are many can be searched by %s', async (_, search, names) => {
    for (let n = 0; n < 12; n += 1)
      served.services.grants.set(`g${n}`, {
        appid: `app-${n}`,
        appName: `Builder ${n}`,
        redirectUris: [`https://r${n}.example/cb`],
      })
    const all = await visitor.openSignedIn('/connect/apps', USER)
    expect(form(all, 'q')).toMatchObject({ method: 'GET', action: '/connect/apps' })
    const found = await visitor.open(`/connect/apps?q=${encodeURIComponent(search)}`)
    expect([...found.html.text.matchAll(/Builder \d+(?= r\d+)/g)].map(String)).toEqual(names)
    expect(form(found, 'q').fields.q).toBe(search)
    expect(found.html.text).toContain(`${names.length} of 12 apps`)
    expect(found.text).not.toContain('<zz>')
    expect((await visitor.switchLanguage(found, 'zh-CN')).html.text).toContain(`共 12 个应用，显示 ${names.length} 个`)
  })

  test('that are few need no search', async () => {
    expect(formWith(await visitor.openSignedIn('/connect/apps', USER), 'q')).toBeUndefined()
  })

  test('are reported without a name when the form had none, or one too long to keep', async () => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    const { app_name: _, ...fields } = form(page, 'grant_id').fields
    const next = await visitor.submitAndFollow(page, { ...form(page, 'grant_id'), fields })
    expect(next.html.text).toContain('Access has ended. The app can no longer read your surveys.')
    const again = await visitor.submitAndFollow(next, form(next, 'grant_id'), { app_name: 'x'.repeat(301) })
    expect(again.html.text).toContain('Access has ended. The app can no longer')
  })

  test.each<[string, () => void]>([
    ['by time', () => served.services.sessions.clear()],
    ['in another tab', () => visitor.cookies.delete('sa_session')],
  ])('are not disconnected by a user signed out meanwhile %s, who sees the sign-in form', async (_, signOut) => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    signOut()
    const next = await visitor.submitAndFollow(page, form(page, 'grant_id'))
    expect(formWith(next, 'password')).toBeDefined()
    expect(next.html.text).toContain('You have been signed out. Nothing has been changed.')
    expect(next.text).not.toContain('aria-invalid')
    expect(served.services.grants.size).toBe(2)
  })

  test('are not shown to a user whose session has ended, who sees the sign-in form', async () => {
    await visitor.openSignedIn('/connect/apps', USER)
    served.services.sessions.clear()
    const page = await visitor.open('/connect/apps')
    expect(page.status).toBe(200)
    expect(formWith(page, 'password')).toBeDefined()
  })

  test.each(['/connect/apps/disconnect', '/connect/sign-out'])(
    'have a form to %s that dies with the session it was shown in',
    async (path) => {
      const page = await visitor.openSignedIn('/connect/apps', USER)
      visitor.cookies.delete('sa_session')
      await visitor.openSignedIn('/connect/apps', USER)
      expect((await visitor.submit(page, formTo(page, path))).status).toBe(403)
      expect([served.services.grants.size, served.services.sessions.size]).toEqual([2, 2])
    },
  )

  test('that have been disconnected already are shown as such when disconnected again', async () => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    served.services.grants.clear()
    const next = await visitor.submitAndFollow(page, form(page, 'grant_id'))
    expect(next.html.text).toContain('No app is connected')
  })

  test('are each disconnected by their own form only', async () => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    expect((await visitor.submit(page, form(page, 'grant_id'), { grant_id: 'g2' })).status).toBe(403)
    expect(served.services.grants.size).toBe(2)
  })

  test('signing out ends the session here and on the server', async () => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    const reply = await visitor.submit(page, formTo(page, '/connect/sign-out'))
    expect(reply.headers.get('set-cookie')).toContain('sa_session=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax')
    expect(reply.headers.get('location')).toBe('/connect/apps')
    expect(served.services.sessions.size).toBe(0)
    expect(visitor.cookies.has('sa_session')).toBe(false)
    const next = await visitor.open('/connect/apps')
    expect(formWith(next, 'password')).toBeDefined()
    expect(next.html.text).toContain('You are signed out.')
    expect((await visitor.open('/connect/apps')).html.text, 'it says so once').not.toContain('signed out')
    const again = await visitor.submit(page, formTo(page, '/connect/sign-out'))
    expect([again.status, again.headers.get('location')]).toEqual([303, '/connect/apps'])
  })

  test.each(['nonsense.', 'toString.', '.', 'constructor', 'failed.%ff', 'x'.repeat(1000)])(
    'are shown as usual to a browser with a notice that is none of ours: %s',
    async (value) => {
      await visitor.openSignedIn('/connect/apps', USER)
      visitor.cookies.set('sa_notice', value)
      const page = await visitor.open('/connect/apps')
      expect([page.status, page.html.text.includes('Other')]).toEqual([200, true])
    },
  )

  test('who is signed in is not told otherwise', async () => {
    await visitor.openSignedIn('/connect/apps', USER)
    visitor.cookies.set('sa_notice', 'signOutDone.')
    expect((await visitor.open('/connect/apps')).html.text).not.toContain('signed out')
  })

  test('a form that was made for something else signs nobody out', async () => {
    const page = await visitor.openSignedIn('/connect/apps', USER)
    const csrf = form(page, 'grant_id').fields.csrf ?? ''
    const reply = await visitor.submit(page, formTo(page, '/connect/sign-out'), { csrf })
    expect(reply.status).toBe(403)
    expect(reply.text).toContain('href="/connect/apps"') // and not where it says that somebody has signed out
    expect(served.services.sessions.size).toBe(1)
  })
})

describe('an address that forms are sent to', () => {
  test.each(['/connect/sign-in', '/connect/sign-out', '/connect/apps/disconnect'])(
    '%s, opened by hand, leads to the page that has the form, and to the authorization in progress',
    async (path) => {
      const lead = async (to: string) => (await visitor.request(to)).headers.get('location')
      expect(await lead(path)).toBe('/connect/apps')
      expect(await lead(path + new URL(authorizePath(), served.origin).search)).toBe(`${authorizePath()}#wj_redirect`)
      expect((await visitor.request(`${path}?appid=a&appid=b`)).status).toBe(400)
    },
  )
})

describe('when services fail', () => {
  test.each(forms)(
    'unavailable is 503 with a link to try again that keeps the request: a form %s',
    async (_, open, formOf) => {
      const page = await open()
      served.services.failure = ErrorReason.UNAVAILABLE
      const sent = { decision: 'confirm', ...USER }
      const reply = await visitor.submitAndFollow(page, formOf(page), sent)
      expect(reply.status).toBe(503)
      expect(reply.headers.get('retry-after')).toBe('1')
      expect(reply.html.links.find(({ text }) => text === 'Try again')?.href).toBe(`${authorizePath()}#wj_redirect`)
      served.services.failure = undefined
      expect((await visitor.submit(page, formOf(page), sent)).status).toBe(303)
    },
  )

  test('an app is not reported as disconnected while the service is unavailable', async () => {
    served.services.grants.set('g1', { appid: 'app1', appName: 'Harvest Insights' })
    const page = await visitor.openSignedIn('/connect/apps', USER)
    served.services.failure = ErrorReason.UNAVAILABLE
    const reply = await visitor.submit(page, form(page, 'grant_id'))
    expect([reply.status, reply.headers.get('location')]).toEqual([503, undefined])
  })

  test('unavailable is 503 with a link to try again when the page itself is opened', async () => {
    served.services.failure = ErrorReason.UNAVAILABLE
    const page = await visitor.open(authorizePath())
    expect(page.status).toBe(503)
    expect(page.html.links.find(({ text }) => text === 'Try again')?.href, 'the page itself').toBe('')
  })

  test('a form that cannot be read is a 400 that says so', async () => {
    const page = await authorizationPage()
    const body = `${new URLSearchParams(decisionForm(page).fields)}&x=%zz`
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const reply = await visitor.request(decisionForm(page).action, { method: 'POST', headers, body })
    expect(reply.status).toBe(400)
    expect(reply.text).toContain('This form could not be read')
    const wayOn = readHtml(reply.text).links.find(({ text }) => text === 'Start again')?.href
    expect(wayOn).toBe(`${authorizePath()}#wj_redirect`)
  })

  test('a form of an app that is gone says that the appid is unknown, and offers no way on', async () => {
    const page = await authorizationPage()
    served.services.app.appid = 'app2'
    const reply = await visitor.submitAndFollow(page, decisionForm(page), { decision: 'confirm' })
    expect(reply.status).toBe(400)
    expect(reply.html.text).toMatch(/appid is unknown/)
    expect(reply.html.links.filter(({ href }) => href === '/connect/apps')).toEqual([])
  })

  test('a session that cannot be looked up is not taken for a missing one', async () => {
    await authorizationPage()
    served.services.failure = ErrorReason.UNAVAILABLE
    expect((await visitor.open('/connect/apps')).status).toBe(503)
  })

  test('anything else is 500 with the request id; the service that failed has logged it, so the gateway does not', async () => {
    served.services.failure = 'bug'
    const page = await visitor.open(authorizePath())
    expect(page.status).toBe(500)
    expect(page.html.text).toMatch(/Request ID [0-9a-f-]{36}/)
    expect(served.unexpected).toHaveLength(0)
  })
})

test('the log has how each request ended and for which app', async () => {
  const appid = `app_${'x'.repeat(22)}`
  served.services.app.appid = appid
  const link = authorizePath({ appid })
  const page = await visitor.open(link)
  await visitor.submit(page, form(page, 'password'), { ...USER, password: 'wrong' })
  const shown = await authorizationPage(link)
  await visitor.decide(shown, 'cancel')
  await visitor.decide(shown, 'confirm')
  served.services.sessions.clear()
  await visitor.decide(shown, 'confirm')
  visitor.cookies.delete('sa_session')
  await visitor.decide(shown, 'cancel')
  await visitor.request(form(page, 'password').action)
  const told = served.records
  expect(told.map((record) => `${record.route} ${record.outcome}`)).toEqual([
    'authorize sign_in',
    'sign_in sign_in_failed',
    'authorize sign_in',
    'sign_in signed_in',
    'authorize authorization',
    'decide cancelled',
    'decide confirmed',
    'decide sign_in',
    'decide sign_in',
    'way_back way_back',
  ])
  expect(new Set(told.map((record) => record.appid))).toEqual(new Set([appid]))
})

test('every call to a service carries the request id and a timeout', async () => {
  const page = await authorizationPage()
  await visitor.decide(page, 'confirm')
  await visitor.decide(page, 'cancel')
  served.services.grants.set('g1', { appid: 'app1', appName: 'Harvest Insights' })
  const apps = await visitor.open('/connect/apps')
  await visitor.submit(apps, form(apps, 'grant_id'))
  await visitor.submit(page, formTo(page, '/connect/sign-out'))
  const { calls, causes } = served.services
  expect(new Set(calls).size, 'all that pages call').toBe(7)
  const requestIds = served.records.map(({ requestId }) => requestId)
  for (const [at, { requestId, timeoutMs }] of causes.entries()) {
    expect(requestIds, calls[at]).toContain(requestId)
    expect(timeoutMs, calls[at]).toBeGreaterThan(0)
  }
})

describe('every page', () => {
  const paths = [
    '/',
    authorizePath(),
    authorizePath({ appid: 'nobody' }),
    '/connect/apps',
    '/nothing',
    '/connect/sign-in',
    '/connect/sign-out',
    '/connect/apps/disconnect',
  ]
  test.each(paths)('%s is neither cached nor framed, and sends no referrer to others', async (path) => {
    const { headers } = await visitor.request(path)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(headers.get('referrer-policy')).toBe('same-origin')
    expect(headers.get('x-content-type-options')).toBe('nosniff')
    expect(headers.get('x-frame-options')).toBe('DENY')
    expect(headers.get('content-security-policy')?.split('; ')).toEqual([
      "default-src 'none'",
      ...['style-src', 'script-src', 'img-src'].map((kind) => `${kind} 'self'`),
      ...['base-uri', 'frame-ancestors'].map((kind) => `${kind} 'none'`),
    ])
    expect(headers.get('cross-origin-resource-policy')).toBe('same-origin')
    expect(headers.get('permissions-policy')).toMatch(/^camera=\(\), geolocation=\(\), microphone=\(\), /)
  })

  test.each<[number, string, string, Outgoing]>([
    [404, 'Page not found', '/nothing', {}],
    [405, 'That is not possible here', '/', { method: 'POST' }],
    [413, 'The form is too large', '/connect/sign-in', { method: 'POST', body: 'x'.repeat(20_000) }],
    [414, 'This link is too long', `/?${'x'.repeat(9_000)}`, {}],
    [431, 'Your browser sent too much', '/', { headers: { cookie: 'x'.repeat(17_000), accept: 'text/html' } }],
  ])('that is %d says so: %s', async (status, title, path, outgoing) => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded', 'sec-fetch-site': 'same-origin' }
    const reply = await visitor.request(path, { headers, ...outgoing })
    expect([reply.status, readHtml(reply.text).title.includes(title)]).toEqual([status, true])
  })

  test('has a Cross-Origin-Opener-Policy unless it leads to an app', async () => {
    const policyOf = async (path: string) => (await visitor.request(path)).headers.get('cross-origin-opener-policy')
    expect(await policyOf(authorizePath())).toBeUndefined()
    const page = await authorizationPage()
    expect(page.headers.get('cross-origin-opener-policy')).toBeUndefined()
    expect(await policyOf('/connect/apps')).toBe('same-origin')
  })

  test.each(['zh', 'en'])('has every text in %s, and no inline script or style', async (language) => {
    served.services.grants.set('g1', { appid: 'app1', appName: 'Harvest Insights' })
    visitor = new Visitor(served.origin, language)
    const pages = [await visitor.open('/'), await visitor.open(authorizePath()), await authorizationPage()]
    pages.push(await visitor.open('/connect/apps'), await visitor.open('/nothing'))
    for (const page of pages) {
      expect(page.html.lang).toBe(language === 'zh' ? 'zh-CN' : 'en')
      expect(page.headers.get('content-language')).toBe(page.html.lang)
      expect(page.text).not.toMatch(/undefined|\[object|\{\w+\}/)
      for (const { name, attributes } of page.html.tags) {
        expect(Object.keys(attributes).filter((key) => key === 'style' || key.startsWith('on'))).toEqual([])
        if (name === 'script') expect(attributes.src).toMatch(/^\/connect\/assets\/page\.js\?v=/)
      }
    }
  })

  test.each(['', '?v=another0hash', '?V=1'])(
    'has a style sheet that is served but not cached under the address of another version: %j',
    async (query) => {
      const { status, headers } = await visitor.request(`/connect/assets/style.css${query}`)
      expect([status, headers.get('cache-control')]).toEqual([200, 'no-store'])
      expect(headers.get('content-type')).toMatch(/^text\/css/)
    },
  )
})

test('the language switch leads to the same page, with all that the app asked for', async () => {
  const toChinese = (page: { readonly text: string }) =>
    readHtml(page.text).links.find(({ text }) => text === '中文')?.href
  const asked = `${authorizePath()}&lang=zh#wj_redirect`
  expect(toChinese(await authorizationPage())).toBe(asked)
  expect(toChinese(await visitor.open('/connect/apps'))).toBe('/connect/apps?lang=zh')
  expect(toChinese(await visitor.open('/'))).toBe('/?lang=zh')
})

test('the language switch keeps what was typed as the username and the authorization, and signs nobody in', async () => {
  const signIn = await visitor.open(authorizePath())
  const chinese = await visitor.switchLanguage(signIn, 'zh-CN', USER)
  expect([chinese.status, chinese.html.title]).toEqual([200, '登录 · 问卷授权'])
  expect(form(chinese, 'password').fields).toMatchObject({ username: USER.username, password: '' })
  expect(chinese.text).not.toContain(USER.password)
  expect(served.services.calls).not.toContain('signIn')
  const reply = await visitor.submit(chinese, form(chinese, 'password'), USER)
  expect([reply.status, reply.headers.get('location')]).toEqual([303, `${authorizePath()}#wj_redirect`])
  expect((await visitor.open('/')).html.lang).toBe('zh-CN')
})

test('Enter in the sign-in form signs in: the button it stands for is not the language switch', async () => {
  const { html } = await visitor.open(authorizePath())
  const [first] = html.tags.filter(({ name, attributes }) => name === 'button' && attributes.type === 'submit')
  expect(first?.attributes).toMatchObject({ form: 'sign-in', tabindex: '-1' })
  expect(first?.attributes).not.toHaveProperty('formaction')
})

test.each([
  ['/connect/apps', '/connect/apps'],
  ['https://evil.example//evil.example/x?y=1&lang=en&z=%zz', '/evil.example/x?y=1&z=%zz'],
  ['/connect/language?lang=en', '/'],
  ['nonsense', '/'],
  ['blob:https://evil.example/1', '/'],
  ['other:/\\evil.example', '/'],
  [undefined, '/'],
])('the language switch of an error page leads back to a page of ours, from %s to %s', async (from, to) => {
  const headers = from === undefined ? {} : { referer: from.startsWith('/') ? served.origin + from : from }
  const { status, headers: sent } = await visitor.request('/connect/language?lang=zh', { headers })
  expect([status, sent.get('location')]).toEqual([303, to])
  expect(visitor.cookies.get('sa_lang')).toBe('zh')
})

test('times and durations are shown in the language of the page', async () => {
  visitor = new Visitor(served.origin, 'zh')
  served.services.grants.set('g1', { appid: 'app1', appName: 'Harvest Insights' })
  const page = await visitor.open(authorizePath())
  served.services.signInWaitSeconds = 40
  expect((await visitor.submit(page, form(page, 'password'), USER)).text).toContain('40 秒')
  served.services.signInWaitSeconds = 0
  expect((await authorizationPage()).html.text).toContain('30 天')
  const shown = (await visitor.open('/connect/apps')).html.text
  expect(shown.match(/2026年\d+月\d+日 08:30 UTC\+8/g)).toEqual([
    '2026年11月18日 08:30 UTC+8',
    '2026年11月21日 08:30 UTC+8',
    '2026年12月18日 08:30 UTC+8',
  ])
})

test('over https the cookies are Secure and bound to the host', async () => {
  const secure = await serve('https://auth.example')
  try {
    const { headers } = await new Visitor(secure.origin).request('/connect/apps?lang=zh')
    const [formKey, language] = headers.get('set-cookie')?.split('\n') ?? []
    expect(formKey).toMatch(/^__Host-sa_form_key=[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Lax$/)
    expect(language).toBe('sa_lang=zh; Max-Age=31536000; Path=/; HttpOnly; Secure; SameSite=Lax')
  } finally {
    await secure.close()
  }
})
