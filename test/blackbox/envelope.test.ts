import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Envelope, expectError } from '../harness/envelope.js'
import { ERRORS, type ErrorType } from '../harness/errors.js'
import { loadOpenApi } from '../harness/openapi.js'
import type { Access, TestApp, Verbs } from '../harness/verbs.js'
import { openService, startService } from '../harness.js'

// The harness checks the envelope of every answer that any test gets: four members, a fresh UUID, headers, the code
// and action that belong to error.type, the OpenAPI document. Here each row of the table is provoked by name.

const UNKNOWN = {
  appid: 'app_0000000000000000000000',
  secret: 'sas_unknown',
  code: 'sac_unknown',
  accessToken: 'sat_unknown',
  refreshToken: 'sart_unknown',
  openid: 'unknown',
}

let service: Verbs
let access: Access
let other: Access
let disabled: TestApp

beforeAll(async () => {
  service = await openService()
  access = await service.grantAccess()
  other = await service.grantAccess()
  disabled = await service.createApp()
  await service.admin.setAppDisabled({ appid: disabled.appid, disabled: true })
})
afterAll(() => service.backend.close())

interface Row {
  readonly when: string
  readonly type: ErrorType
  readonly ask: () => Promise<Envelope>
}

const rows: readonly Row[] = [
  {
    when: 'a parameter is missing',
    type: 'invalid_argument',
    ask: () => service.exchange(access.app, 'x', { secret: undefined }),
  },
  { when: 'a parameter is empty', type: 'invalid_argument', ask: () => service.user(access, { openid: '' }) },
  {
    when: 'an exchange names an unknown appid',
    type: 'invalid_appid',
    ask: () => service.exchange({ ...access.app, appid: UNKNOWN.appid }, 'x'),
  },
  {
    when: 'a refresh names an unknown appid',
    type: 'invalid_appid',
    ask: () => service.refresh({ ...access.app, appid: UNKNOWN.appid }, access.tokens.refresh_token),
  },
  {
    when: 'a profile is asked for with an unknown appid',
    type: 'invalid_appid',
    ask: () => service.user(access, { appid: UNKNOWN.appid }),
  },
  {
    when: 'a list is asked for with an unknown appid',
    type: 'invalid_appid',
    ask: () => service.surveys(access, { appid: UNKNOWN.appid }),
  },
  {
    when: 'a survey is asked for with an unknown appid',
    type: 'invalid_appid',
    ask: () => service.survey(access, 1, { appid: UNKNOWN.appid }),
  },
  { when: 'the app is disabled', type: 'invalid_appid', ask: () => service.exchange(disabled, 'x') },
  {
    when: 'the secret is wrong',
    type: 'invalid_secret',
    ask: () => service.exchange({ ...access.app, secret: UNKNOWN.secret }, 'x'),
  },
  {
    when: "the secret is another app's",
    type: 'invalid_secret',
    ask: () => service.exchange({ ...access.app, secret: other.app.secret }, 'x'),
  },
  {
    when: 'a refresh carries a wrong secret',
    type: 'invalid_secret',
    ask: () => service.refresh(access.app, access.tokens.refresh_token, { secret: UNKNOWN.secret }),
  },
  {
    when: 'an exchange has another grant_type',
    type: 'invalid_grant_type',
    ask: () => service.exchange(access.app, 'x', { grant_type: 'refresh_token' }),
  },
  {
    when: 'the grant_type is client_credential',
    type: 'invalid_grant_type',
    ask: () => service.exchange(access.app, 'x', { grant_type: 'client_credential' }),
  },
  {
    when: 'a refresh has another grant_type',
    type: 'invalid_grant_type',
    ask: () => service.refresh(access.app, 'x', { grant_type: 'authorization_code' }),
  },
  { when: 'the code is unknown', type: 'invalid_code', ask: () => service.exchange(access.app, UNKNOWN.code) },
  {
    when: 'the refresh token is unknown',
    type: 'invalid_refresh_token',
    ask: () => service.refresh(access.app, UNKNOWN.refreshToken),
  },
  {
    when: "the refresh token is another app's",
    type: 'invalid_refresh_token',
    ask: () => service.refresh(access.app, other.tokens.refresh_token),
  },
  {
    when: 'a profile is asked for with an unknown access token',
    type: 'invalid_token',
    ask: () => service.user(access, { access_token: UNKNOWN.accessToken }),
  },
  {
    when: 'a list is asked for with an unknown access token',
    type: 'invalid_token',
    ask: () => service.surveys(access, { access_token: UNKNOWN.accessToken }),
  },
  {
    when: 'a survey is asked for with an unknown access token',
    type: 'invalid_token',
    ask: () => service.survey(access, 1, { access_token: UNKNOWN.accessToken }),
  },
  {
    when: "the access token is another app's",
    type: 'invalid_token',
    ask: () => service.user(access, { access_token: other.tokens.access_token }),
  },
  {
    when: "a profile is asked for with another user's openid",
    type: 'claim_error',
    ask: () => service.user(access, { openid: other.tokens.openid }),
  },
  {
    when: 'a list is asked for with an unknown openid',
    type: 'claim_error',
    ask: () => service.surveys(access, { openid: UNKNOWN.openid }),
  },
  {
    when: "a survey is asked for with another user's openid",
    type: 'claim_error',
    ask: () => service.survey(access, 1, { openid: other.tokens.openid }),
  },
  { when: 'the survey does not exist', type: 'survey_not_found', ask: () => service.survey(access, 987_654_321) },
  { when: 'the path is unknown', type: 'no_route', ask: () => service.call('/api/oauth2/unknown') },
  {
    when: 'the method is not GET',
    type: 'method_not_allowed',
    ask: () => service.call('/api/surveys', { method: 'POST' }),
  },
]

describe('the error table', () => {
  test.each(rows)('when $when, the answer is $type', async ({ type, ask }) => {
    const answer = await ask()
    expectError(answer, type)
    expect(answer.status).toBe(ERRORS[type].status)
  })

  test('a database that does not answer is remote_server_error with Retry-After, and the token stays good', async () => {
    const broken = await startService()
    const { app, tokens, user } = await broken.grantAccess()
    const code = await broken.issueCode(app, user)
    const letGo = await broken.backend.sabotage.holdTokenWrites()
    const [refreshed, exchanged] = await Promise.all([
      broken.refresh(app, tokens.refresh_token),
      broken.exchange(app, code),
    ])
    expectError(refreshed, 'remote_server_error')
    expectError(exchanged, 'remote_server_error')
    expect((await broken.user({ app, tokens })).code).toBe('OK')
    await letGo()
    expect((await broken.refresh(app, tokens.refresh_token)).code).toBe('OK')
    expect((await broken.exchange(app, code)).code).toBe('OK')
  })

  test('an unexpected failure is internal_server_error without any detail, logged once with its request_id', async () => {
    const broken = await startService()
    const granted = await broken.grantAccess()
    const showSurveys = await broken.backend.sabotage.hideSurveys()
    const answer = await broken.surveys(granted).finally(showSurveys)
    expectError(answer, 'internal_server_error')
    expect(answer.message).not.toMatch(/sql|table|survey/i)
    const lines = broken.backend.log().split('\n')
    expect(lines.filter((line) => line.includes(answer.requestId) && line.includes('"stack"'))).toHaveLength(1)
  })

  test('a wrong grant_type is answered with the message of the OpenAPI example for the endpoint', async () => {
    const wrong = { grant_type: 'client_credential' }
    const exchange = await service.exchange(access.app, UNKNOWN.code, wrong)
    const refresh = await service.refresh(access.app, UNKNOWN.refreshToken, wrong)
    for (const [{ message }, response] of [[exchange, 'BadExchange'] as const, [refresh, 'BadRefresh'] as const]) {
      const examples = `/components/responses/${response}/content/application~1json/examples`
      const openapi = loadOpenApi()
      expect(openapi.at(`${openapi.follow(`${examples}/invalid_grant_type`)}/value/error/message`)).toBe(message)
    }
  })

  test('too many requests from one source are request_rate_limited with Retry-After', async () => {
    const limited = await startService({ env: { RATE_LIMIT: 'on', RATE_API_PER_SOURCE: '5' } })
    const { app } = await limited.grantAccess()
    const admitted = 5 * limited.backend.gateways
    const answers = await Promise.all(Array.from({ length: admitted + 7 }, () => limited.exchange(app, UNKNOWN.code)))
    const types = answers.map(({ type }) => type)
    expect(types.filter((type) => type === 'request_rate_limited').length).toBeGreaterThanOrEqual(7)
    expect(types.filter((type) => type === 'invalid_code').length).toBeGreaterThanOrEqual(1)
  })

  test('with HTTP_ERROR_STATUS=200 application errors answer 200, and unknown paths and methods 404 and 405', async () => {
    const lenient = await startService({ env: { HTTP_ERROR_STATUS: '200' } })
    const { app, tokens } = await lenient.grantAccess()
    const statuses = {
      invalid_argument: (await lenient.get('/api/surveys')).status,
      invalid_token: (await lenient.user({ app, tokens }, { access_token: UNKNOWN.accessToken })).status,
      invalid_code: (await lenient.exchange(app, UNKNOWN.code)).status,
      survey_not_found: (await lenient.survey({ app, tokens }, 999)).status,
      no_route: (await lenient.call('/api/none')).status,
      method_not_allowed: (await lenient.call('/api/surveys', { method: 'DELETE' })).status,
    }
    expect(statuses).toEqual({
      invalid_argument: 200,
      invalid_token: 200,
      invalid_code: 200,
      survey_not_found: 200,
      no_route: 404,
      method_not_allowed: 405,
    })
  })
})

describe('the envelope', () => {
  test('the members come in the order of spec 2.1, and error of a success holds nothing but an empty type', async () => {
    const { text } = await service
      .visitor()
      .request(
        `/api/oauth2/user?appid=${access.app.appid}&access_token=${access.tokens.access_token}&openid=${access.tokens.openid}`,
      )
    expect(text).toMatch(/^\{"code":"OK","error":\{"type":""\},"data":\{.*\},"request_id":"[0-9a-f-]{36}"\}$/)
  })

  test('a request_id sent by the client is ignored', async () => {
    const sent = randomUUID()
    const answer = await service.call('/api/none', { headers: { 'x-request-id': sent } })
    expect(answer.requestId).not.toBe(sent)
  })

  test('the request_id of an answer is the one in its log line', async () => {
    const { requestId } = await service.user(access)
    expect(service.backend.log()).toContain(requestId)
  })

  test('a log line has the appid, and nothing that was sent in its place', async () => {
    const { appid, secret } = access.app
    for (const sent of [appid, secret, 'pass phrase', `${appid}x`]) await service.user(access, { appid: sent })
    const logged = [...service.backend.log().matchAll(/"appid":"([^"]*)"/g)].map(([, each]) => each)
    expect(logged).toContain(appid)
    expect(new Set(logged)).not.toContain(secret)
    expect(logged.filter((each) => !/^app_[\w-]{22}$/.test(each ?? ''))).toEqual([])
  })

  test('an app sees code PermissionDenied with type invalid_token for every invalid access token', async () => {
    const bad = [
      'x',
      UNKNOWN.accessToken,
      access.tokens.refresh_token,
      other.tokens.access_token,
      `${access.tokens.access_token}x`,
    ]
    for (const token of bad) {
      const { code, type } = await service.user(access, { access_token: token })
      expect({ code, type }).toEqual({ code: 'PermissionDenied', type: 'invalid_token' })
    }
  })
})

describe('the order of checks', () => {
  const order: readonly { readonly title: string; readonly type: ErrorType; readonly ask: () => Promise<Envelope> }[] =
    [
      {
        title: 'a wrong grant_type is told before a missing parameter, which another grant may not have',
        type: 'invalid_grant_type',
        ask: () => service.exchange(access.app, '', { grant_type: 'client_credential' }),
      },
      {
        title: 'a wrong grant_type is told before an unknown appid',
        type: 'invalid_grant_type',
        ask: () => service.exchange({ ...access.app, appid: UNKNOWN.appid }, 'x', { grant_type: 'no' }),
      },
      {
        title: 'an unknown appid is told before a wrong secret',
        type: 'invalid_appid',
        ask: () => service.exchange({ ...access.app, appid: UNKNOWN.appid, secret: 'no' }, 'x'),
      },
      {
        title: 'a wrong secret is told before a wrong code',
        type: 'invalid_secret',
        ask: () => service.exchange({ ...access.app, secret: 'no' }, 'x'),
      },
      {
        title: 'a wrong token is told before a wrong openid',
        type: 'invalid_token',
        ask: () => service.user(access, { access_token: 'no', openid: 'no' }),
      },
      {
        title: 'a wrong openid is told before an unknown survey',
        type: 'claim_error',
        ask: () => service.survey(access, 999, { openid: 'no' }),
      },
    ]
  test.each(order)('$title', async ({ type, ask }) => expectError(await ask(), type))
})
