// Sign-ins at OpenID Providers that other people wrote, each a process of its own.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CompleteSignInResponse_Outcome as Outcome } from '../../gen/surveyauth/v1/account_service_pb.js'
import { authorizePath, type TestApp, tokensOf, type Verbs } from '../harness/verbs.js'
import { formWith, type Page, type Visitor } from '../harness/visitor.js'
import { openService, startService } from '../harness.js'
import {
  browserAt,
  giveUpThere,
  openProvider,
  providersFile,
  signInThere,
  startProvider,
  type TestProvider,
  writeProvidersFile,
} from '../oidc/start-provider.js'

/** Of all tests that need none of their own. */
let corp: TestProvider
let school: TestProvider
let service: Verbs
let app: TestApp

beforeAll(async () => {
  corp = await openProvider()
  school = await openProvider()
  const { file, remove } = writeProvidersFile({ corp, school })
  service = await openService({ env: { OIDC_PROVIDERS_FILE: file } })
  remove()
  await Promise.all([corp.register(service.url, 'corp'), school.register(service.url, 'school')])
  app = await service.createApp({ name: 'Chart Maker' })
})
afterAll(async () => {
  await service.backend.close()
  await Promise.all([corp.stop(), school.stop()])
})

/** A service of one provider; `more` are settings of the provider. */
async function serviceWith(
  provider: TestProvider,
  more: Readonly<Record<string, unknown>> = {},
  env: Readonly<Record<string, string>> = {},
): Promise<Verbs> {
  const own = await startService({ env: { OIDC_PROVIDERS_FILE: providersFile({ corp: provider }, more), ...env } })
  await provider.register(own.url, 'corp')
  return own
}

const buttonOf = (page: Page, provider: string) => page.html.forms.find(({ fields }) => fields.provider === provider)

/** Presses the button of a provider; answers the address there. */
async function leaveFor(visitor: Visitor, path: string, provider: string): Promise<string> {
  const page = await visitor.open(path)
  const button = buttonOf(page, provider)
  if (!button) throw new Error(`no button of ${provider} on: ${page.html.text}`)
  const reply = await visitor.submit(page, button)
  return reply.headers.get('location') ?? `no redirect but ${reply.status}: ${reply.text}`
}

/** Comes back from a provider; answers the page that follows, which asks for consent if all is well. */
async function comeBack(visitor: Visitor, { pathname, search }: URL): Promise<Page> {
  return visitor.open(pathname + search)
}

/** From the link of an app to its consent page, through a provider. */
async function signIn(visitor: Visitor, provider: string, there: TestProvider, name: string, by = app): Promise<Page> {
  const address = await leaveFor(visitor, authorizePath(by, 'st'), provider)
  return comeBack(visitor, await signInThere(browserAt(there), address, name))
}

async function profileOf(of: Verbs, visitor: Visitor, page: Page, by = app): Promise<Record<string, unknown>> {
  const callback = new URL((await visitor.decide(page, 'confirm')).headers.get('location') ?? '')
  expect(callback.searchParams.get('state')).toBe('st')
  const tokens = tokensOf(await of.exchange(by, callback.searchParams.get('code') ?? ''))
  return (await of.user({ app: by, tokens })).data
}

async function isSignedIn(visitor: Visitor): Promise<boolean> {
  const page = await visitor.open('/connect/apps')
  return page.html.forms.some(({ action }) => action.startsWith('/connect/sign-out'))
}

describe('a sign-in at a provider', () => {
  test('is offered beside the password, leads to the consent that the app asked for, and brings nickname and avatar', async () => {
    await corp.knows({ sub: 'li', name: 'Li Wei', picture: 'https://cdn.example/li.png' })
    const visitor = service.visitor()
    const page = await visitor.open(authorizePath(app, 'st'))
    expect(formWith(page, 'password')).toBeDefined()
    expect(page.html.text).toContain('Provider corp')
    const consent = await signIn(visitor, 'corp', corp, 'li')
    expect(consent.html.text).toContain('Li Wei')
    const profile = await profileOf(service, visitor, consent)
    expect(profile).toMatchObject({ nickname: 'Li Wei', avatar: 'https://cdn.example/li.png' })
    await corp.knows({ sub: 'li', name: 'Li Wei 2' })
    const again = service.visitor()
    const later = await profileOf(service, again, await signIn(again, 'corp', corp, 'li'))
    expect(later).toMatchObject({ nickname: 'Li Wei 2', openid: profile.openid })
  })

  test('of one subject at two providers is of two users', async () => {
    const [one, two] = [service.visitor(), service.visitor()]
    const [atCorp, atSchool] = [await signIn(one, 'corp', corp, 'same'), await signIn(two, 'school', school, 'same')]
    const profiles = [await profileOf(service, one, atCorp), await profileOf(service, two, atSchool)]
    expect(profiles[0]?.openid).not.toBe(profiles[1]?.openid)
  })

  test('for the first time in ten browsers at once is of one user', async () => {
    const openids = await Promise.all(
      Array.from({ length: 10 }, async () => {
        const visitor = service.visitor()
        return (await profileOf(service, visitor, await signIn(visitor, 'corp', corp, 'crowd'))).openid
      }),
    )
    expect(new Set(openids).size).toBe(1)
  })

  test('that the person gives up there tells the app access_denied', async () => {
    const visitor = service.visitor()
    const address = await leaveFor(visitor, authorizePath(app, 'st'), 'corp')
    const { pathname, search } = await giveUpThere(browserAt(corp), address)
    const reply = await visitor.request(pathname + search)
    expect(reply.headers.get('location')).toBe(`${app.redirectUri}?error=access_denied&state=st`)
    expect(await isSignedIn(visitor)).toBe(false)
  })

  test('of a user who is disabled or deleted meanwhile is refused, and makes no other user', async () => {
    await signIn(service.visitor(), 'corp', corp, 'gone')
    const username = await usernameOf('corp', 'gone')
    const { user } = await service.admin.setUserDisabled({ username, disabled: true })
    for (const end of ['disabled', 'deleted'] as const) {
      const visitor = service.visitor()
      const page = await signIn(visitor, 'corp', corp, 'gone')
      expect([page.status, page.html.text]).toEqual([403, expect.stringContaining('This account is disabled')])
      expect(await isSignedIn(visitor)).toBe(false)
      if (end === 'disabled') await service.admin.deleteUser({ userId: user?.userId ?? '' })
    }
  })

  test('begun with a user signed in ends the session before', async () => {
    const visitor = service.visitor()
    await signIn(visitor, 'corp', corp, 'first')
    const [name, before] = [...visitor.cookies].find(([name]) => name.endsWith('sa_session')) ?? ['', '']
    const page = await visitor.open(authorizePath(app, 'st'))
    const address = await switchAccount(visitor, page, 'corp')
    await comeBack(visitor, await signInThere(browserAt(corp), address, 'second'))
    expect(visitor.cookies.get(name)).not.toBe(before)
    const old = service.visitor()
    old.cookies.set(name, before)
    expect(await isSignedIn(old)).toBe(false)
  })
})

/** Presses "Switch account", then the button of the provider; answers the address there. */
async function switchAccount(visitor: Visitor, page: Page, provider: string): Promise<string> {
  const form = page.html.forms.find(({ action }) => action.startsWith('/connect/sign-out'))
  if (!form) throw new Error(`nobody is signed in: ${page.html.text}`)
  const signedOut = await visitor.submitAndFollow(page, form)
  const button = buttonOf(signedOut, provider)
  if (!button) throw new Error(`no button of ${provider} on: ${signedOut.html.text}`)
  return (await visitor.submit(signedOut, button)).headers.get('location') ?? ''
}

async function usernameOf(provider: string, subject: string): Promise<string> {
  const { users } = await service.admin.listUsers({})
  for (const { userId, username } of users) {
    const { identities } = await service.admin.listIdentities({ userId })
    if (identities.some((one) => one.provider === provider && one.subject === subject)) return username
  }
  throw new Error(`nobody is ${subject} of ${provider}`)
}

describe('settings of a provider', () => {
  test('the only provider, without passwords: people go straight there, and no password is taken', async () => {
    const own = await serviceWith(corp, { switch_account_prompt: 'login' }, { PASSWORD_SIGN_IN: 'off' })
    const [registered, user] = [await own.createApp(), await own.createUser()]
    const visitor = own.visitor()
    const reply = await visitor.request(authorizePath(registered, 'st'))
    const address = reply.headers.get('location') ?? ''
    expect(address).toMatch(`${corp.issuer}/auth?`)
    const there = browserAt(corp)
    const consent = await comeBack(visitor, await signInThere(there, address, 'ana'))
    await profileOf(own, visitor, consent, registered)
    await expect(own.backend.asGateway.account.signIn(user)).rejects.toThrow()

    const form = consent.html.forms.find(({ action }) => action.startsWith('/connect/sign-out'))
    if (!form) throw new Error('no way to switch the account')
    const other = (await visitor.submit(consent, form)).headers.get('location') ?? ''
    expect(new URL(other).searchParams.get('prompt')).toBe('login')
    const others = await profileOf(
      own,
      visitor,
      await comeBack(visitor, await signInThere(there, other, 'ben')),
      registered,
    )
    expect(others.openid).not.toBe(undefined)
    expect((await visitor.open('/connect/apps')).html.text).toContain(registered.appid)
  })

  test('existing_only: who has no account is told so, and signs in once the operator has linked the identity', async () => {
    const own = await serviceWith(corp, { provision: 'existing_only' })
    const registered = await own.createApp()
    const visitor = own.visitor()
    const refused = await signIn(visitor, 'corp', corp, 'new', registered)
    expect([refused.status, refused.html.text]).toEqual([403, expect.stringContaining('You have no account here yet')])
    expect(await isSignedIn(visitor)).toBe(false)
    const { username } = await own.createUser({ nickname: 'Old Hand' })
    await own.admin.linkIdentity({ username, provider: 'corp', subject: 'new' })
    expect((await signIn(visitor, 'corp', corp, 'new', registered)).html.text).toContain('Old Hand')
  })

  test('require: only who has the claim signs in, and is told so', async () => {
    const own = await serviceWith(corp, { require: { groups: ['staff'] } })
    const registered = await own.createApp()
    await corp.knows({ sub: 'guest', groups: ['guests'] })
    await corp.knows({ sub: 'staff', name: 'Staff Member', groups: ['guests', 'staff'] })
    const visitor = own.visitor()
    const refused = await signIn(visitor, 'corp', corp, 'guest', registered)
    expect([refused.status, refused.html.text]).toEqual([403, expect.stringContaining('You may not sign in here')])
    expect(await isSignedIn(visitor)).toBe(false)
    expect((await signIn(visitor, 'corp', corp, 'staff', registered)).html.text).toContain('Staff Member')
  })
})

describe('a provider that', () => {
  /** Presses its button. */
  async function press(visitor: Visitor, of: TestApp): Promise<Page> {
    const page = await visitor.open(authorizePath(of, 'st'))
    const button = buttonOf(page, 'corp')
    if (!button) throw new Error('no button')
    return visitor.submitAndFollow(page, button)
  }

  test.each([
    ['is down', (provider: TestProvider) => provider.stop(), (provider: TestProvider) => provider.start()],
    [
      'is slow',
      async (provider: TestProvider) => provider.pause(),
      async (provider: TestProvider) => provider.resume(),
    ],
  ])('%s has its page, the password still works, and recovery needs no restart', async (_, end, begin) => {
    const provider = await startProvider()
    const own = await serviceWith(provider, { timeout_ms: 2_000 })
    const [registered, user] = [await own.createApp(), await own.createUser()]
    await end(provider)
    const visitor = own.visitor()
    const page = await press(visitor, registered)
    expect([page.status, page.headers.get('retry-after')]).toEqual([503, '1'])
    expect(page.html.text).toContain('Sign-in is not available right now')
    expect(
      page.html.tags.find(({ attributes }) => attributes.href?.startsWith(authorizePath(registered, 'st'))),
    ).toBeDefined()
    await own.grantAccess({ app: registered, user })
    await begin(provider)
    own.clock.advance({ seconds: 4 })
    const signedIn = await signIn(visitor, 'corp', provider, 'li', registered)
    expect(signedIn.html.text).toContain('would like to connect')
    expect(logged(own, 'a sign-in at a provider failed')).toEqual([
      expect.objectContaining({
        level: 40,
        provider: 'corp',
        step: 'begin',
        outcome: 'unavailable',
        request_id: requestIdOf(page),
      }),
    ])
  })

  test('goes down while people are there lets them try again', async () => {
    const provider = await startProvider()
    const own = await serviceWith(provider, { timeout_ms: 2_000 })
    const registered = await own.createApp()
    const visitor = own.visitor()
    const address = await leaveFor(visitor, authorizePath(registered, 'st'), 'corp')
    const callback = await signInThere(browserAt(provider), address, 'li')
    await provider.stop()
    const page = await comeBack(visitor, callback)
    expect([page.status, page.html.text]).toEqual([503, expect.stringContaining('Sign-in is not available right now')])
    await provider.start()
    own.clock.advance({ seconds: 4 })
    expect((await signIn(visitor, 'corp', provider, 'li', registered)).html.text).toContain('would like to connect')
  })

  test('does not know our secret has its page, with the request id that the log explains', async () => {
    const { issuer } = corp
    const other = await startService({
      env: { OIDC_PROVIDERS_FILE: providersFile({ corp: { issuer, clientSecret: 'canary-of-a-secret' } }) },
    })
    await corp.register(other.url, 'corp')
    const page = await signIn(other.visitor(), 'corp', corp, 'li', await other.createApp())
    expect([page.status, page.html.text]).toEqual([502, expect.stringContaining('Sign-in does not work')])
    expect(logged(other, 'a sign-in at a provider failed')).toEqual([
      expect.objectContaining({
        step: 'complete',
        outcome: 'misconfigured',
        detail: expect.stringMatching(/invalid_client/),
        request_id: requestIdOf(page),
      }),
    ])
    expect(other.backend.log() + page.text).not.toContain('canary')
  })

  test('is an issuer of another name is misconfigured', async () => {
    const issuer = corp.issuer.replace('127.0.0.1', 'localhost')
    const own = await startService({
      env: { OIDC_PROVIDERS_FILE: providersFile({ corp: { issuer, clientSecret: 'x' } }) },
    })
    const page = await press(own.visitor(), await own.createApp())
    expect([page.status, page.html.text]).toEqual([502, expect.stringContaining('Sign-in does not work')])
  })
})

/** Lines of the log with this text. */
function logged(of: Verbs, message: string): Record<string, unknown>[] {
  const lines = of.backend
    .log()
    .split('\n')
    .filter((line) => line.startsWith('{'))
  return lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === message)
}

const requestIdOf = (page: Page) => /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/.exec(page.html.text)?.[0]

describe('of the attacks on a sign-in at a provider,', () => {
  test('the address there, sent to somebody else who then signs in, ends in that browser, and the one that began goes on', async () => {
    const [attacker, victim] = [service.visitor(), service.visitor()]
    const address = await leaveFor(attacker, authorizePath(app, 'st'), 'corp')
    await victim.open('/connect/apps') // so that it has a key of its own
    const page = await comeBack(victim, await signInThere(browserAt(corp), address, 'victim'))
    expect([page.status, page.html.text]).toEqual([403, expect.stringContaining('Begun in another browser')])
    expect([await isSignedIn(victim), await isSignedIn(attacker)]).toEqual([false, false])
    const own = await comeBack(attacker, await signInThere(browserAt(corp), address, 'attacker'))
    expect(own.html.text).toContain('would like to connect')
  })

  test.each(['with a key of its own', 'without cookies'])(
    'the way back, sent to somebody else %s, signs nobody in there (login CSRF)',
    async (how) => {
      const [attacker, victim] = [service.visitor(), service.visitor()]
      if (how !== 'without cookies') await victim.open('/connect/apps')
      const callback = await signInThere(
        browserAt(corp),
        await leaveFor(attacker, authorizePath(app, 'st'), 'corp'),
        'attacker',
      )
      const page = await comeBack(victim, callback)
      expect([page.status, page.html.text]).toEqual([403, expect.stringContaining('Begun in another browser')])
      expect(await isSignedIn(victim)).toBe(false)
      expect((await comeBack(attacker, callback)).html.text, 'nothing was used up').toContain('would like to connect')
    },
  )

  test('the way back, read in a history, works once, in one browser, for half an hour', async () => {
    const visitor = service.visitor()
    const callback = await signInThere(browserAt(corp), await leaveFor(visitor, authorizePath(app, 'st'), 'corp'), 'li')
    await comeBack(visitor, callback)
    for (const reader of [service.visitor(), visitor]) {
      const page = await comeBack(reader, callback)
      expect([page.status, page.html.text]).toEqual([400, expect.stringContaining('This sign-in is over')])
      expect(page.headers.get('referrer-policy'), 'others never see the address').toBe('same-origin')
    }
    const late = service.visitor()
    const after = await signInThere(browserAt(corp), await leaveFor(late, authorizePath(app, 'st'), 'corp'), 'li')
    service.clock.advance({ minutes: 30 })
    const page = await comeBack(late, after)
    expect([page.status, page.html.text]).toEqual([400, expect.stringContaining('That took too long')])
    expect(await isSignedIn(late)).toBe(false)
  })

  test('the way back, taken twice at once, redeems the code once, and who comes second may begin anew', async () => {
    const visitor = service.visitor()
    const path = authorizePath(app, 'st')
    const callback = await signInThere(browserAt(corp), await leaveFor(visitor, path, 'corp'), 'li')
    const pages = await Promise.all(Array.from({ length: 4 }, () => comeBack(visitor, callback)))
    const [first, ...others] = pages.sort((a, b) => a.status - b.status)
    expect(first?.html.text).toContain('would like to connect')
    for (const page of others) {
      expect([page.status, page.html.text]).toEqual([400, expect.stringContaining('This sign-in is over')])
      expect(page.text, 'the way on').toContain(path.replaceAll('&', '&amp;'))
    }
  })

  test("a code of the attacker's sign-in, put into another's, signs nobody in", async () => {
    const [attacker, victim] = [service.visitor(), service.visitor()]
    const back = async (visitor: Visitor, name: string) =>
      signInThere(browserAt(corp), await leaveFor(visitor, authorizePath(app, 'st'), 'corp'), name)
    const [stolen, callback] = [await back(attacker, 'attacker'), await back(victim, 'victim')]
    callback.searchParams.set('code', stolen.searchParams.get('code') ?? '')
    const page = await comeBack(victim, callback)
    expect(page.status).toBeGreaterThanOrEqual(400)
    expect(await isSignedIn(victim)).toBe(false)
  })

  test('the answer of one provider at the callback of another is none', async () => {
    const visitor = service.visitor()
    const callback = await signInThere(browserAt(corp), await leaveFor(visitor, authorizePath(app, 'st'), 'corp'), 'li')
    callback.pathname = callback.pathname.replace('corp', 'school')
    const page = await comeBack(visitor, callback)
    expect([page.status, await isSignedIn(visitor)]).toEqual([400, false])
    callback.pathname = callback.pathname.replace('school', 'corp')
    callback.searchParams.set('iss', school.issuer)
    expect((await comeBack(visitor, callback)).status).toBe(502)
    expect(await isSignedIn(visitor)).toBe(false)
  })

  test('a session that the attacker has planted is not the one that the sign-in begins', async () => {
    const [attacker, victim] = [service.visitor(), service.visitor()]
    await signIn(attacker, 'corp', corp, 'attacker')
    const [name, planted] = [...attacker.cookies].find(([name]) => name.endsWith('sa_session')) ?? ['', '']
    const address = await leaveFor(victim, authorizePath(app, 'st'), 'corp')
    victim.cookies.set(name, planted)
    await comeBack(victim, await signInThere(browserAt(corp), address, 'victim'))
    expect(victim.cookies.get(name)).not.toBe(planted)
    expect(await isSignedIn(attacker), 'which has ended').toBe(false)
  })

  test.each(['restart_uri', 'redirect_uri', 'return_to', 'state'])(
    '%s in the way back leads nowhere else',
    async (parameter) => {
      const visitor = service.visitor()
      const callback = await signInThere(
        browserAt(corp),
        await leaveFor(visitor, authorizePath(app, 'st'), 'corp'),
        'li',
      )
      callback.searchParams.append(parameter, 'https://evil.example/')
      const reply = await visitor.request(callback.pathname + callback.search)
      expect(reply.headers.get('location') ?? '').not.toContain('evil')
      expect(reply.status === 303).toBe(parameter !== 'state')
    },
  )

  test('a link or a form of another site begins none: the button has a key', async () => {
    const visitor = service.visitor()
    const page = await visitor.open(authorizePath(app, 'st'))
    const button = buttonOf(page, 'corp')
    if (!button) throw new Error('no button')
    expect((await visitor.request(button.action)).headers.get('location')).not.toContain(corp.issuer)
    const forged = { ...button, fields: { provider: 'corp' } }
    expect((await visitor.submit(page, forged)).headers.get('location') ?? '').not.toContain(corp.issuer)
    const headers = { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' }
    expect((await visitor.submit(page, button, {}, { headers })).status).toBe(403)
  })

  test('a flood of beginnings from one network ends at 1,000, and others go on', async () => {
    const own = await serviceWith(corp)
    const { account } = own.backend.asGateway
    const begin = (source: string) => {
      const uri = `${own.url}/connect/apps`
      return account.beginSignIn({
        provider: 'corp',
        browserKey: 'b'.repeat(43),
        source,
        returnUri: uri,
        restartUri: uri,
      })
    }
    for (let n = 0; n < 20; n += 1) await Promise.all(Array.from({ length: 50 }, () => begin('192.0.2.1')))
    await expect(begin('192.0.2.1')).rejects.toThrow('too many sign-ins are in progress')
    await begin('192.0.2.2')
  })

  test('a gateway that makes up an answer opens no session', async () => {
    const { account } = service.backend.asGateway
    const browserKey = 'b'.repeat(43)
    const uri = `${service.url}/connect/oidc/corp/callback`
    const begun = await account.beginSignIn({
      provider: 'corp',
      browserKey,
      source: '',
      returnUri: uri,
      restartUri: uri,
    })
    const state = new URL(begun.redirectTo).searchParams.get('state') ?? ''
    for (const parameters of [
      `state=${state}&code=made-up&iss=${encodeURIComponent(corp.issuer)}`,
      `state=${state}`,
      'code=x',
      '',
    ]) {
      const { outcome, sessionToken } = await account.completeSignIn({ provider: 'corp', parameters, browserKey })
      expect([Outcome[outcome], sessionToken]).toEqual([expect.not.stringMatching('SIGNED_IN'), ''])
    }
    const asPlatform = await account.completeSignIn({ verifier: state, browserKey })
    expect(Outcome[asPlatform.outcome]).toBe('UNKNOWN')
  })
})
