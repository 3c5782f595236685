// What clients of this dialect send in the wild: their headers, the order of their parameters, what they add and what
// they leave unencoded. Each goes from the code to the surveys and past an expired token, guided by the bodies it reads.
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { toMs } from '../harness/clock.js'
import type { Verbs } from '../harness/verbs.js'
import { openService } from '../harness.js'

interface Client {
  readonly name: string
  readonly headers: Readonly<Record<string, string>>
  /** How it writes a query. */
  readonly query: (parameters: Readonly<Record<string, string>>) => string
  /** What it adds to every request. */
  readonly extra?: Readonly<Record<string, string>>
  /** What it adds to an exchange. */
  readonly extraOnExchange?: (redirectUri: string) => Readonly<Record<string, string>>
}

const encoded = (parameters: Readonly<Record<string, string>>) => new URLSearchParams(parameters).toString()
const concatenated = (parameters: Readonly<Record<string, string>>) =>
  Object.entries(parameters)
    .map(([name, value]) => `${name}=${value}`)
    .join('&')
const backwards = (parameters: Readonly<Record<string, string>>) =>
  encoded(Object.fromEntries(Object.entries(parameters).reverse()))

const clients: readonly Client[] = [
  {
    name: 'PHP with curl, which repeats the redirect_uri',
    headers: { 'user-agent': 'GuzzleHttp/7', accept: '*/*' },
    query: encoded,
    extraOnExchange: (redirectUri) => ({ redirect_uri: redirectUri }),
  },
  {
    name: 'Java, which builds its addresses by hand',
    headers: { 'user-agent': 'Java/1.8.0_202', accept: 'text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2' },
    query: concatenated,
    extra: { lang: 'zh_CN' },
  },
  {
    name: 'Python requests, which offers compression',
    headers: { 'user-agent': 'python-requests/2.32', accept: '*/*', 'accept-encoding': 'gzip, deflate, br, zstd' },
    query: backwards,
    extra: { user_id: '1' },
  },
  {
    name: 'Python urllib, which closes its connections',
    headers: { 'user-agent': 'Python-urllib/3.12', 'accept-encoding': 'identity', connection: 'close' },
    query: encoded,
  },
  {
    name: 'axios, which names a body type without a body',
    headers: {
      'user-agent': 'axios/1.7',
      accept: 'application/json, text/plain, */*',
      'content-type': 'application/json',
      'accept-encoding': 'gzip, compress, deflate, br',
    },
    query: encoded,
    extra: { _t: '1732156800000' },
  },
]

interface Page {
  readonly total: number
  readonly last_answer_id: number
  readonly list: readonly { readonly answer_id: number }[]
}

/** Without what the service sets. */
const {
  id: _id,
  creator_user_id: _creator,
  ...published
} = JSON.parse(readFileSync('test/harness/published-survey.json', 'utf8'))

describe.each(['semantic', '200'])('with HTTP_ERROR_STATUS=%s', (errorStatus) => {
  let service: Verbs
  beforeAll(async () => {
    service = await openService({ env: { HTTP_ERROR_STATUS: errorStatus } })
  })
  afterAll(() => service.backend.close())

  test.each(clients)('$name, runs the flow', async ({ headers, query, extra = {}, extraOnExchange = () => ({}) }) => {
    const app = await service.createApp({ readsAnswers: true })
    const user = await service.createUser()
    const [surveyId] = await service.importSurveys(user, [published])
    const ask = (path: string, parameters: Readonly<Record<string, string>>) =>
      service.call(`${path}?${query({ ...parameters, ...extra })}`, { headers })

    const code = await service.issueCode(app, user)
    const exchanged = await ask('/api/oauth2/access_token', {
      appid: app.appid,
      secret: app.secret,
      code,
      grant_type: 'authorization_code',
      ...extraOnExchange(app.redirectUri),
    })
    expect(exchanged.code).toBe('OK')
    const { openid, access_token, refresh_token } = exchanged.data as Record<string, string>
    const credentials = { appid: app.appid, access_token: access_token ?? '', openid: openid ?? '' }
    expect((await ask('/api/oauth2/user', credentials)).data.nickname).toBe('小明 Ming')
    expect((await ask('/api/surveys', credentials)).data.total).toBe(1)
    expect((await ask(`/api/surveys/${surveyId}`, credentials)).data.id).toBe(surveyId)
    const { openid: _, ...withoutOpenid } = credentials
    const { creator_user_id: __, ...detail } = (await ask(`/api/surveys/${surveyId}/legacy`, withoutOpenid)).data
    expect(detail).toEqual({ ...published, id: surveyId })

    // They go on from the last id: some until a list is empty, some until that id is the total.
    const answers = Array.from({ length: 45 }, () => ({ endTime: { seconds: 1_767_225_600n } }))
    await service.backend.survey.importAnswers({ surveyId: BigInt(surveyId ?? 0), answers })
    const pageAfter = async (last: unknown) => {
      const page = { per_page: '20', last_answer_id: String(last) }
      return (await ask(`/api/surveys/${surveyId}/answers`, { ...withoutOpenid, ...page })).data as unknown as Page
    }
    let page = await pageAfter(0)
    const seen: number[] = []
    for (; page.list.length > 0; page = await pageAfter(page.last_answer_id)) {
      seen.push(...page.list.map(({ answer_id }) => answer_id))
    }
    expect(seen).toEqual(answers.map((_, at) => at + 1))
    expect(page.last_answer_id).toBe(page.total)

    // The one error such clients act on, recognised by its type: they refresh and go on.
    service.clock.advance({ ms: toMs({ seconds: 259_200 }) })
    const late = await ask('/api/surveys', credentials)
    expect(late.type).toBe('invalid_token')
    expect(late.status).toBe(errorStatus === '200' ? 200 : 401)
    const refreshed = await ask('/api/oauth2/refresh_token', {
      appid: app.appid,
      refresh_token: refresh_token ?? '',
      grant_type: 'refresh_token',
    })
    expect(Object.keys(refreshed.data).sort()).toEqual(['access_token', 'expires_in'])
    const renewed = { ...credentials, access_token: String(refreshed.data.access_token) }
    expect((await ask('/api/surveys', renewed)).code).toBe('OK')
  })
})
