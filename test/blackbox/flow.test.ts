import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { everyQuestionType, smallSurvey } from '../harness/sample-surveys.js'
import { tokensOf, type Verbs } from '../harness/verbs.js'
import { openService } from '../harness.js'

let service: Verbs
beforeAll(async () => {
  service = await openService()
})
afterAll(() => service.backend.close())

const ALPHABET = /^[A-Za-z0-9_-]+$/

describe('the flow of spec 1', () => {
  test('a user confirms, the app exchanges the code and reads profile, list and detail', async () => {
    const app = await service.createApp({ redirectUri: 'https://app.example/callback' })
    const user = await service.createUser({ nickname: '小明', avatar: 'https://img.example/a.png' })
    const [surveyId = 0] = await service.importSurveys(user, [everyQuestionType(), smallSurvey()])

    const callback = await service.authorize(app, user, { state: 'abcXYZ019' })
    expect(callback.origin + callback.pathname).toBe('https://app.example/callback')
    expect([...callback.searchParams.keys()]).toEqual(['code', 'state'])
    expect(callback.searchParams.get('state')).toBe('abcXYZ019')

    const exchanged = await service.exchange(app, callback.searchParams.get('code') ?? '')
    expect(Object.keys(exchanged.data).sort()).toEqual(['access_token', 'expires_in', 'openid', 'refresh_token'])
    const access = { app, user, tokens: tokensOf(exchanged) }
    expect(access.tokens.expires_in).toBe(259_200)

    const profile = await service.user(access)
    expect(profile.data).toEqual({
      openid: access.tokens.openid,
      nickname: '小明',
      avatar: 'https://img.example/a.png',
    })
    expect((await service.surveys(access)).data).toMatchObject({ total: 2 })
    expect((await service.survey(access, surveyId)).data).toMatchObject({ id: surveyId })
  })

  test('a refresh returns a new access token and its lifetime, and neither refresh token nor openid', async () => {
    const access = await service.grantAccess()
    const refreshed = await service.refresh(access.app, access.tokens.refresh_token)
    expect(refreshed.code).toBe('OK')
    expect(Object.keys(refreshed.data).sort()).toEqual(['access_token', 'expires_in'])
    expect(refreshed.data.expires_in).toBe(259_200)
    expect(refreshed.data.access_token).not.toBe(access.tokens.access_token)
    const again = { ...access, tokens: { ...access.tokens, access_token: String(refreshed.data.access_token) } }
    expect((await service.user(again)).code).toBe('OK')
  })

  test('once the refresh token has expired, the user authorizes again and everything works again', async () => {
    const { app, user, tokens } = await service.grantAccess()
    service.clock.advance({ days: 30 })
    expect((await service.refresh(app, tokens.refresh_token)).type).toBe('invalid_refresh_token')
    const again = await service.grantAccess({ app, user })
    expect((await service.user(again)).code).toBe('OK')
    expect(again.tokens.openid).toBe(tokens.openid)
  })

  test('a profile changed by an operator is returned from the very next request on', async () => {
    const user = await service.createUser({ nickname: '小明', avatar: 'https://img.example/a.png' })
    const { username } = user
    const access = await service.grantAccess({ user })
    const { openid } = access.tokens
    const told = async () => (await service.user(access)).data
    expect(await told()).toEqual({ openid, nickname: '小明', avatar: 'https://img.example/a.png' })
    expect(await told()).toEqual({ openid, nickname: '小明', avatar: 'https://img.example/a.png' })
    await service.admin.updateUser({ username, nickname: 'Ming' })
    expect(await told()).toEqual({ openid, nickname: 'Ming', avatar: 'https://img.example/a.png' })
    await service.admin.updateUser({ username, nickname: '', avatar: '' })
    expect(await told()).toEqual({ openid, nickname: '', avatar: '' })
    await expect(service.admin.updateUser({ username: 'nobody' })).rejects.toThrow('there is no such user')
  })

  test('a repeated creation of a user answers with that user, and another one of the name is refused', async () => {
    const request = { username: 'repeated', password: 'a long password', requestId: 'request-of-a-user' }
    const { user } = await service.admin.createUser(request)
    expect((await service.admin.createUser(request)).user).toEqual(user)
    await expect(service.admin.createUser({ ...request, requestId: '' })).rejects.toThrow(
      'there is a user of this name',
    )
    const { username } = request
    await service.admin.setUserDisabled({ username, disabled: true })
    await service.admin.deleteUser({ username })
    await expect(service.admin.createUser(request)).rejects.toThrow(
      'the user that this request_id has made was deleted',
    )
    expect((await service.admin.createUser({ ...request, requestId: 'another' })).user).toMatchObject({ username })
  })

  test('operators name a user by username or by user_id, never by both', async () => {
    const { username, userId } = await service.createUser()
    expect((await service.admin.getUser({ userId })).user?.username).toBe(username)
    expect((await service.admin.updateUser({ userId, nickname: 'Ming' })).user?.nickname).toBe('Ming')
    for (const which of [{ username, userId }, {}]) {
      await expect(service.admin.getUser(which)).rejects.toThrow('give one of username, user_id and external_id')
    }
    await expect(service.admin.getUser({ userId: username })).rejects.toThrow('there is no such user')
  })

  test('a profile without nickname and avatar has both as empty strings', async () => {
    const user = await service.createUser({ nickname: '', avatar: '' })
    const access = await service.grantAccess({ user })
    expect((await service.user(access)).data).toEqual({ openid: access.tokens.openid, nickname: '', avatar: '' })
  })

  test('appids, secrets, codes, tokens and openids need no URL-encoding and carry the prefix of their kind', async () => {
    const app = await service.createApp()
    const user = await service.createUser()
    const code = await service.issueCode(app, user)
    const tokens = tokensOf(await service.exchange(app, code))
    for (const text of [app.appid, app.secret, code, tokens.access_token, tokens.refresh_token, tokens.openid]) {
      expect(text).toMatch(ALPHABET)
    }
    expect(
      new Set([code, tokens.access_token, tokens.refresh_token, app.secret].map((text) => text.split('_')[0])).size,
    ).toBe(4)
    for (const text of [code, tokens.access_token, tokens.refresh_token, app.secret]) {
      expect(text.length).toBeGreaterThanOrEqual(43) // 256 bits in base64url
    }
  })
})
