import { createHash } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectError } from '../harness/envelope.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { type Access, tokensOf, type Verbs, whenAnswered, withToken } from '../harness/verbs.js'
import { openService, startService } from '../harness.js'

/** Of all tests that need none of their own: each makes its own apps and users. */
let service: Verbs
beforeAll(async () => {
  service = await openService()
})
afterAll(() => service.backend.close())

const boundaries = [
  { at: '1 ms before', ms: -1, good: true },
  { at: 'at', ms: 0, good: false },
  { at: '1 ms after', ms: 1, good: false },
] as const

describe('an access token', () => {
  test.each(boundaries)('$at its 259,200 s is good: $good', async ({ ms, good }) => {
    const access = await service.grantAccess()
    service.clock.advance({ seconds: 259_200, ms })
    expect((await service.user(access)).type).toBe(good ? '' : 'invalid_token')
    expect((await service.surveys(access)).type).toBe(good ? '' : 'invalid_token')
    expect((await service.survey(access, 1)).type).toBe(good ? 'survey_not_found' : 'invalid_token')
  })

  test('is good at 259,199 s', async () => {
    const access = await service.grantAccess()
    service.clock.advance({ seconds: 259_199 })
    expect((await service.user(access)).code).toBe('OK')
  })

  test('lives as long as ACCESS_TOKEN_TTL_SECONDS says, and expires_in says so', async () => {
    const own = await startService({ env: { ACCESS_TOKEN_TTL_SECONDS: '2' } })
    const access = await own.grantAccess()
    expect(access.tokens.expires_in).toBe(2)
    own.clock.advance({ seconds: 2, ms: -1 })
    expect((await own.user(access)).code).toBe('OK')
    own.clock.advance({ ms: 1 })
    expectError(await own.user(access), 'invalid_token')
  })

  test('that was revoked does not come back to life when the clock is set back', async () => {
    const own = await startService()
    const access = await own.grantAccess()
    const [grantId = ''] = await own.grantIds()
    await own.admin.revokeGrant({ grantId })
    own.clock.advance({ days: -1 })
    expectError(await own.user(access), 'invalid_token')
  })

  test('that has expired does not come back to life when the clock is set back, nor does a code or a refresh token', async () => {
    const own = await startService()
    const access = await own.grantAccess()
    const code = await own.issueCode(access.app, access.user)
    const expectAllEnded = async () => {
      expectError(await own.user(access), 'invalid_token')
      expectError(await own.exchange(access.app, code), 'invalid_code')
      expectError(await own.refresh(access.app, access.tokens.refresh_token), 'invalid_refresh_token')
    }
    own.clock.advance({ days: 30 })
    await expectAllEnded()
    own.clock.advance({ days: -30 })
    await expectAllEnded()
    expect((await own.user(await own.grantAccess())).code).toBe('OK')
  })

  test('with any one character changed, dropped or added is refused', async () => {
    const access = await service.grantAccess()
    const token = access.tokens.access_token
    const changed = [...token].map((char, at) => token.slice(0, at) + (char === 'A' ? 'B' : 'A') + token.slice(at + 1))
    const wrong = [
      ...changed,
      token.slice(0, -1),
      `${token}A`,
      `A${token}`,
      token.toUpperCase(),
      ` ${token}`,
      `${token} `,
      `${token}=`,
    ]
    for (const text of wrong) expectError(await service.user(access, { access_token: text }), 'invalid_token')
    expect((await service.user(access)).code).toBe('OK')
  })
})

describe('a refresh token', () => {
  test.each(boundaries)('$at its 30 days is good: $good', async ({ ms, good }) => {
    const { app, tokens } = await service.grantAccess()
    service.clock.advance({ days: 30, ms })
    expect((await service.refresh(app, tokens.refresh_token)).type).toBe(good ? '' : 'invalid_refresh_token')
  })

  test('neither rotates nor gains time: it is reusable until 30 days from the exchange', async () => {
    const { app, tokens } = await service.grantAccess()
    for (let day = 0; day < 29; day += 1) {
      service.clock.advance({ days: 1 })
      expect((await service.refresh(app, tokens.refresh_token)).code).toBe('OK')
    }
    service.clock.advance({ days: 1 })
    expectError(await service.refresh(app, tokens.refresh_token), 'invalid_refresh_token')
  })

  test('yields on its last day an access token that lives its own 3 days', async () => {
    const access = await service.grantAccess()
    service.clock.advance({ days: 30, ms: -1 })
    const last = withToken(access, await service.refresh(access.app, access.tokens.refresh_token))
    service.clock.advance({ days: 3, ms: -1 })
    expect((await service.user(last)).code).toBe('OK')
    service.clock.advance({ ms: 1 })
    expectError(await service.user(last), 'invalid_token')
  })

  test('keeps its last access token working when the janitor cleans up after the 30 days', async () => {
    const access = await service.grantAccess()
    service.clock.advance({ days: 30, ms: -1 })
    const last = withToken(access, await service.refresh(access.app, access.tokens.refresh_token))
    service.clock.advance({ days: 2 })
    await service.backend.runJanitors()
    expect((await service.user(last)).code).toBe('OK')
  })

  test('works after its access token has expired', async () => {
    const access = await service.grantAccess()
    service.clock.advance({ days: 10 })
    expectError(await service.user(access), 'invalid_token')
    const refreshed = withToken(access, await service.refresh(access.app, access.tokens.refresh_token))
    expect((await service.user(refreshed)).code).toBe('OK')
  })

  test('needs no secret, and refuses a wrong one', async () => {
    const { app, tokens } = await service.grantAccess()
    expect((await service.refresh(app, tokens.refresh_token)).code).toBe('OK')
    expect((await service.refresh(app, tokens.refresh_token, { secret: app.secret })).code).toBe('OK')
    for (const token of [tokens.refresh_token, 'no token']) {
      expectError(await service.refresh(app, token, { secret: `${app.secret}x` }), 'invalid_secret')
    }
    expectError(await service.refresh(app, 'no token', { secret: app.secret }), 'invalid_refresh_token')
  })

  test('of an app that requires it needs the secret', async () => {
    const app = await service.createApp({ requiresSecretOnRefresh: true })
    const { tokens } = await service.grantAccess({ app })
    for (const refreshToken of [tokens.refresh_token, 'none of ours']) {
      const without = await service.refresh(app, refreshToken)
      expectError(without, 'invalid_secret')
      expect(without.message).toBe('this app must send its secret with a refresh')
    }
    expectError(await service.refresh(app, tokens.refresh_token, { secret: 'wrong' }), 'invalid_secret')
    expect((await service.refresh(app, tokens.refresh_token, { secret: app.secret })).code).toBe('OK')
  })
})

describe('a refresh', () => {
  test.each([
    { at: '1 ms before the overlap of 300 s ends', ms: -1, good: true },
    { at: 'when the overlap of 300 s ends', ms: 0, good: false },
    { at: '1 ms after the overlap of 300 s', ms: 1, good: false },
  ])('leaves the previous access token good: $good, $at', async ({ ms, good }) => {
    const access = await service.grantAccess()
    const next = withToken(access, await service.refresh(access.app, access.tokens.refresh_token))
    service.clock.advance({ seconds: 300, ms })
    expect((await service.user(access)).type).toBe(good ? '' : 'invalid_token')
    expect((await service.user(next)).code).toBe('OK')
  })

  test('never lengthens the life of an earlier token', async () => {
    const access = await service.grantAccess()
    service.clock.advance({ seconds: 259_200 - 100 })
    await service.refresh(access.app, access.tokens.refresh_token)
    service.clock.advance({ seconds: 100, ms: -1 })
    expect((await service.user(access)).code).toBe('OK')
    service.clock.advance({ ms: 1 })
    expectError(await service.user(access), 'invalid_token')
  })

  test('never extends an overlap that is already running', async () => {
    const access = await service.grantAccess()
    await service.refresh(access.app, access.tokens.refresh_token)
    service.clock.advance({ seconds: 200 })
    await service.refresh(access.app, access.tokens.refresh_token)
    service.clock.advance({ seconds: 100 })
    expectError(await service.user(access), 'invalid_token')
  })

  test('with ACCESS_TOKEN_OVERLAP_SECONDS 0 ends the previous access token at once', async () => {
    const own = await startService({ env: { ACCESS_TOKEN_OVERLAP_SECONDS: '0' } })
    const access = await own.grantAccess()
    const next = withToken(access, await own.refresh(access.app, access.tokens.refresh_token))
    expectError(await own.user(access), 'invalid_token')
    expect((await own.user(next)).code).toBe('OK')
  })

  test('is always safe: a thousand in parallel all succeed, and so does each token, and that of the exchange', async () => {
    const access = await service.grantAccess()
    const refresh = () => whenAnswered(() => service.refresh(access.app, access.tokens.refresh_token))
    const answers = await Promise.all(Array.from({ length: 1_000 }, refresh))
    expect(new Set(answers.map(({ code }) => code))).toEqual(new Set(['OK']))
    expect(new Set(answers.map(({ data }) => data.access_token)).size).toBe(1)
    for (const answer of answers.slice(0, 1)) expect((await service.user(withToken(access, answer))).code).toBe('OK')
    expect((await service.user(access)).code).toBe('OK')
  })

  test('within an eighth of the overlap of the one before is answered with the same token and what is left of it', async () => {
    const access = await service.grantAccess()
    const refresh = async () => (await service.refresh(access.app, access.tokens.refresh_token)).data
    const first = await refresh()
    service.clock.advance({ ms: 37_499 })
    expect(await refresh()).toEqual({ access_token: first.access_token, expires_in: 259_200 - 38 })
    service.clock.advance({ ms: 1 })
    const second = await refresh()
    expect(second.access_token).not.toBe(first.access_token)
    expect(second.expires_in).toBe(259_200)
    service.clock.advance({ ms: 37_501 })
    expect((await refresh()).access_token).not.toBe(second.access_token)
  })
})

describe('several authorizations', () => {
  test('of one app by one user are separate grants under one openid', async () => {
    const first = await service.grantAccess()
    const second = await service.grantAccess({ app: first.app, user: first.user })
    expect(second.tokens.openid).toBe(first.tokens.openid)
    const [newest = ''] = await service.grantIds({ username: first.user.username })
    await service.admin.revokeGrant({ grantId: newest })
    const types = [(await service.user(first)).type, (await service.user(second)).type].sort()
    expect(types).toEqual(['', 'invalid_token'])
  })

  test('exchanged in parallel for a new app still agree on the openid', async () => {
    const app = await service.createApp()
    const user = await service.createUser()
    const visitor = service.visitor()
    const codes: string[] = []
    for (let i = 0; i < 5; i += 1) codes.push(await service.issueCode(app, user, { visitor }))
    const answers = await Promise.all(codes.map((code) => service.exchange(app, code)))
    expect(new Set(answers.map((answer) => tokensOf(answer).openid)).size).toBe(1)
  })
})

describe('caps', () => {
  test('a user has at most MAX_GRANTS_PER_USER_AND_APP live grants for an app: the oldest is revoked', async () => {
    const own = await startService({ env: { MAX_GRANTS_PER_USER_AND_APP: '2' } })
    const first = await own.grantAccess()
    const visitor = own.visitor()
    const later: Access[] = []
    for (let i = 0; i < 2; i += 1) {
      own.clock.advance({ seconds: 1 })
      later.push(await own.grantAccess({ app: first.app, user: first.user, visitor }))
    }
    const elsewhere = await own.grantAccess({ user: first.user, visitor })
    expectError(await own.user(first), 'invalid_token')
    for (const access of [...later, elsewhere]) expect((await own.user(access)).code).toBe('OK')
  })

  test('a user has at most MAX_LIVE_CODES_PER_USER_AND_APP unused codes for an app: the oldest ends', async () => {
    const own = await startService({ env: { MAX_LIVE_CODES_PER_USER_AND_APP: '2' } })
    const app = await own.createApp()
    const user = await own.createUser()
    const visitor = own.visitor()
    const codes: string[] = []
    for (let i = 0; i < 3; i += 1) {
      own.clock.advance({ seconds: 1 })
      codes.push(await own.issueCode(app, user, { visitor }))
    }
    const types: string[] = []
    for (const code of codes) types.push((await own.exchange(app, code)).type)
    expect(types).toEqual(['invalid_code', '', ''])
  })
})

describe('isolation', () => {
  test('among three apps and three users no token works for another app or another user, on any endpoint', async () => {
    const apps = await Promise.all([1, 2, 3].map(() => service.createApp()))
    const users = await Promise.all([1, 2, 3].map(() => service.createUser()))
    const grid: Access[] = []
    for (const user of users) {
      const visitor = service.visitor()
      for (const app of apps) grid.push(await service.grantAccess({ app, user, visitor }))
    }
    expect(new Set(grid.map(({ tokens }) => tokens.openid)).size).toBe(9)
    const surveyIds = new Map<string, number>()
    for (const user of users) surveyIds.set(user.userId, await ownSurvey(service, user))

    for (const own of grid) {
      for (const foreign of grid) {
        const surveyId = surveyIds.get(foreign.user.userId) ?? 0
        const sameApp = own.app === foreign.app
        const sameUser = own.user === foreign.user
        // Own token, foreign appid and openid.
        const crossed = { appid: foreign.app.appid, openid: foreign.tokens.openid }
        const expected = !sameApp ? 'invalid_token' : !sameUser ? 'claim_error' : ''
        expect((await service.user(own, crossed)).type).toBe(expected)
        expect((await service.surveys(own, crossed)).type).toBe(expected)
        expect((await service.survey(own, surveyId, crossed)).type).toBe(expected)
        // Own token and appid, foreign survey.
        expect((await service.survey(own, surveyId)).type).toBe(sameUser ? '' : 'survey_not_found')
        expect((await service.refresh(foreign.app, own.tokens.refresh_token)).type).toBe(
          sameApp ? '' : 'invalid_refresh_token',
        )
      }
    }
  })

  test('access token, refresh token, code and secret are never interchangeable', async () => {
    const access = await service.grantAccess()
    const { app, tokens } = access
    const code = await service.issueCode(app, access.user)
    for (const text of [tokens.refresh_token, code, app.secret, tokens.openid]) {
      expectError(await service.user(access, { access_token: text }), 'invalid_token')
    }
    for (const text of [tokens.access_token, code, app.secret])
      expectError(await service.refresh(app, text), 'invalid_refresh_token')
    for (const text of [tokens.access_token, tokens.refresh_token, app.secret])
      expectError(await service.exchange(app, text), 'invalid_code')
    for (const text of [tokens.access_token, tokens.refresh_token, code]) {
      expectError(await service.exchange({ ...app, secret: text }, code), 'invalid_secret')
    }
  })

  test('an openid does not contain the user id and is not a hash of public values', async () => {
    const { app, user, tokens } = await service.grantAccess()
    const guesses = [user.userId, user.username].flatMap((id) => [
      id,
      id + app.appid,
      app.appid + id,
      `${app.appid}:${id}`,
      `${id}:${app.appid}`,
    ])
    expect(tokens.openid).not.toContain(user.userId)
    for (const guess of guesses) {
      for (const algorithm of ['md5', 'sha1', 'sha256']) {
        const digest = createHash(algorithm).update(guess).digest()
        for (const encoding of ['hex', 'base64url'] as const)
          expect(tokens.openid).not.toContain(digest.toString(encoding).slice(0, 16))
      }
    }
  })
})

async function ownSurvey(service: Verbs, user: Access['user']): Promise<number> {
  const [id = 0] = await service.importSurveys(user, [smallSurvey(`of ${user.username}`)])
  return id
}
