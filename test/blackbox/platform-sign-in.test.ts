// Signing in at the platform's own page, as browsers and the platform's server see it; the platform is played by the tests.
import { inspect } from 'node:util'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { SignInRejection, SignInState } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { MAX_SIGN_INS } from '../../services/protocol/sign-in-requests.js'
import type { Reply } from '../harness/http.js'
import { authorizePath, type TestApp, tokensOf, type Verbs } from '../harness/verbs.js'
import { decisionForm, type Page, type Visitor } from '../harness/visitor.js'
import { openService, startService } from '../harness.js'

const PLATFORM = { SIGN_IN_URL: 'https://platform.example/login?from=surveys' }
const RETURN = '/connect/sign-in/return'

let service: Verbs
let app: TestApp
beforeAll(async () => {
  service = await openService({ env: PLATFORM })
  app = await service.createApp({ name: 'Chart Maker' })
})
afterAll(() => service.backend.close())

/** Where the browser goes on: the link that it came by. */
const wayTo = (state: string) => `${authorizePath(app, state)}#wj_redirect`

const locationOf = ({ headers }: Reply) => headers.get('location') ?? ''

/** The challenge with which the platform's page is opened. */
function challengeIn(reply: Reply): string {
  expect([reply.status, reply.headers.get('cache-control')]).toEqual([303, 'no-store'])
  const { origin, pathname, searchParams } = new URL(locationOf(reply))
  expect([origin + pathname, searchParams.get('from')]).toEqual(['https://platform.example/login', 'surveys'])
  return searchParams.get('sign_in_challenge') ?? ''
}

async function leave(visitor: Visitor, state = 'kept', path = authorizePath(app, state)): Promise<string> {
  return challengeIn(await visitor.request(path))
}

async function accept(signInChallenge: string, externalId = '4711', more: { sessionSeconds?: number } = {}) {
  const { redirectTo } = await service.backend.signIn.acceptSignIn({ signInChallenge, externalId, ...more })
  return redirectTo.slice(service.url.length)
}

async function signedIn(externalId: string): Promise<{ visitor: Visitor; page: Page }> {
  const visitor = service.visitor()
  return { visitor, page: await visitor.open(await accept(await leave(visitor), externalId)) }
}

/** The page about a sign-in that did not happen, and where its button leads. */
function failureOn({ status, html }: Page): [number, string | undefined, string | undefined] {
  const way = html.tags.find(({ attributes }) => attributes.class === 'button primary')
  return [status, /<h1>(.*?)<\/h1>/.exec(html.text)?.[1] ?? html.text.split('\n')[0], way?.attributes.href]
}

describe('a person who signs in at the platform', () => {
  test('comes back to consent with everything kept, and is known to app and platform by different ids', async () => {
    const visitor = service.visitor()
    const back = await accept(await leave(visitor))
    const reply = await visitor.request(back)
    expect([reply.status, locationOf(reply)]).toEqual([303, wayTo('kept')])
    const page = await visitor.open(locationOf(reply))
    const confirmed = new URL(locationOf(await visitor.decide(page, 'confirm')))
    expect(confirmed.searchParams.get('state')).toBe('kept')
    const { openid, access_token: accessToken } = tokensOf(
      await service.exchange(app, confirmed.searchParams.get('code') ?? ''),
    )
    expect(openid).not.toContain('4711')
    const verified = await service.backend.token.verifyAccessToken({ appid: app.appid, accessToken })
    expect(verified).toMatchObject({ externalId: '4711' })
  })

  test('is signed in for 10 minutes, or as long as the platform says', async () => {
    for (const [sessionSeconds, lasts] of [
      [0, 600],
      [3_600, 3_600],
    ] as const) {
      const visitor = service.visitor()
      await visitor.open(await accept(await leave(visitor), 'lasting', { sessionSeconds }))
      service.clock.advance({ seconds: lasts, ms: -1 })
      expect((await visitor.request('/connect/apps')).status).toBe(200)
      service.clock.advance({ ms: 1 })
      expect(await leave(visitor, '', '/connect/apps')).toMatch(/^[\w-]{43}$/)
    }
  })

  test('gets a new session, and the one before ends', async () => {
    const { visitor } = await signedIn('fixed')
    const before = visitor.cookies.get('sa_session') ?? ''
    const { account } = service.backend.asGateway
    visitor.cookies.delete('sa_session') // as if signed out
    const back = await accept(await leave(visitor), 'fixed')
    visitor.cookies.set('sa_session', before) // planted
    await visitor.request(back)
    expect(visitor.cookies.get('sa_session')).not.toBe(before)
    await expect(account.getSession({ sessionToken: before })).rejects.toThrow(/nobody is signed in/)
  })

  test('may have two tabs at once: each comes back to what it was for', async () => {
    const visitor = service.visitor()
    await visitor.open('/') // has our cookie
    const [first, second] = [await leave(visitor, 'first'), await leave(visitor, 'second')]
    const ways = [await accept(first), await accept(second)]
    for (const [way, state] of [
      [ways[1], 'second'],
      [ways[0], 'first'],
    ] as const)
      expect(locationOf(await visitor.request(way ?? ''))).toBe(wayTo(state))
  })

  test('who cancels there is told to the app as one who refuses, and, with no app, on a page', async () => {
    const visitor = service.visitor()
    const reject = async (signInChallenge: string) =>
      (await service.backend.signIn.rejectSignIn({ signInChallenge })).redirectTo.slice(service.url.length)
    const refused = locationOf(await visitor.request(await reject(await leave(visitor, 'told'))))
    expect(refused).toBe(`${app.redirectUri}?error=access_denied&state=told`)
    const page = await visitor.open(await reject(await leave(visitor, '', '/connect/apps')))
    expect([page.status, page.html.text]).toEqual([200, expect.stringContaining('You did not sign in')])
  })

  test('who wants another account is sent there again, which is told so', async () => {
    const { visitor, page } = await signedIn('first.account')
    const form = page.html.forms.find(({ action }) => action.includes('/connect/sign-out'))
    if (!form) throw new Error('no way to switch')
    const signInChallenge = challengeIn(await visitor.submit(page, form))
    expect(await service.backend.signIn.getSignInRequest({ signInChallenge })).toMatchObject({ selectAccount: true })
    expect(visitor.cookies.has('sa_session')).toBe(false)
  })

  test('who signs out stays here, and chooses to go there again', async () => {
    const { visitor } = await signedIn('leaving')
    const apps = await visitor.open('/connect/apps')
    const form = apps.html.forms.find(({ action }) => action === '/connect/sign-out')
    if (!form) throw new Error('no way out')
    const left = await visitor.submitAndFollow(apps, form)
    expect(left.html.text).toContain('You are signed out')
    const again = left.html.forms.find(({ action }) => action === '/connect/sign-in/elsewhere')
    if (!again) throw new Error(`no way in on: ${left.html.text}`)
    const signInChallenge = challengeIn(await visitor.submit(left, again))
    expect(await service.backend.signIn.getSignInRequest({ signInChallenge })).toMatchObject({ selectAccount: true })
  })

  test.each(['en', 'zh'])('is greeted there in the language of our pages: %s', async (language) => {
    const visitor = service.visitor(language === 'zh' ? 'zh-CN' : 'en')
    const reply = await visitor.request(authorizePath(app))
    expect(new URL(locationOf(reply)).searchParams.get('lang')).toBe(language)
    const signInChallenge = challengeIn(reply)
    expect(await service.backend.signIn.getSignInRequest({ signInChallenge })).toMatchObject({ language })
  })
})

describe('nobody is signed in', () => {
  test('by what another browser has begun, which can still finish it', async () => {
    const attacker = service.visitor()
    const back = await accept(await leave(attacker, 'attacker'), 'victim')
    for (const victim of [service.visitor(), (await signedIn('somebody')).visitor]) {
      const before = victim.cookies.get('sa_session')
      const page = await victim.open(back)
      expect(page.status).toBe(403)
      expect(page.html.text).toContain('Begun in another browser')
      expect(page.text).not.toContain('attacker')
      expect(victim.cookies.get('sa_session')).toBe(before)
    }
    expect(locationOf(await attacker.request(back))).toBe(wayTo('attacker'))
  })

  test('by a return link that was used, has expired, or never was', async () => {
    const { visitor } = await signedIn('once')
    const back = await accept(await leave(service.visitor()))
    expect(back).toMatch(/^\/connect\/sign-in\/return\?verifier=[\w-]{43}$/)
    const own = service.visitor()
    const used = await accept(await leave(own, 'used'))
    await own.open(used)
    own.cookies.delete('sa_session')
    const again = await own.open(used)
    expect(failureOn(again)).toEqual([400, expect.stringContaining('This sign-in is over'), wayTo('used')])
    expect(own.cookies.has('sa_session')).toBe(false)
    for (const query of ['', '?verifier=', '?verifier=x', `?verifier=${'x'.repeat(43)}`, '?verifier=a&verifier=b']) {
      const page = await visitor.open(RETURN + query)
      expect([query, page.status]).toEqual([query, 400])
    }
  })

  test('by a link that comes back too late, which says where to begin anew', async () => {
    const visitor = service.visitor()
    const back = await accept(await leave(visitor, 'late'))
    service.clock.advance({ seconds: 60 })
    const page = await visitor.open(back)
    expect(failureOn(page)).toEqual([400, expect.stringContaining('That took too long'), wayTo('late')])
    expect(visitor.cookies.has('sa_session')).toBe(false)
  })

  test('who was disabled or deleted meanwhile', async () => {
    for (const end of [
      (externalId: string) => service.admin.setUserDisabled({ externalId, disabled: true }),
      async (externalId: string) => {
        await service.admin.setUserDisabled({ externalId, disabled: true })
        await service.admin.deleteUser({ externalId })
      },
    ]) {
      const externalId = `ended${service.clock.now()}`
      await signedIn(externalId)
      const visitor = service.visitor()
      const back = await accept(await leave(visitor), externalId)
      await end(externalId)
      const page = await visitor.open(back)
      expect([page.status, page.html.text]).toEqual([403, expect.stringContaining('This account is disabled')])
      await expect(leave(visitor).then((challenge) => accept(challenge, externalId))).rejects.toThrow(/disabled/)
      service.clock.advance({ ms: 1 })
    }
  })

  test('whom the platform does not let in, which a page says', async () => {
    const visitor = service.visitor()
    const signInChallenge = await leave(visitor, 'denied')
    const reason = SignInRejection.NOT_ALLOWED
    const { redirectTo } = await service.backend.signIn.rejectSignIn({ signInChallenge, reason })
    const page = await visitor.open(redirectTo.slice(service.url.length))
    expect(failureOn(page)).toEqual([403, expect.stringContaining('You may not sign in here'), wayTo('denied')])
  })

  test('when the platform decides twice with different people, which is audited with who decided', async () => {
    const signInChallenge = await leave(service.visitor())
    await accept(signInChallenge, 'decided.first')
    await expect(accept(signInChallenge, 'decided.second')).rejects.toThrow(/decided otherwise/)
    const { events } = await service.admin.listAuditEvents({})
    expect(events.find(({ kind }) => kind === 'sign_in.contradicted')).toMatchObject({
      actor: 'sign_in',
      appid: app.appid,
      note: expect.stringContaining('decided.second'),
    })
  })

  test('whatever the return link says: the way back is the one that was stored', async () => {
    const visitor = service.visitor()
    const back = await accept(await leave(visitor, 'stored'))
    const decoys = '&restart_uri=https://evil.example&redirect_to=//evil.example&lang=en'
    expect(locationOf(await visitor.request(back + decoys))).toBe(wayTo('stored'))
  })
})

test('challenges in progress are bounded for each source, and one more is a page that says when to try again', async () => {
  const own = await startService({ env: PLATFORM })
  const { account } = own.backend.asGateway
  const browserKey = 'b'.repeat(43)
  const asked = { browserKey, source: '127.0.0.1', returnUri: own.url + RETURN, restartUri: `${own.url}/connect/apps` }
  for (let begun = 0; begun < MAX_SIGN_INS.ofSource; begun += 100)
    await Promise.all(Array.from({ length: 100 }, () => account.beginSignIn(asked)))
  const page = await own.visitor().open('/connect/apps')
  expect([page.status, page.headers.get('retry-after')]).toEqual([429, '60'])
  own.clock.advance({ seconds: 1_800 })
  expect((await own.visitor().request('/connect/apps')).status).toBe(303)
})

test('an expired or used challenge still says where to begin anew, and is forgotten a day later', async () => {
  const visitor = service.visitor()
  const [used, left] = [await leave(visitor, 'used'), await leave(visitor, 'left')]
  await visitor.open(await accept(used))
  service.clock.advance({ seconds: 1_800 })
  const stateOf = async (signInChallenge: string) => service.backend.signIn.getSignInRequest({ signInChallenge })
  expect(await stateOf(used)).toMatchObject({
    state: SignInState.DONE,
    restartUri: service.url + wayTo('used'),
  })
  expect(await stateOf(left)).toMatchObject({
    state: SignInState.EXPIRED,
    restartUri: service.url + wayTo('left'),
  })
  service.clock.advance({ days: 1, ms: 1 })
  await service.backend.runJanitors()
  for (const challenge of [used, left]) await expect(stateOf(challenge)).rejects.toThrow(/no such sign-in/)
})

test.each(['info', 'debug'])('what is secret in a sign-in is in no %s line, audit event or page', async (level) => {
  const own = await openService({ env: { ...PLATFORM, LOG_LEVEL: level } })
  onTestFinished(() => own.backend.close())
  const registered = await own.createApp()
  const visitor = own.visitor()
  const signInChallenge = challengeIn(await visitor.request(authorizePath(registered)))
  const { redirectTo } = await own.backend.signIn.acceptSignIn({ signInChallenge, externalId: 'canary' })
  const back = redirectTo.slice(own.url.length)
  const pages = [await own.visitor().open(back), await visitor.open(back), await visitor.open(back)]
  pages.push(await visitor.open(`${back}&verifier=x`))
  const failing = { signInChallenge, externalId: 'other' }
  const messages = [
    await own.backend.signIn.acceptSignIn(failing).catch((error: Error) => inspect(error, { depth: 9 })),
  ]
  const { events } = await own.admin.listAuditEvents({})
  const audit = JSON.stringify(events, (_, value) => (typeof value === 'bigint' ? String(value) : value))
  const shown = [own.backend.log(), audit, ...messages, ...pages.map(({ text }) => text)].join('\n')
  expect(shown).toContain('canary')
  const secrets = [signInChallenge, new URL(redirectTo).searchParams.get('verifier') ?? '', ...visitor.cookies.values()]
  expect(secrets.length).toBeGreaterThanOrEqual(4)
  for (const secret of secrets) expect(shown.includes(secret)).toBe(false)
  expect(decisionForm(pages[1] as Page)).toBeDefined()
})
