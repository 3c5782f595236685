import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectError } from '../harness/envelope.js'
import type { Verbs } from '../harness/verbs.js'
import { openService, startService } from '../harness.js'

/** Of all tests that need none of their own: each makes its own apps and users. */
let service: Verbs
beforeAll(async () => {
  service = await openService()
})
afterAll(() => service.backend.close())

describe('app secrets', () => {
  test('rotate without an outage: both work until the old one is revoked, which holds at once', async () => {
    const old = await service.createApp()
    const user = await service.createUser()
    const visitor = service.visitor()
    const code = () => service.issueCode(old, user, { visitor })
    const added = await service.admin.addAppSecret({ appid: old.appid, name: 'second' })
    const renewed = { ...old, secret: added.secret }
    expect((await service.exchange(old, await code())).code).toBe('OK')
    expect((await service.exchange(renewed, await code())).code).toBe('OK')
    await service.admin.revokeAppSecret({ appid: old.appid, secretId: old.secretId })
    const last = await code()
    expectError(await service.exchange(old, last), 'invalid_secret')
    expect((await service.exchange(renewed, last)).code).toBe('OK')
  })

  test('that expire are refused from that moment on', async () => {
    const app = await service.createApp()
    const user = await service.createUser()
    const expireTime = timestampFromMs(service.clock.now() + 60_000)
    const { secret } = await service.admin.addAppSecret({ appid: app.appid, name: 'short', expireTime })
    const code = await service.issueCode(app, user)
    const later = await service.issueCode(app, user)
    service.clock.advance({ seconds: 60, ms: -1 })
    expectError(await service.exchange({ ...app, secret }, 'no code'), 'invalid_code')
    expect((await service.exchange({ ...app, secret }, code)).code).toBe('OK')
    service.clock.advance({ ms: 1 })
    for (const any of [later, 'no code']) expectError(await service.exchange({ ...app, secret }, any), 'invalid_secret')
  })

  test('are shown once, and GetApp shows only their names and dates', async () => {
    const app = await service.createApp()
    service.clock.advance({ seconds: 1 })
    const added = await service.admin.addAppSecret({ appid: app.appid, name: 'second' })
    const { app: shown } = await service.admin.getApp({ appid: app.appid })
    expect(shown?.secrets.map(({ name }) => name)).toEqual(['default', 'second'])
    const text = JSON.stringify(shown, (_, value) => (typeof value === 'bigint' ? String(value) : value))
    expect(text).not.toContain(app.secret)
    expect(text).not.toContain(added.secret)
  })

  test('are not lost with an answer: a repetition of the call makes the app once, and a new secret in place of the first', async () => {
    const request = { name: 'Repeated', redirectUris: ['https://a.example/'], requestId: 'request-of-an-app' }
    const first = await service.admin.createApp(request)
    const second = await service.admin.createApp(request)
    const appid = second.app?.appid ?? ''
    const app = { appid, secretId: '', redirectUri: 'https://a.example/' }
    expect(second.app).toEqual(first.app)
    const live = async () => (await service.admin.getApp({ appid })).app?.secrets.filter((one) => !one.revokeTime)
    expect((await live())?.map(({ secretId }) => secretId)).toEqual([second.secretId])
    expectError(await service.exchange({ ...app, secret: first.secret }, 'no code'), 'invalid_secret')
    expectError(await service.exchange({ ...app, secret: second.secret }, 'no code'), 'invalid_code')

    const adding = { appid, name: 'second', requestId: 'request-of-a-secret' }
    const lost = await service.admin.addAppSecret(adding)
    const added = await service.admin.addAppSecret(adding)
    expect((await live())?.map(({ secretId }) => secretId).sort()).toEqual([second.secretId, added.secretId].sort())
    expectError(await service.exchange({ ...app, secret: lost.secret }, 'no code'), 'invalid_secret')
    expectError(await service.exchange({ ...app, secret: added.secret }, 'no code'), 'invalid_code')
    await expect(service.admin.addAppSecret({ ...adding, requestId: 'another' })).rejects.toThrow('of this name')

    await service.admin.revokeAppSecret({ appid, secretId: second.secretId })
    await service.admin.addAppSecret({ appid, name: 'default' })
    await expect(service.admin.createApp(request)).rejects.toThrow('the app has a live secret of this name')
    await service.admin.deleteApp({ appid })
    await expect(service.admin.createApp(request)).rejects.toThrow('the app that this request_id has made was deleted')
  })

  test('have the time of their last use', async () => {
    const { app } = await service.grantAccess()
    await service.backend.runJanitors()
    const { app: shown } = await service.admin.getApp({ appid: app.appid })
    expect(shown?.secrets[0]?.lastUseTime).toBeDefined()
  })

  test('have the time of their last use to the minute, however often they are used', async () => {
    const app = await service.createApp()
    const code = await service.issueCode(app, await service.createUser())
    expect((await service.exchange(app, code)).code).toBe('OK')
    for (let uses = 0; uses < 6; uses += 1) {
      service.clock.advance({ seconds: 20 })
      expectError(await service.exchange(app, code), 'invalid_code')
    }
    await service.backend.runJanitors()
    const [secret] = (await service.admin.getApp({ appid: app.appid })).app?.secrets ?? []
    expect(secret?.lastUseTime && timestampMs(secret.lastUseTime)).toBeGreaterThan(service.clock.now() - 60_000)
  })

  test('count as used by every request that authenticates with them, and no more once they are revoked', async () => {
    const app = await service.createApp()
    const lastUse = async () => {
      await service.backend.runJanitors()
      const [secret] = (await service.admin.getApp({ appid: app.appid })).app?.secrets ?? []
      return secret?.lastUseTime && timestampMs(secret.lastUseTime)
    }
    expectError(await service.exchange(app, 'no code'), 'invalid_code')
    const first = await lastUse()
    expect(first, 'with a code that cannot be one').toBe(service.clock.now())
    const user = await service.createUser()
    service.clock.advance({ seconds: 3_600 })
    const code = await service.issueCode(app, user)
    expect((await service.exchange(app, code)).code).toBe('OK')
    expect(await lastUse()).toBe(service.clock.now())
    service.clock.advance({ seconds: 60 })
    expectError(await service.exchange(app, code), 'invalid_code')
    expect(await lastUse(), 'with a code that was used').toBe(service.clock.now())
    service.clock.advance({ seconds: 60 })
    const { tokens } = await service.grantAccess({ app, user })
    service.clock.advance({ seconds: 60 })
    expect((await service.refresh(app, tokens.refresh_token, { secret: app.secret })).code).toBe('OK')
    expect(await lastUse(), 'with a refresh token').toBe(service.clock.now())
    service.clock.advance({ seconds: 60 })
    const { tokens: others } = await service.grantAccess()
    const refused = await service.refresh(app, others.refresh_token, { secret: app.secret })
    expectError(refused, 'invalid_refresh_token')
    const last = await lastUse()
    expect(last, 'with a refresh token of another app').toBe(service.clock.now())
    await service.admin.revokeAppSecret({ appid: app.appid, secretId: app.secretId })
    service.clock.advance({ seconds: 3_600 })
    expectError(await service.refresh(app, tokens.refresh_token, { secret: app.secret }), 'invalid_secret')
    expectError(await service.exchange(app, await service.issueCode(app, user)), 'invalid_secret')
    expectError(await service.exchange(app, 'no code'), 'invalid_secret')
    expect(await lastUse()).toBe(last)
  })

  test('that would have expired already are refused', async () => {
    const { appid } = await service.createApp()
    const add = (name: string, ms: number) =>
      service.admin.addAppSecret({ appid, name, expireTime: timestampFromMs(service.clock.now() + ms) })
    for (const ms of [-1, 0]) await expect(add('ended', ms)).rejects.toThrow('expire_time must be in the future')
    await add('short', 1)
  })

  test('with the name of a live secret are refused', async () => {
    const { appid } = await service.createApp()
    await expect(service.admin.addAppSecret({ appid, name: 'default' })).rejects.toThrow(/default|name/)
  })

  test('keep working after many failures of somebody else', async () => {
    const own = await startService({ env: { RATE_LIMIT: 'on' } })
    const { app, user } = await own.grantAccess()
    for (let i = 0; i < 100; i += 1) expectError(await own.exchange({ ...app, secret: 'wrong' }, 'x'), 'invalid_secret')
    expect((await own.exchange(app, await own.issueCode(app, user))).code).toBe('OK')
  })
})

test('audit events are kept for KEEP_AUDIT_DAYS, however briefly ended rows are kept', async () => {
  const own = await startService({ env: { KEEP_AUDIT_DAYS: '3', KEEP_ENDED_SECONDS: '3600' } })
  const { appid } = await own.createApp()
  const count = async () => {
    await own.backend.runJanitors()
    return (await own.admin.listAuditEvents({ appid })).events.length
  }
  expect(await count()).toBeGreaterThan(0)
  own.clock.advance({ days: 2, hours: 23 })
  expect(await count()).toBeGreaterThan(0)
  own.clock.advance({ hours: 2 })
  expect(await count()).toBe(0)
})
