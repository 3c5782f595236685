import { readFileSync } from 'node:fs'
import { create } from '@bufbuild/protobuf'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { surveyFromJson } from '../../gateway/api/survey-from-json.js'
import { ListSurveysResponseSchema } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { startGateway } from './start-gateway.js'

const openapi = parse(readFileSync('docs/api/openapi.yaml', 'utf8'))
const ajv = new Ajv2020({ strict: false, validateFormats: false })
ajv.addSchema(openapi, 'openapi')

const survey = surveyFromJson(JSON.parse(readFileSync('examples/surveys/community-canteen.zh.json', 'utf8')))
const services = {
  ExchangeCode: () => ({ accessToken: 'at', refreshToken: 'rt', expiresIn: 259_200, openid: 'oid' }),
  RefreshAccessToken: () => ({ accessToken: 'at2', expiresIn: 259_200 }),
  GetAuthorizedUser: () => ({ openid: 'oid', nickname: '', avatar: '' }),
  GetSurvey: () => ({ survey: { ...survey, id: 7n, hash: '00ff' }, creatorUserId: 42n }),
  ListSurveys: () =>
    create(ListSurveysResponseSchema, { totalSize: 1, surveys: [{ id: 7n, hash: '00ff', title: '午餐', state: 2 }] }),
}

const exchange = 'oauth2/access_token?appid=a&secret=s&code=c&grant_type=authorization_code'
const refresh = 'oauth2/refresh_token?appid=a&refresh_token=r&grant_type=refresh_token'
const user = 'oauth2/user?appid=a&access_token=t&openid=o'
const list = 'surveys?appid=a&access_token=t&openid=o'
const detail = 'surveys/7?appid=a&access_token=t'

interface Body {
  readonly code: string
  readonly error: { readonly type: string; readonly message?: string }
  readonly data: Record<string, unknown>
}

/** Calls the gateway; returns the body, checked against the OpenAPI document, and the RPC that was made. */
async function ask(path: string): Promise<{ body: Body; call: Record<string, unknown> | undefined }> {
  await using gateway = await startGateway({ services })
  const body = (await (await fetch(`${gateway.url}/api/${path}`)).json()) as Body
  return { body, call: gateway.calls[0]?.request }
}

describe('an endpoint translates its parameters into one RPC and the answer into its schema', () => {
  test.each([
    [exchange, 'TokenGrant', { appid: 'a', secret: 's', code: 'c', redirectUri: '' }],
    [`${exchange}&redirect_uri=https%3A%2F%2Fa.example%2F`, 'TokenGrant', { redirectUri: 'https://a.example/' }],
    [refresh, 'RefreshedToken', { appid: 'a', refreshToken: 'r', secret: '' }],
    [`${refresh}&secret=s`, 'RefreshedToken', { secret: 's' }],
    [user, 'User', { appid: 'a', accessToken: 't', openid: 'o' }],
    [list, 'SurveyList', { appid: 'a', accessToken: 't', openid: 'o', skip: 0, pageSize: 20 }],
    [`${list}&page=&per_page=`, 'SurveyList', { skip: 0, pageSize: 20 }],
    [`${list}&page=3&per_page=101`, 'SurveyList', { skip: 200, pageSize: 100 }],
    [`${list}&page=1000000000&per_page=99`, 'SurveyList', { skip: 2_147_483_647, pageSize: 99 }],
    [
      `${list}&page=99999999999999999999&per_page=99999999999999999999`,
      'SurveyList',
      { skip: 2_147_483_647, pageSize: 100 },
    ],
    [detail, 'Survey', { appid: 'a', accessToken: 't', openid: '', surveyId: 7n }],
    [`${detail}&openid=o`, 'Survey', { openid: 'o' }],
    [detail.replace('7', '9007199254740991'), 'Survey', { surveyId: 9007199254740991n }],
    [`${user}&lang=zh&user_id=1&user_id=2&__proto__=x&appid[]=y&constructor=&=&&`, 'User', { appid: 'a' }],
    [user.replace('openid=o', 'openid=%E5%B0%8F+%2B%26'), 'User', { openid: '小 +&' }],
  ])('%s', async (path, schema, request) => {
    const { body, call } = await ask(path)
    const isValid = ajv.validate(`openapi#/components/schemas/${schema}Answer`, body)
    expect(isValid, ajv.errorsText()).toBe(true)
    expect(call).toMatchObject(request)
  })
})

test('a profile is answered as the service has it now, even if it was different before', async () => {
  const profiles = [
    { openid: 'oid', nickname: '小明', avatar: 'https://a.example/1' },
    { openid: 'oid', nickname: '小明', avatar: 'https://a.example/1' },
    { openid: 'oid', nickname: '小明', avatar: 'https://a.example/2' },
    { openid: 'oid', nickname: 'Ming "M" \u2028', avatar: 'https://a.example/2' },
    { openid: 'other', nickname: 'Ming "M" \u2028', avatar: 'https://a.example/2' },
  ]
  let asked = 0
  await using gateway = await startGateway({ services: { GetAuthorizedUser: () => profiles[asked++] ?? {} } })
  for (const profile of profiles) {
    const body = (await (await fetch(`${gateway.url}/api/${user}`)).json()) as Body
    expect(body.data).toEqual(profile)
  }
})

describe('a parameter is accepted up to the length in the OpenAPI document, and no longer', () => {
  const documented = (path: string) => {
    const parameters: { $ref: string }[] = openapi.paths[path].get.parameters
    return parameters.map(({ $ref }) => openapi.components.parameters[$ref.split('/').pop() ?? ''])
  }
  const bounded = Object.entries({
    '/api/oauth2/access_token': exchange,
    '/api/oauth2/refresh_token': refresh,
    '/api/oauth2/user': user,
    '/api/surveys': list,
    '/api/surveys/{survey_id}': detail,
  }).flatMap(([path, query]) =>
    documented(path)
      .filter(({ schema }) => schema.maxLength !== undefined)
      .map(({ name, schema }) => ({ path, query, name, maxLength: schema.maxLength as number })),
  )

  test.each(bounded)('$path $name', async ({ query, name, maxLength }) => {
    const withLength = (length: number) => {
      const [path = '', text] = query.split('?')
      const parameters = new URLSearchParams(text)
      parameters.set(name, 'x'.repeat(length))
      return `${path}?${parameters}`
    }
    const longest = await ask(withLength(maxLength))
    expect(longest.body.error.type).toBe('')
    expect(Object.values(longest.call ?? {})).toContain('x'.repeat(maxLength))
    expect((await ask(withLength(maxLength + 1))).body.error.type).toBe('invalid_argument')
  })
})

test.each([exchange, refresh])('a wrong grant_type is reported, whatever else is missing: %s', async (path) => {
  const wrong = path.replace(/grant_type=\w+/, 'grant_type=client_credential')
  expect((await ask(wrong)).body.error.type).toBe('invalid_grant_type')
  expect((await ask(wrong.replace('appid=a', 'appid='))).body.error.type).toBe('invalid_grant_type')
  expect((await ask(wrong.replace(/&(code|refresh_token)=./, ''))).body.error.type).toBe('invalid_grant_type')
  expect((await ask(wrong.replace(/&grant_type=\w+/, ''))).body.error.type).toBe('invalid_argument')
})
