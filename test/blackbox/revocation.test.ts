import { timestampMs } from '@bufbuild/protobuf/wkt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectError } from '../harness/envelope.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { type Access, authorizePath, CALLBACK, type Verbs } from '../harness/verbs.js'
import { formWith, type Page, type Visitor } from '../harness/visitor.js'
import { openService, startService } from '../harness.js'

/** Of all tests that need none of their own: each makes its own apps and users. */
let service: Verbs
beforeAll(async () => {
  service = await openService()
})
afterAll(() => service.backend.close())

/** A survey of each user, by its id. */
const surveyOf = new Map<string, number>()

/** The answer of every endpoint that an app may call with a grant. */
async function answers(access: Access, from = service): Promise<readonly string[]> {
  const replies = await Promise.all([
    from.user(access),
    from.surveys(access),
    from.survey(access, surveyOf.get(access.user.userId) ?? 0),
    from.refresh(access.app, access.tokens.refresh_token),
  ])
  return replies.map(({ type }) => type)
}

const ALIVE = ['', '', '', '']
const REVOKED = ['invalid_token', 'invalid_token', 'invalid_token', 'invalid_refresh_token']
const APP_DISABLED = ['invalid_appid', 'invalid_appid', 'invalid_appid', 'invalid_appid']

async function granted(from = service): Promise<Access> {
  const user = await from.createUser()
  const [surveyId = 0] = await from.importSurveys(user, [smallSurvey()])
  surveyOf.set(user.userId, surveyId)
  const access = await from.grantAccess({ user })
  expect(await answers(access, from)).toEqual(ALIVE)
  return access
}

async function disconnectAll(visitor: Visitor): Promise<Page> {
  let page = await visitor.open('/connect/apps')
  for (const _ of page.html.forms.filter(({ fields }) => 'grant_id' in fields)) {
    const form = formWith(page, 'grant_id')
    if (form !== undefined) page = await visitor.submitAndFollow(page, form)
  }
  expect(formWith(page, 'grant_id')).toBeUndefined()
  return page
}

describe('a revoked grant is refused on the very next request, everywhere', () => {
  test('when the user disconnects the app on the connected-apps page', async () => {
    const access = await granted()
    const visitor = await service.signedIn(access.user)
    await disconnectAll(visitor)
    expect(await answers(access)).toEqual(REVOKED)
  })

  test('when the platform disconnects the app, which it may do again', async () => {
    const access = await granted()
    const { userId } = access.user
    await service.admin.updateUser({ userId, newExternalId: `x-${userId}` })
    const which = { externalId: `x-${userId}`, appid: access.app.appid }
    await service.admin.disconnectUserApp(which)
    expect(await answers(access)).toEqual(REVOKED)
    await service.admin.disconnectUserApp(which)
    const other = await service.createApp()
    await expect(service.admin.disconnectUserApp({ ...which, appid: other.appid })).rejects.toThrow('there is no such')
  })

  test('when the operator deletes the user, whose name can then be given to somebody else', async () => {
    const access = await granted()
    const { user, app } = access
    const { username } = user
    const notDisabled = service.admin.deleteUser({ username })
    await expect(notDisabled).rejects.toThrow('only a disabled user is deleted')
    expect(await answers(access)).toEqual(ALIVE)

    await service.admin.setUserDisabled({ username, disabled: true })
    await service.admin.deleteUser({ username })
    expect(await answers(access)).toEqual(REVOKED)
    await expect(service.admin.deleteUser({ username })).rejects.toThrow('there is no such user')
    await expect(service.admin.setUserDisabled({ username, disabled: false })).rejects.toThrow('there is no such user')
    await expect(service.signedIn(user)).rejects.toThrow()

    const successor = await service.createUser({ username })
    const anew = await service.grantAccess({ app, user: successor })
    expect(anew.tokens.openid).not.toBe(access.tokens.openid)
    expect((await service.surveys(anew)).data.total).toBe(0)
    expect(await answers(access)).toEqual(REVOKED)
  })

  test('when the user disconnects the app, with its other grants and pending codes, and no other app', async () => {
    const access = await granted()
    const { app, user } = access
    const second = await service.grantAccess({ app, user })
    const other = await service.grantAccess({ user })
    const visitor = await service.signedIn(user)
    const code = await service.issueCode(app, user)
    const page = await visitor.open('/connect/apps')
    const cards = page.html.forms.filter(({ fields }) => 'grant_id' in fields)
    expect(cards).toHaveLength(2)
    const grantIds = await service.grantIds({ username: user.username, appid: app.appid })
    const card = cards.find(({ fields }) => grantIds.includes(fields.grant_id ?? ''))
    if (card !== undefined) await visitor.submitAndFollow(page, card)
    expect(await answers(access)).toEqual(REVOKED)
    expect(await answers(second)).toEqual(REVOKED)
    expect((await service.exchange(app, code)).type).toBe('invalid_code')
    expect((await service.user(other)).type).toBe('')
  })

  test('when the user disconnects an app whose refresh token has expired and whose access token has not', async () => {
    const access = await granted()
    service.clock.advance({ days: 30, seconds: -1 })
    const { data } = await service.refresh(access.app, access.tokens.refresh_token)
    const late = { ...access, tokens: { ...access.tokens, access_token: String(data.access_token) } }
    service.clock.advance({ seconds: 2 })
    expect(await answers(late)).toEqual(['', '', '', 'invalid_refresh_token'])
    await disconnectAll(await service.signedIn(access.user))
    expect(await answers(late)).toEqual(REVOKED)
  })

  test('when the operator revokes it', async () => {
    const access = await granted()
    const [grantId = ''] = await service.grantIds({ username: access.user.username })
    expect(await service.admin.revokeGrant({ grantId })).toMatchObject({ alreadyRevoked: false })
    expect(await answers(access)).toEqual(REVOKED)
    expect(await service.admin.revokeGrant({ grantId })).toMatchObject({ alreadyRevoked: true })
  })

  test('when the app is disabled, until it is enabled again', async () => {
    const access = await granted()
    const { appid } = access.app
    await service.admin.setAppDisabled({ appid, disabled: true })
    expect(await answers(access)).toEqual(APP_DISABLED)
    await service.admin.setAppDisabled({ appid, disabled: false })
    expect(await answers(access)).toEqual(ALIVE)
  })

  test('when the operator deletes the app, which is possible once nothing refers to it, and for good', async () => {
    const access = await granted()
    const { app, user } = access
    const { appid } = app
    const name = (await service.admin.getApp({ appid })).app?.name
    await expect(service.admin.deleteApp({ appid })).rejects.toThrow('the app has live grants')
    expect(await answers(access)).toEqual(ALIVE)
    await disconnectAll(await service.signedIn(user))
    const code = await service.issueCode(app, user)
    await expect(service.admin.deleteApp({ appid })).rejects.toThrow('a code that can still be exchanged')
    expect((await service.exchange(app, code)).type).toBe('')
    await disconnectAll(await service.signedIn(user))

    await service.admin.deleteApp({ appid })
    expect(await answers(access)).toEqual(APP_DISABLED)
    await expect(service.admin.setAppDisabled({ appid, disabled: false })).rejects.toThrow('there is no such app')
    await expect(service.admin.deleteApp({ appid })).rejects.toThrow('there is no such app')
    const [newest] = (await service.admin.listAuditEvents({ appid })).events
    expect(newest).toMatchObject({ kind: 'app.deleted', note: name, actor: 'operator' })
    expect((await service.admin.listGrants({ appid })).grants[0]).toMatchObject({ appid, appName: name })
  })

  test('when the user is disabled, until they are enabled again', async () => {
    const access = await granted()
    const { username } = access.user
    const visitor = await service.signedIn(access.user)
    await service.admin.setUserDisabled({ username, disabled: true })
    expect(await answers(access)).toEqual(REVOKED)
    expect(formWith(await visitor.open('/connect/apps'), 'password')).toBeDefined()
    await service.admin.setUserDisabled({ username, disabled: false })
    expect(await answers(access)).toEqual(ALIVE)
    expect(formWith(await visitor.open('/connect/apps'), 'password')).toBeDefined()
  })
})

describe('a code that has ended stays invalid: its form, sent again, yields another one', () => {
  test.each<[how: string, end: (service: Verbs, access: Access, visitor: Visitor) => Promise<unknown>]>([
    ['when the user ends the app', (_service, _access, visitor) => disconnectAll(visitor)],
    [
      'when the operator revokes a grant of the app',
      async (service, { user }) => {
        const [grantId = ''] = await service.grantIds({ username: user.username })
        await service.admin.revokeGrant({ grantId })
      },
    ],
    [
      'when the app is disabled for a while',
      async (service, { app: { appid } }) => {
        for (const disabled of [true, false]) await service.admin.setAppDisabled({ appid, disabled })
      },
    ],
  ])('%s', async (_, end) => {
    const access = await service.grantAccess()
    const { app, user } = access
    const visitor = await service.signedIn(user)
    const page = await service.authorizationPage(visitor, app, user)
    const confirm = async () => {
      const { headers } = await visitor.decide(page, 'confirm')
      return new URL(headers.get('location') ?? '').searchParams.get('code') ?? ''
    }
    const code = await confirm()
    await end(service, access, visitor)
    expect((await service.exchange(app, code)).type).toBe('invalid_code')
    const another = await confirm()
    expect(another).not.toBe(code)
    expect((await service.exchange(app, code)).type).toBe('invalid_code')
    expect((await service.exchange(app, another)).type).toBe('')
  })
})

describe('the connected-apps page', () => {
  test("shows each app of the user with first use, last use and expiry, and nobody else's", async () => {
    const access = await granted()
    const stranger = await service.grantAccess({ app: await service.createApp({ name: 'Stranger' }) })
    const chart = await service.createApp({ name: 'Chart <Maker>' })
    await service.grantAccess({ app: chart, user: access.user })
    const page = await (await service.signedIn(access.user)).open('/connect/apps')
    expect(page.html.forms.filter(({ fields }) => 'grant_id' in fields)).toHaveLength(2)
    expect(page.html.text).toContain('Chart <Maker>')
    expect(page.html.text).not.toContain('Stranger')
    const times = page.html.tags.filter(({ name }) => name === 'time').map(({ attributes }) => attributes.datetime)
    expect(times).toHaveLength(6)
    expect(times).toContain(new Date(service.clock.now() + 30 * 86_400_000).toISOString())
    expect((await service.user(stranger)).code).toBe('OK')
  })

  test('shows the first use, the last use and the last expiry over all grants of an app', async () => {
    const own = await startService({ env: { SESSION_IDLE_SECONDS: '31536000', SESSION_TTL_SECONDS: '31536000' } })
    const { asGateway, runJanitors } = own.backend
    const [day, hour] = [86_400_000, 3_600_000]
    const start = own.clock.now()
    const first = await own.grantAccess()
    const { sessionToken } = await asGateway.account.signIn({ ...first.user, source: '192.0.2.1' })
    own.clock.advance({ hours: 1 })
    const second = await own.grantAccess(first)
    own.clock.advance({ hours: 1 })
    expect((await own.user(first)).code).toBe('OK')
    await runJanitors()
    const shown = async () => {
      const { apps } = await asGateway.account.listConnectedApps({ sessionToken })
      return apps.map(({ createTime, lastUseTime, expireTime }) =>
        [createTime, lastUseTime, expireTime].map((time) => time && timestampMs(time) - start),
      )
    }
    expect(await shown()).toEqual([[0, 2 * hour, hour + 30 * day]])
    own.clock.advance({ days: 30, hours: -2 })
    expect((await own.refresh(second.app, second.tokens.refresh_token)).code).toBe('OK')
    expect(await shown()).toEqual([[hour, 30 * day, 33 * day]])
  })

  test('shows the last use of a grant to the minute', async () => {
    const access = await service.grantAccess()
    service.clock.advance({ minutes: 45 })
    expect((await service.user(access)).code).toBe('OK')
    await service.backend.runJanitors()
    const page = await (await service.signedIn(access.user)).open('/connect/apps')
    const times = page.html.tags
      .filter(({ name }) => name === 'time')
      .map(({ attributes }) => Date.parse(attributes.datetime ?? ''))
    expect(times.some((at) => Math.abs(at - service.clock.now()) <= 60_000)).toBe(true)
    const [grant] = (await service.backend.admin.listGrants({ username: access.user.username })).grants
    const told = [grant?.lastUseTime, grant?.expireTime].map((time) => time && timestampMs(time) - service.clock.now())
    expect(told).toEqual([0, 30 * 86_400_000 - 45 * 60_000]) // the same to operators
  })

  test('does not show a refused request as a use of the grant', async () => {
    const own = await startService({ env: { SESSION_IDLE_SECONDS: '31536000', SESSION_TTL_SECONDS: '31536000' } })
    const access = await own.grantAccess()
    const { sessionToken } = await own.backend.asGateway.account.signIn({ ...access.user, source: '192.0.2.1' })
    const app = await own.createApp()
    const lastUses = async () => {
      await own.backend.runJanitors()
      const { apps } = await own.backend.asGateway.account.listConnectedApps({ sessionToken })
      return apps.map(({ lastUseTime }) => lastUseTime && timestampMs(lastUseTime))
    }
    const atFirst = [own.clock.now()]
    own.clock.advance({ hours: 1 })
    expectError(await own.user({ ...access, app }), 'invalid_token')
    expectError(await own.user(access, { openid: 'another' }), 'claim_error')
    own.clock.advance({ days: 3 })
    expectError(await own.user(access), 'invalid_token')
    expect(await lastUses()).toEqual(atFirst)
    expect((await own.refresh(access.app, access.tokens.refresh_token)).code).toBe('OK')
    expect(await lastUses()).toEqual([own.clock.now()])
  })

  test('shows all apps of a user who has more grants than are read at once', async () => {
    const own = await startService({ env: { MAX_GRANTS_PER_USER_AND_APP: '200' } })
    const { token, account } = own.backend.asGateway
    const oldest = await own.grantAccess()
    const { user } = oldest
    const app = await own.createApp()
    const { sessionToken } = await account.signIn({ ...user, source: '192.0.2.1' })
    own.clock.advance({ seconds: 1 })
    const grant = async (n: number) => {
      const asked = { sessionToken, requestId: `request ${n} of many`, appid: app.appid, redirectUri: CALLBACK }
      const { code } = await token.issueCode({ ...asked, scope: 'snsapi_user' })
      await token.exchangeCode({ appid: app.appid, secret: app.secret, code })
    }
    for (let n = 0; n < 200; n += 10) await Promise.all(Array.from({ length: 10 }, (_, at) => grant(n + at)))
    const { apps } = await account.listConnectedApps({ sessionToken })
    expect(apps.map(({ appid }) => appid)).toEqual([app.appid, oldest.app.appid])
  })

  test("does not end another user's grant, and says that there is none", async () => {
    const access = await granted()
    const attacker = await service.grantAccess()
    const visitor = await service.signedIn(attacker.user)
    const page = await visitor.open('/connect/apps')
    const form = formWith(page, 'grant_id')
    if (form === undefined) throw new Error('no grant shown')
    const [grantId = ''] = await service.grantIds({ username: access.user.username })
    await visitor.submit(page, form, { grant_id: grantId })
    const { account } = service.backend.asGateway
    const { sessionToken } = await account.signIn({ ...attacker.user, source: '192.0.2.1' })
    await expect(account.disconnectApp({ sessionToken, grantId })).rejects.toThrow('there is no such grant')
    expect(await answers(access)).toEqual(ALIVE)
  })

  test('does not act on a form without its csrf value or from another origin', async () => {
    const access = await granted()
    const visitor = await service.signedIn(access.user)
    const page = await visitor.open('/connect/apps')
    const form = formWith(page, 'grant_id')
    if (form === undefined) throw new Error('no grant shown')
    const crossSite = { headers: { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' } }
    expect((await visitor.submit(page, form, {}, crossSite)).status).toBe(403)
    expect((await visitor.submit(page, form, { csrf: '' })).status).toBe(403)
    expect(await answers(access)).toEqual(ALIVE)
  })

  test('no longer shows a grant that has expired', async () => {
    const access = await granted()
    service.clock.advance({ days: 30 })
    const page = await (await service.signedIn(access.user)).open('/connect/apps')
    expect(formWith(page, 'grant_id')).toBeUndefined()
  })

  test('tells two apps of one name apart by the hosts of their callbacks and their appids, and ends the one that is meant', async () => {
    const user = await service.createUser()
    const [meant, other] = await Promise.all(
      ['https://one.example/cb', 'https://two.example/cb'].map(async (redirectUri) =>
        service.grantAccess({ user, app: await service.createApp({ name: 'Twin', redirectUri }) }),
      ),
    )
    if (!meant || !other) throw new Error('two were granted')
    const visitor = await service.signedIn(user)
    const page = await visitor.open('/connect/apps')
    expect(page.html.text).toContain(`Twin one.example ${meant.app.appid}`)
    expect(page.html.text).toContain(`Twin two.example ${other.app.appid}`)
    const [grantId] = await service.grantIds({ username: user.username, appid: meant.app.appid })
    const form = page.html.forms.find(({ fields }) => fields.grant_id === grantId)
    if (!form) throw new Error('nothing ends it')
    expect((await visitor.submitAndFollow(page, form)).html.text).toContain('Access has ended. Twin can no longer')
    expect([(await service.user(meant)).type, (await service.user(other)).type]).toEqual(['invalid_token', ''])
  })

  test('asks to sign in first', async () => {
    const access = await granted()
    const page = await service.visitor().open('/connect/apps')
    expect(formWith(page, 'password')).toBeDefined()
    expect(page.html.text).not.toContain(access.app.appid)
  })
})

describe('audit', () => {
  test('of a user or an app that does not exist is refused, instead of showing that of all', async () => {
    const { admin } = service
    await expect(admin.listAuditEvents({ username: 'nobody' })).rejects.toThrow('there is no such user')
    await expect(admin.listGrants({ username: 'nobody' })).rejects.toThrow('there is no such user')
    await expect(admin.listAuditEvents({ appid: 'nothing' })).rejects.toThrow('there is no such app')
    await expect(admin.listGrants({ appid: 'nothing' })).rejects.toThrow('there is no such app')
    await expect(admin.getApp({ appid: 'app_none' })).rejects.toThrow(/there is no such app: app_none$/)
    await expect(admin.revokeGrant({ grantId: 'sat_canary' })).rejects.toThrow(/there is no such grant$/)
    await expect(admin.listAuditEvents({ userId: 'user_none' })).rejects.toThrow('there is no such user')
    await expect(admin.listGrants({ userId: 'user_none' })).rejects.toThrow('there is no such user')
  })

  test('of a user is listed by name or by id, of a deleted user by id, and so are grants', async () => {
    const access = await granted()
    const { admin } = service.backend
    const { username } = access.user
    const { userId = '' } = (await admin.getUser({ username })).user ?? {}
    await service.grantAccess() // another user's
    const [byName, grantsByName] = [await admin.listAuditEvents({ username }), await admin.listGrants({ username })]
    expect(await admin.listAuditEvents({ userId })).toEqual(byName)
    expect(await admin.listGrants({ userId })).toEqual(grantsByName)
    await expect(admin.listGrants({ userId, username })).rejects.toThrow(
      'give one of username, user_id and external_id',
    )
    await admin.setUserDisabled({ username, disabled: true })
    await admin.deleteUser({ username })
    await expect(admin.listAuditEvents({ username })).rejects.toThrow('there is no such user')
    const { events } = await admin.listAuditEvents({ userId })
    expect(events.map(({ kind }) => kind).slice(0, 3)).toEqual(['user.deleted', 'grant.revoked', 'user.disabled'])
    expect(events.slice(3)).toEqual(byName.events)
    const grants = grantsByName.grants.map(({ grantId }) =>
      expect.objectContaining({ grantId, username: `~${userId}` }),
    )
    expect((await admin.listGrants({ userId })).grants).toEqual(grants)
  })

  test('is read page by page without loss, as are the other lists for operators', async () => {
    const own = await startService()
    const { admin } = own.backend
    for (let n = 0; n < 3; n++) await own.grantAccess()
    const lists = [
      async (page: { pageSize: number; pageToken: string }) => {
        const { apps, nextPageToken } = await admin.listApps(page)
        return { ids: apps.map(({ appid }) => appid), nextPageToken }
      },
      async (page: { pageSize: number; pageToken: string }) => {
        const { users, nextPageToken } = await admin.listUsers(page)
        return { ids: users.map(({ userId }) => userId), nextPageToken }
      },
      async (page: { pageSize: number; pageToken: string }) => {
        const { grants, nextPageToken } = await admin.listGrants(page)
        return { ids: grants.map(({ grantId }) => grantId), nextPageToken }
      },
      async (page: { pageSize: number; pageToken: string }) => {
        const { events, nextPageToken } = await admin.listAuditEvents(page)
        return { ids: events.map(({ eventId }) => eventId), nextPageToken }
      },
    ]
    for (const list of lists) {
      const garbage = list({ pageSize: 2, pageToken: 'garbage!' })
      await expect(garbage).rejects.toThrow('the page token is not valid')
      const all = await list({ pageSize: 1_000, pageToken: '' })
      const paged: string[] = []
      let pageToken = ''
      do {
        const page = await list({ pageSize: 2, pageToken })
        paged.push(...page.ids)
        pageToken = page.nextPageToken
      } while (pageToken !== '')
      expect(paged.length).toBeGreaterThan(2)
      expect(paged).toEqual(all.ids)
    }
  })

  test('is shown 100 events at a time, or as many as are asked for up to 1,000', async () => {
    const { admin } = service
    const { app } = await admin.createApp({ name: 'App', redirectUris: ['https://app.example/'] })
    for (let n = 0; n < 100; n += 1) {
      const names = Array.from({ length: 10 }, (_, at) => `App ${10 * n + at}`)
      await Promise.all(names.map((name) => admin.updateApp({ appid: app?.appid ?? '', name })))
    }
    for (const [pageSize, shown] of [
      [0, 100],
      [1_000, 1_000],
      [1_001, 1_000],
    ] as const) {
      expect((await admin.listAuditEvents({ pageSize })).events).toHaveLength(shown)
    }
  })

  test('every state change of the flow leaves one event with its actor and a request_id, and without secrets', async () => {
    const own = await startService()
    const access = await granted(own)
    const [grantId = ''] = await own.grantIds()
    await own.visitor().open(authorizePath(access.app))
    await own.admin.revokeGrant({ grantId })
    const { events } = await own.admin.listAuditEvents({})
    for (const [kind, actor] of [
      ['app.created', 'operator'],
      ['user.created', 'operator'],
      ['session.started', 'user'],
      ['code.issued', 'user'],
      ['code.exchanged', 'app'],
      ['token.refreshed', 'app'],
      ['grant.revoked', 'operator'],
    ]) {
      expect(events.filter((event) => event.kind === kind)).toEqual([expect.objectContaining({ actor })])
    }
    const text = JSON.stringify(events, (_, value) => (typeof value === 'bigint' ? String(value) : value))
    for (const secret of [
      access.tokens.access_token,
      access.tokens.refresh_token,
      access.app.secret,
      access.user.password,
    ]) {
      expect(text).not.toContain(secret)
    }
    expect(events.every(({ requestId }) => requestId !== '')).toBe(true)
  })
})
