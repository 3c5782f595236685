import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Form, readHtml } from '../harness/html.js'
import type { Reply } from '../harness/http.js'
import { loadOpenApi } from '../harness/openapi.js'
import { authorizePath, type Query, type TestApp, type TestUser, tokensOf, type Verbs } from '../harness/verbs.js'
import { decisionForm, formAskingFor, formWith, type Page, type Visitor } from '../harness/visitor.js'
import { openService, startService } from '../harness.js'

let service: Verbs
let app: TestApp
let user: TestUser
beforeAll(async () => {
  service = await openService()
  app = await service.createApp()
  user = await service.createUser()
})
afterAll(() => service.backend.close())

async function openForm(state = 'abc'): Promise<{ visitor: Visitor; page: Page }> {
  const visitor = service.visitor()
  return { visitor, page: await service.authorizationPage(visitor, app, user, state) }
}

function expectPageWithoutRedirect(reply: Reply, status: number): void {
  expect(reply.status).toBe(status)
  expect(reply.headers.has('location')).toBe(false)
  expect(reply.headers.get('content-type')).toMatch(/^text\/html/)
}

const S256 = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM' // RFC 7636, appendix B

const codeIn = (reply: Reply) => new URL(reply.headers.get('location') ?? '').searchParams.get('code') ?? ''

describe('a bad authorization request gets our page with status 400 and never a redirect', () => {
  const bad: readonly { readonly what: string; readonly changed: Query }[] = [
    { what: 'no appid', changed: { appid: undefined } },
    { what: 'an empty appid', changed: { appid: '' } },
    { what: 'an unknown appid', changed: { appid: 'app_unknown' } },
    { what: 'no redirect_uri', changed: { redirect_uri: undefined } },
    { what: 'an empty redirect_uri', changed: { redirect_uri: '' } },
    { what: 'an unregistered redirect_uri', changed: { redirect_uri: 'https://evil.example/' } },
    { what: 'no response_type', changed: { response_type: undefined } },
    { what: 'response_type token', changed: { response_type: 'token' } },
    { what: 'response_type CODE', changed: { response_type: 'CODE' } },
    { what: 'response_type "code token"', changed: { response_type: 'code token' } },
    { what: 'no scope', changed: { scope: undefined } },
    { what: 'another scope', changed: { scope: 'snsapi_base' } },
    { what: 'two scopes', changed: { scope: 'snsapi_user snsapi_user' } },
    { what: 'a state of 129 characters', changed: { state: 'a'.repeat(129) } },
    { what: 'a state of 8,000 characters', changed: { state: 'a'.repeat(7_000) } },
    { what: 'a state with a hyphen', changed: { state: 'a-b' } },
    { what: 'a state with a space', changed: { state: 'a b' } },
    { what: 'a state with a line break', changed: { state: 'a\r\nb' } },
    { what: 'a state ending in a line break', changed: { state: 'a\n' } },
    { what: 'a state in Chinese', changed: { state: '状态' } },
    { what: 'a script as state', changed: { state: '<script>alert(1)</script>' } },
    {
      what: 'a code_challenge whose method is plain',
      changed: { code_challenge: S256, code_challenge_method: 'plain' },
    },
    { what: 'a code_challenge without a method', changed: { code_challenge: S256 } },
    { what: 'a code_challenge_method alone', changed: { code_challenge_method: 'S256' } },
    {
      what: 'a code_challenge in hex',
      changed: { code_challenge: '0'.repeat(64), code_challenge_method: 'S256' },
    },
    {
      what: 'a code_challenge of 129 characters',
      changed: { code_challenge: 'a'.repeat(129), code_challenge_method: 'S256' },
    },
  ]
  /** What openapi.yaml says by itself, parameter by parameter, of a link with this in it. */
  function isGoodByDocument(changed: Query): boolean {
    const openapi = loadOpenApi()
    const sent = new URL(authorizePath(app, undefined, changed), service.url).searchParams
    const at = '/paths/~1connect~1oauth2~1authorize/get/parameters'
    return (openapi.at(at) as unknown[]).every((_, index) => {
      const pointer = openapi.follow(`${at}/${index}`) ?? ''
      const { name, required } = openapi.at(pointer) as { name: string; required: boolean }
      const value = sent.get(name)
      return value === null ? !required : openapi.validator(`${pointer}/schema`)(value)
    })
  }

  test('openapi.yaml says the same of each parameter, as far as it knows', () => {
    const challenge = { code_challenge: S256, code_challenge_method: 'S256' }
    expect([{}, { state: 'aZ9' }, challenge].map(isGoodByDocument)).toEqual([true, true, true])
    const known = ['an unknown appid', 'an unregistered redirect_uri'] // only to us
    const together = ['a code_challenge without a method', 'a code_challenge_method alone']
    expect(bad.filter(({ changed }) => isGoodByDocument(changed)).map(({ what }) => what)).toEqual([
      ...known,
      ...together,
    ])
  })

  test.each(bad)('$what, signed in or not', async ({ changed }) => {
    const target = authorizePath(app, undefined, changed)
    for (const visitor of [service.visitor(), await signedIn()]) {
      const reply = await visitor.request(target)
      expectPageWithoutRedirect(reply, 400)
      expect(reply.text).not.toContain('<script>alert')
      expect(reply.text).not.toContain('evil.example')
    }
  })

  test.each(['appid', 'redirect_uri', 'response_type', 'scope', 'state'])('%s given twice', async (name) => {
    const target = authorizePath(app, 'abc')
    const value = new URLSearchParams(target.split('?')[1]).get(name) ?? ''
    expectPageWithoutRedirect(await service.visitor().request(`${target}&${name}=${encodeURIComponent(value)}`), 400)
  })

  test.each(['%zz', '%', '%00', '%ff', '%0d%0aLocation:%20https://evil.example'])(
    'a redirect_uri with %s',
    async (garbage) => {
      const reply = await service
        .visitor()
        .request(authorizePath(app).replace('&response_type', `${garbage}&response_type`))
      expectPageWithoutRedirect(reply, 400)
    },
  )

  test('a disabled app, and a POST for it', async () => {
    const own = await startService()
    const gone = await own.createApp()
    const visitor = own.visitor()
    const page = await own.authorizationPage(visitor, gone, await own.createUser())
    await own.admin.setAppDisabled({ appid: gone.appid, disabled: true })
    expectPageWithoutRedirect(await visitor.request(authorizePath(gone)), 400)
    expectPageWithoutRedirect(await visitor.decide(page, 'confirm'), 400)
    expectPageWithoutRedirect(await visitor.decide(page, 'cancel'), 400)
  })

  test('a form whose redirect_uri, appid, scope or state was changed', async () => {
    const { visitor, page } = await openForm()
    const stranger = await service.createApp({ redirectUri: 'https://other.example/callback' })
    const changes = [
      { redirect_uri: 'https://evil.example/' },
      { redirect_uri: stranger.redirectUri, appid: stranger.appid },
      { state: 'other' },
      { scope: 'snsapi_base' },
    ]
    for (const change of changes) {
      for (const decision of ['confirm', 'cancel']) {
        const reply = await visitor.submit(page, formAskingFor(decisionForm(page), change), { decision })
        expect(reply.status).toBeGreaterThanOrEqual(400)
        expect(reply.headers.has('location')).toBe(false)
      }
    }
  })

  async function signedIn(): Promise<Visitor> {
    shared ??= await service.signedIn(user)
    return shared
  }
  let shared: Visitor | undefined
})

describe('redirect_uri', () => {
  test('some 300 mutations of a registered one yield 0 redirects', async () => {
    const registered = 'https://app.example:8443/callback/Path?x=1&y=%2F'
    const own = await startService()
    const target = await own.createApp({ redirectUri: registered })
    const visitor = await own.signedIn(await own.createUser())
    const mutations = [...new Set(mutationsOf(registered))].filter((uri) => uri !== registered)
    expect(mutations.length).toBeGreaterThan(300)
    for (const redirect_uri of mutations) {
      const reply = await visitor.request(authorizePath(target, 'abc', { redirect_uri }))
      if (reply.status !== 400 || reply.headers.has('location'))
        throw new Error(`${redirect_uri} was not refused: ${reply.status}`)
    }
    expect((await visitor.request(authorizePath(target, 'abc'))).status).toBe(200)
  })

  test('that is registered is returned to byte for byte, with its query kept and code and state added', async () => {
    const uris = [
      'https://app.example/cb',
      'https://app.example',
      'https://app.example/cb?x=1&y=%2F+z',
      'https://app.example/cb?',
      'https://app.example/cb?x=1&',
      'https://APP.example:443/a/../b//c',
      'http://127.0.0.1:3000/cb',
      'http://localhost/cb?codes=old&xstate=',
    ]
    for (const redirectUri of uris) {
      const own = await service.createApp({ redirectUri })
      const visitor = service.visitor()
      const page = await service.authorizationPage(visitor, own, user, 'S1')
      const location = (await visitor.decide(page, 'confirm')).headers.get('location') ?? ''
      const separator = redirectUri.includes('?') ? (/[?&]$/.test(redirectUri) ? '' : '&') : '?'
      expect(location).toMatch(/code=[A-Za-z0-9_-]+&state=S1$/)
      expect(location.startsWith(`${redirectUri}${separator}code=`)).toBe(true)
    }
  })

  const unregistrable = [
    'app.example/cb',
    '/cb',
    '//app.example/cb',
    'http://app.example/cb',
    'http://127.0.0.1.evil.example/',
    'http://localhost.evil.example/',
    'https://app.example/cb#x',
    'https://app.example/cb#',
    'https://user@app.example/cb',
    'https://user:pass@app.example/cb',
    'https://@app.example/cb',
    'https://app.example:99999/cb',
    'https://app.example/c\\b',
    'https://*.app.example/cb',
    'https://*/cb',
    'https://app%2eexample/cb',
    'http://127.1/cb',
    'https://2130706433/cb',
    'https://app.example\\cb',
    'javascript:alert(1)',
    'data:text/html,x',
    'myapp://callback',
    'ftp://app.example/',
    'https:///cb',
    'https://',
    ' https://app.example/cb',
    'https://app.example/cb\r\nX: y',
    'https://app.example\\@evil.example/',
    'https://app.example/cb?code=old',
    'https://app.example/cb?x=1&state',
    'https://app.example?error=&x=1',
    'https://app.example/cb?co%64e=old',
    '',
  ]
  test.each(unregistrable)('%j cannot be registered', async (redirectUri) => {
    await expect(service.admin.createApp({ name: 'x', redirectUris: [redirectUri] })).rejects.toThrow('redirect_uri')
  })

  test.each([
    'https://app.example?to=a@b',
    'https://app.example/@me',
    'http://[::1]:8080/cb?x=code',
    'https://a.example/?Code=1',
    'https://A.Example:443/*',
    'https://a_b.example:',
  ])('%j can be registered', async (redirectUri) => {
    const { app: created } = await service.admin.createApp({ name: 'x', redirectUris: [redirectUri, redirectUri] })
    expect(created?.redirectUris).toEqual([redirectUri])
  })

  test('can be any of several that an app has registered', async () => {
    const redirectUris = ['https://a.example/cb', 'https://b.example/cb']
    const created = await service.admin.createApp({ name: 'Two', redirectUris })
    const appid = created.app?.appid ?? ''
    for (const redirectUri of redirectUris) {
      expect((await service.visitor().request(authorizePath({ appid, redirectUri }))).status).toBe(200)
    }
  })
})

describe('state', () => {
  test.each(['a', 'Z', '0', 'a'.repeat(128), 'aZ09'.repeat(32)])('%s comes back byte for byte', async (state) => {
    const visitor = await service.signedIn(user)
    for (const decision of ['confirm', 'cancel'] as const) {
      const callback = await service.authorize(app, user, { visitor, state, decision })
      expect(callback.searchParams.getAll('state')).toEqual([state])
    }
  })

  test.each([undefined, ''])('%j leaves no state in the callback', async (state) => {
    const callback = await service.authorize(app, user, { state })
    expect([...callback.searchParams.keys()]).toEqual(['code'])
  })
})

describe('a decision', () => {
  test('to confirm is a 303 with no-store and same-origin', async () => {
    const { visitor, page } = await openForm()
    const reply = await visitor.decide(page, 'confirm')
    expect(reply.status).toBe(303)
    expect(reply.headers.get('cache-control')).toContain('no-store')
    expect(reply.headers.get('referrer-policy')).toBe('same-origin')
  })

  test('to cancel returns access_denied and the state, and no code', async () => {
    const callback = await service.authorize(app, user, { state: 'abc', decision: 'cancel' })
    expect([...callback.searchParams]).toEqual([
      ['error', 'access_denied'],
      ['state', 'abc'],
    ])
  })

  test('clicked twice yields one code', async () => {
    const { visitor, page } = await openForm()
    const replies = await Promise.all([
      visitor.decide(page, 'confirm'),
      visitor.decide(page, 'confirm'),
      visitor.decide(page, 'confirm'),
    ])
    expect(new Set(replies.map(codeIn)).size).toBe(1)
    const [reply] = replies
    if (reply === undefined) throw new Error('no answer')
    tokensOf(await service.exchange(app, codeIn(reply)))
  })

  test('made again after its code was used yields a new code, sixteen in all, then a link to a new form', async () => {
    const { visitor, page } = await openForm()
    for (let i = 0; i < 16; i += 1) {
      tokensOf(await service.exchange(app, codeIn(await visitor.decide(page, 'confirm'))))
    }
    const reply = await visitor.decide(page, 'confirm')
    expectPageWithoutRedirect(reply, 400)
    const { text, links } = readHtml(reply.text)
    expect(text).toContain('This form has expired')
    const again = links.find((link) => link.text === 'Start again')?.href
    expect(again).toBe(`${authorizePath(app, 'abc')}#wj_redirect`)
  })

  test('is asked for every time: nothing is remembered', async () => {
    const visitor = service.visitor()
    await service.authorize(app, user, { visitor })
    const page = await visitor.open(authorizePath(app))
    expect(
      decisionForm(page)
        .buttons.map(({ value }) => value)
        .sort(),
    ).toEqual(['cancel', 'confirm'])
  })

  test.each([{}, { decision: '' }, { decision: 'yes' }, { decision: 'CONFIRM' }])(
    '%j is neither confirm nor cancel and issues nothing',
    async (sent) => {
      const { visitor, page } = await openForm()
      expectPageWithoutRedirect(await visitor.submit(page, decisionForm(page), sent as Record<string, string>), 400)
    },
  )

  test('by GET issues nothing, whatever the query holds', async () => {
    const { visitor, page } = await openForm()
    const everything = new URLSearchParams({ ...decisionForm(page).fields, decision: 'confirm' })
    const { events: before } = await service.admin.listAuditEvents({ appid: app.appid })
    const reply = await visitor.request(`${decisionForm(page).action}&${everything}`, {
      headers: { purpose: 'prefetch', 'sec-purpose': 'prefetch' },
    })
    expectPageWithoutRedirect(reply, 200)
    const { events: after } = await service.admin.listAuditEvents({ appid: app.appid })
    expect(after.length).toBe(before.length)
  })
})

describe('a form', () => {
  test('stays valid when the page is opened again, in the same or another tab', async () => {
    const { visitor, page } = await openForm('first')
    await service.authorizationPage(visitor, app, user, 'second')
    await visitor.open('/connect/apps')
    const reply = await visitor.decide(page, 'confirm')
    expect(reply.headers.get('location')).toMatch(/state=first$/)
  })

  test('of one tab does not mix with that of another: two tabs, two apps, each gets its own code', async () => {
    const other = await service.createApp({ redirectUri: 'https://other.example/callback' })
    const visitor = service.visitor()
    const first = await service.authorizationPage(visitor, app, user, 'one')
    const second = await service.authorizationPage(visitor, other, user, 'two')
    const replies = [await visitor.decide(second, 'confirm'), await visitor.decide(first, 'confirm')]
    expect(replies.map((reply) => new URL(reply.headers.get('location') ?? '').host)).toEqual([
      'other.example',
      'app.example',
    ])
    expect((await service.exchange(app, codeIn(replies[0] as Reply))).type).toBe('invalid_code')
    expect((await service.exchange(other, codeIn(replies[0] as Reply))).code).toBe('OK')
    expect((await service.exchange(app, codeIn(replies[1] as Reply))).code).toBe('OK')
  })

  test('opened twice before signing in works in both tabs', async () => {
    const visitor = service.visitor()
    const [first, second] = [
      await visitor.open(authorizePath(app, 'one')),
      await visitor.open(authorizePath(app, 'two')),
    ]
    for (const [page, state] of [
      [first, 'one'],
      [second, 'two'],
    ] as const) {
      const form = formWith(page, 'password')
      if (form === undefined) throw new Error('no sign-in form')
      const next = await visitor.submitAndFollow(page, form, { username: user.username, password: user.password })
      expect((await visitor.decide(next, 'confirm')).headers.get('location')).toMatch(new RegExp(`state=${state}$`))
    }
  })

  const attacks: readonly { readonly what: string; readonly attack: (v: Visitor, p: Page) => Promise<Reply> }[] = [
    { what: 'without its csrf value', attack: (v, p) => v.submit(p, without(p, 'csrf'), { decision: 'confirm' }) },
    {
      what: 'with a csrf value whose signature differs by one character',
      attack: (v, p) =>
        v.submit(p, decisionForm(p), { csrf: altered(decisionForm(p).fields.csrf), decision: 'confirm' }),
    },
    {
      what: 'with the csrf value of another form of the page',
      attack: (v, p) => v.submit(p, decisionForm(p), { csrf: signOutForm(p).fields.csrf ?? '', decision: 'confirm' }),
    },
    {
      what: 'with another csrf value',
      attack: (v, p) => v.submit(p, decisionForm(p), { csrf: 'x.y.z', decision: 'confirm' }),
    },
    {
      what: 'with the csrf value given twice',
      attack: (v, p) =>
        v.request(
          decisionForm(p).action,
          post(`${new URLSearchParams(decisionForm(p).fields)}&csrf=x&decision=confirm`),
        ),
    },
    {
      what: 'from another origin',
      attack: (v, p) =>
        v.submit(
          p,
          decisionForm(p),
          { decision: 'confirm' },
          { headers: { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' } },
        ),
    },
    {
      what: 'from another origin that hides Sec-Fetch-Site',
      attack: (v, p) =>
        v.submit(p, decisionForm(p), { decision: 'confirm' }, { headers: { origin: 'https://evil.example' } }),
    },
    {
      what: 'from a page that hides its origin, by a browser without Fetch Metadata',
      attack: (v, p) =>
        v.request(decisionForm(p).action, {
          ...post(`${new URLSearchParams(decisionForm(p).fields)}&decision=confirm`),
          headers: { 'content-type': 'application/x-www-form-urlencoded', origin: 'null' },
        }),
    },
    {
      what: 'from a sandboxed frame',
      attack: (v, p) =>
        v.submit(
          p,
          decisionForm(p),
          { decision: 'confirm' },
          { headers: { origin: 'null', 'sec-fetch-site': 'cross-site' } },
        ),
    },
    {
      what: 'from a sibling site',
      attack: (v, p) =>
        v.submit(p, decisionForm(p), { decision: 'confirm' }, { headers: { 'sec-fetch-site': 'same-site' } }),
    },
    {
      what: 'as JSON',
      attack: (v, p) =>
        v.request(decisionForm(p).action, {
          ...post(JSON.stringify({ ...decisionForm(p).fields, decision: 'confirm' })),
          headers: { 'content-type': 'application/json', origin: service.url },
        }),
    },
    {
      what: 'as text/plain',
      attack: (v, p) =>
        v.request(decisionForm(p).action, {
          ...post(`${new URLSearchParams(decisionForm(p).fields)}&decision=confirm`),
          headers: { 'content-type': 'text/plain', origin: service.url },
        }),
    },
  ]
  test.each(attacks)('sent $what is refused and issues nothing', async ({ attack }) => {
    const { visitor, page } = await openForm()
    const reply = await attack(visitor, page)
    expect(reply.status).toBeGreaterThanOrEqual(400)
    expect(reply.status).toBeLessThan(500)
    expect(reply.headers.has('location')).toBe(false)
    expect((await visitor.decide(page, 'confirm')).status).toBe(303)
  })

  test('of one browser is of no use in another, signed in as somebody else', async () => {
    const { page } = await openForm()
    const victim = await service.signedIn(await service.createUser())
    const reply = await victim.submit(page, decisionForm(page), { decision: 'confirm' })
    expect(reply.status).toBe(403)
    expect(reply.headers.has('location')).toBe(false)
  })

  test('dies with the session it was shown in', async () => {
    const { visitor, page } = await openForm()
    const signOut = signOutForm(page)
    await visitor.submitAndFollow(page, signOut)
    const reply = await visitor.decide(page, 'confirm')
    expect([reply.status, reply.headers.get('location')]).toEqual([303, `${authorizePath(app, 'abc')}#wj_redirect`])
    expect((await visitor.open(authorizePath(app, 'abc'))).html.text).toContain('session has ended')
  })

  test('expires, says so, and leads back to the same authorization', async () => {
    const own = await startService({ env: { SESSION_IDLE_SECONDS: '40000' } })
    const ownApp = await own.createApp()
    const visitor = own.visitor()
    const page = await own.authorizationPage(visitor, ownApp, await own.createUser(), 'keep')
    own.clock.advance({ minutes: 30 })
    const refused = await visitor.decide(page, 'confirm')
    expectPageWithoutRedirect(refused, 400)
    const [wayOn] = refused.text.match(/\/connect\/oauth2\/authorize\?[^"#]*/) ?? []
    const again = await visitor.open((wayOn ?? '').replaceAll('&amp;', '&'))
    expect((await visitor.decide(again, 'confirm')).headers.get('location')).toMatch(/state=keep$/)
  })

  test('that is larger than 16 KiB is refused with 413', async () => {
    const { visitor, page } = await openForm()
    const reply = await visitor.submit(page, decisionForm(page), { decision: 'confirm', x: 'a'.repeat(17_000) })
    expectPageWithoutRedirect(reply, 413)
  })
})

describe('the page', () => {
  test('names the app, the host of the callback, the account, what is granted, for how long and how to take it back', async () => {
    const own = await service.createApp({ name: 'Chart Maker', redirectUri: 'https://charts.example:8443/cb' })
    const visitor = service.visitor()
    const page = await service.authorizationPage(visitor, own, user)
    for (const text of ['Chart Maker', 'charts.example:8443', user.username, '30 days', 'profile', 'surveys'])
      expect(page.html.text).toContain(text)
    expect(page.html.links.map(({ href }) => href)).toContain('/connect/apps')
    expect(
      decisionForm(page)
        .buttons.map(({ label }) => label)
        .sort(),
    ).toEqual(['Cancel', 'Confirm'])
  })

  test('says since when the app is connected: as long as it has a grant of this user that is live', async () => {
    const access = await service.grantAccess()
    const visitor = await service.signedIn(access.user)
    const shown = async (forApp = access.app) =>
      (await service.authorizationPage(visitor, forApp, access.user)).html.text.match(
        /Already connected since ([^.]+) \./,
      )?.[1]
    const since = await shown()
    expect(since).toMatch(/^\d+ \w{3} \d{4}$/)
    expect(await shown(app)).toBeUndefined()
    const [grantId = ''] = await service.grantIds({ username: access.user.username })
    await service.admin.revokeGrant({ grantId })
    expect(await shown()).toBeUndefined()
  })

  test('is shown only after signing in, and signing in leads back to it with everything kept', async () => {
    const visitor = service.visitor()
    const first = await visitor.open(authorizePath(app, 'keepMe'))
    expect(first.html.forms.some(({ buttons }) => buttons.some(({ name }) => name === 'decision'))).toBe(false)
    const page = await service.authorizationPage(visitor, app, user, 'keepMe')
    expect((await visitor.decide(page, 'confirm')).headers.get('location')).toMatch(/state=keepMe$/)
  })

  test('lets the user switch the account and go on with the same authorization', async () => {
    const { visitor, page } = await openForm('switch')
    const form = signOutForm(page)
    const signIn = await visitor.submitAndFollow(page, form)
    const other = await service.createUser({ nickname: 'Other' })
    const again = await visitor.submitAndFollow(signIn, formWith(signIn, 'password') ?? form, {
      username: other.username,
      password: other.password,
    })
    expect(again.html.text).toContain(other.username)
    const reply = await visitor.decide(again, 'confirm')
    expect(reply.headers.get('location')).toMatch(/state=switch$/)
    const { openid } = tokensOf(await service.exchange(app, codeIn(reply)))
    expect(openid).not.toBe((await service.grantAccess({ app, user })).tokens.openid)
  })

  const hostile = [
    '<script>alert(1)</script>',
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    '{{7*7}} <%= 7*7 %> #{7*7}',
    '\u202egnp.exe',
    '&lt;b&gt;',
    'A'.repeat(100),
    '\u0301'.repeat(90),
  ]
  test.each(hostile)('shows a hostile name %j as text, isolated and short', async (name) => {
    const own = await service.createApp({ name })
    const person = await service.createUser({
      nickname: name,
      avatar: 'https://img.example/"><script>'.replace(/["<>]/g, '%22'),
    })
    const page = await service.authorizationPage(service.visitor(), own, person)
    expect(
      page.html.tags
        .filter(({ name: tag }) => tag === 'script')
        .every(({ attributes }) => (attributes.src ?? '').startsWith('/connect/')),
    ).toBe(true)
    expect(
      page.html.tags.every(({ attributes }) => Object.keys(attributes).every((key) => !key.startsWith('on'))),
    ).toBe(true)
    expect(page.text).not.toContain('49 ')
    expect(page.text).not.toContain('\u202e')
    expect(page.html.tags.filter(({ name: tag }) => tag === 'bdi').length).toBeGreaterThanOrEqual(3)
    expect(page.html.text).not.toContain('A'.repeat(80))
  })

  test('ignores unknown parameters of the link', async () => {
    const page = await service
      .visitor()
      .open(`${authorizePath(app)}&next=https://evil.example&lang[]=x&connect_redirect=1`)
    expect(page.status).toBe(200)
    expect(page.text).not.toContain('evil.example')
  })

  test.each(['PUT', 'DELETE', 'OPTIONS'])('answers %s with 405 and changes nothing', async (method) => {
    const reply = await service.visitor().request(authorizePath(app), { method })
    expect(reply.status).toBe(405)
    expect(reply.headers.get('allow')).toBe('GET, POST, HEAD')
  })

  test('answers HEAD as GET, without the page', async () => {
    const visitor = service.visitor()
    const [head, get] = [
      await visitor.request(authorizePath(app), { method: 'HEAD' }),
      await visitor.request(authorizePath(app)),
    ]
    expect({ status: head.status, text: head.text }).toEqual({ status: 200, text: '' })
    expect(Number(head.headers.get('content-length'))).toBeGreaterThan(1000)
    for (const name of ['content-type', 'cache-control', 'content-security-policy']) {
      expect(head.headers.get(name)).toBe(get.headers.get(name))
    }
  })

  test('answers HEAD in the language that the switch asks for, as GET', async () => {
    const ask = (method: string) => service.visitor().request(`${authorizePath(app)}&lang=zh`, { method })
    const [head, get] = [await ask('HEAD'), await ask('GET')]
    for (const name of ['content-language', 'content-length']) {
      expect(head.headers.get(name)).toBe(get.headers.get(name))
    }
    expect(head.headers.get('content-language')).toBe('zh-CN')
    expect(head.headers.get('set-cookie')).toContain('sa_lang=zh')
  })

  test('is also served to a client that sends the fragment of the link', async () => {
    const [reply] = await service.raw(
      `GET ${authorizePath(app, 'abc')}#wj_redirect HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n`,
    )
    expect(reply?.status).toBe(200)
  })
})

function post(body: string): { method: string; body: string; headers: Record<string, string> } {
  return { method: 'POST', body, headers: { 'content-type': 'application/x-www-form-urlencoded', origin: service.url } }
}

function without(page: Page, field: string): ReturnType<typeof decisionForm> {
  const form = decisionForm(page)
  return { ...form, fields: Object.fromEntries(Object.entries(form.fields).filter(([name]) => name !== field)) }
}

function signOutForm(page: Page): Form {
  const form = page.html.forms.find(({ action }) => action.includes('sign-out'))
  if (form === undefined) throw new Error('no way to switch account')
  return form
}

/** The same text with another character near its end. */
function altered(text = ''): string {
  const at = text.length - 2
  return text.slice(0, at) + (text[at] === 'A' ? 'B' : 'A') + text.slice(at + 1)
}

/** Everything that parsers, proxies and frameworks are known to confuse with the registered address. */
function mutationsOf(uri: string): string[] {
  const { hostname } = new URL(uri)
  const host = `${hostname}:8443`
  const withHost = (other: string) => uri.replace(host, other)
  const hosts = [
    'APP.example:8443',
    'app.example:443',
    'app.example',
    'app.example:08443',
    'app.example.:8443',
    'app.example:84430',
    'app.example:8443@evil.example',
    'evil.example',
    'evil.example:8443',
    'evilapp.example:8443',
    'app.example.evil.example:8443',
    'app.example%2eevil.example',
    'app.example%00.evil.example',
    'app.example\\@evil.example',
    'app.example@evil.example',
    'evil.example#@app.example:8443',
    'evil.example?@app.example:8443',
    'evil.example/app.example:8443',
    'user@app.example:8443',
    'user:pass@app.example:8443',
    ':@app.example:8443',
    '@app.example:8443',
    'аpp.example:8443',
    'app.еxample:8443',
    'app。example:8443',
    'xn--pp-8ia.example:8443',
    'app.example:8443.evil.example',
    '[::1]:8443',
    '127.0.0.1:8443',
    'app.example:',
    'app .example:8443',
    'app\t.example:8443',
    'www.app.example:8443',
  ]
  const schemes = [
    'http',
    'HTTPS',
    'Https',
    'ftp',
    'javascript',
    'data',
    'https ',
    ' https',
    'https:https',
    'view-source:https',
    'blob:https',
    'file',
    '',
  ]
  const suffixes = [
    '/',
    '/.',
    '//',
    '#',
    '#x',
    '%23',
    '&',
    '&z=1',
    '?',
    '%00',
    '%0d%0a',
    '\r\nX: y',
    '\0',
    ' ',
    '\t',
    '%20',
    '.',
    ';',
    ';x',
    '/..',
    '/../',
    '\\',
    '%2f',
    '%5c',
    '&state=x',
    '&code=x',
    '#wj_redirect',
    '\u200b',
    '＃',
  ]
  const edits = [
    uri.replace('://', ':/'),
    uri.replace('://', ':///'),
    uri.replace('://', ':\\\\'),
    uri.replace('://', '://\\'),
    uri.replace('/callback', '//callback'),
    uri.replace('/callback', '/./callback'),
    uri.replace('/callback', '/x/../callback'),
    uri.replace('/callback', '/%63allback'),
    uri.replace('/callback', '/Callback'),
    uri.replace('/callback', '/CALLBACK'),
    uri.replace('/callback', '\\callback'),
    uri.replace('/Path', '/path'),
    uri.replace('/Path', '%2FPath'),
    uri.replace('/Path', '/Path/'),
    uri.replace('/Path', '/Path/.'),
    uri.replace('/Path', '/P%61th'),
    uri.replace('/Path', ''),
    uri.replace('/Path', '/Path;'),
    uri.replace('?x=1&y=%2F', ''),
    uri.replace('?x=1&y=%2F', '?'),
    uri.replace('x=1&y=%2F', 'y=%2F&x=1'),
    uri.replace('%2F', '/'),
    uri.replace('%2F', '%2f'),
    uri.replace('x=1', 'x=2'),
    uri.replace('x=1', 'x=1&x=1'),
    uri.replace('&y', '&amp;y'),
    uri.replace('&y', ';y'),
    uri.replace('x=1', 'x=+1'),
    uri.toUpperCase(),
    uri.replace('https://', '//'),
    uri.replace('https://app.example:8443', ''),
    encodeURIComponent(uri),
    encodeURI(encodeURI(uri)),
    `${uri},${uri}`,
    `${uri} ${uri}`,
    `["${uri}"]`,
    '*',
    'https://*',
    'null',
    'undefined',
  ]
  const dotted = [...uri].map((_, at) => `${uri.slice(0, at)}.${uri.slice(at)}`)
  const dropped = [...uri].map((_, at) => uri.slice(0, at) + uri.slice(at + 1))
  const doubled = [...uri].map((char, at) => uri.slice(0, at) + char + uri.slice(at))
  const swappedCase = [...uri].map(
    (char, at) =>
      uri.slice(0, at) + (char === char.toUpperCase() ? char.toLowerCase() : char.toUpperCase()) + uri.slice(at + 1),
  )
  const encoded = [...uri].map(
    (char, at) => `${uri.slice(0, at)}%${char.charCodeAt(0).toString(16)}${uri.slice(at + 1)}`,
  )
  return [
    ...hosts.map(withHost),
    ...schemes.map((scheme) => uri.replace('https', scheme)),
    ...suffixes.map((suffix) => uri + suffix),
    ...suffixes.map((suffix) => suffix + uri),
    ...edits,
    ...dotted,
    ...dropped,
    ...doubled,
    ...swappedCase,
    ...encoded,
  ]
}
