import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectError } from '../harness/envelope.js'
import type { ErrorType } from '../harness/errors.js'
import { type Access, type Query, type Verbs, withQuery } from '../harness/verbs.js'
import { openService } from '../harness.js'

let service: Verbs
let access: Access
let refreshed: Access // a grant of its own: many refreshes end a grant's older access tokens
beforeAll(async () => {
  service = await openService()
  access = await service.grantAccess()
  refreshed = await service.grantAccess({ app: access.app, user: access.user })
})
afterAll(() => service.backend.close())

interface Endpoint {
  readonly name: string
  readonly path: string
  readonly required: () => Query
  /** Documented but not required. */
  readonly optional: readonly string[]
}

const endpoints: readonly Endpoint[] = [
  {
    name: 'token exchange',
    path: '/api/oauth2/access_token',
    required: () => ({
      appid: access.app.appid,
      secret: access.app.secret,
      code: 'sac_x',
      grant_type: 'authorization_code',
    }),
    optional: ['redirect_uri'],
  },
  {
    name: 'refresh',
    path: '/api/oauth2/refresh_token',
    required: () => ({
      appid: access.app.appid,
      refresh_token: refreshed.tokens.refresh_token,
      grant_type: 'refresh_token',
    }),
    optional: ['secret'],
  },
  {
    name: 'user',
    path: '/api/oauth2/user',
    required: () => ({
      appid: access.app.appid,
      access_token: access.tokens.access_token,
      openid: access.tokens.openid,
    }),
    optional: [],
  },
  {
    name: 'survey',
    path: '/api/surveys/1',
    required: () => ({ appid: access.app.appid, access_token: access.tokens.access_token }),
    optional: ['openid'],
  },
  {
    name: 'surveys',
    path: '/api/surveys',
    required: () => ({
      appid: access.app.appid,
      access_token: access.tokens.access_token,
      openid: access.tokens.openid,
    }),
    optional: ['page', 'per_page'],
  },
  {
    name: 'answers',
    path: '/api/surveys/1/answers',
    required: () => ({ appid: access.app.appid, access_token: access.tokens.access_token }),
    optional: ['openid', 'per_page', 'last_answer_id', 'since', 'until'],
  },
  {
    name: 'answer',
    path: '/api/surveys/1/answers/1',
    required: () => ({ appid: access.app.appid, access_token: access.tokens.access_token }),
    optional: ['openid'],
  },
]

const names: Readonly<Record<string, readonly string[]>> = {
  'token exchange': ['appid', 'secret', 'code', 'grant_type'],
  refresh: ['appid', 'refresh_token', 'grant_type'],
  user: ['appid', 'access_token', 'openid'],
  survey: ['appid', 'access_token'],
  surveys: ['appid', 'access_token', 'openid'],
  answers: ['appid', 'access_token'],
  answer: ['appid', 'access_token'],
}
const parameters = endpoints.flatMap((endpoint) =>
  (names[endpoint.name] ?? []).map((parameter) => ({ endpoint, parameter })),
)

interface Malformation {
  readonly what: string
  readonly write: (name: string, value: string) => string
  /** A code or token that is wrong in this way is answered as one that nobody has. */
  readonly isOfValue?: true
}

/** How a code or token that nobody has is answered. */
const unknown: Readonly<Record<string, ErrorType>> = {
  code: 'invalid_code',
  refresh_token: 'invalid_refresh_token',
  access_token: 'invalid_token',
}

/** Ways to get one parameter wrong, as query text. */
const malformations: readonly Malformation[] = [
  { what: 'missing', write: () => '' },
  { what: 'empty', write: (name) => `${name}=` },
  { what: 'without =', write: (name) => name },
  { what: 'given twice', write: (name, value) => `${name}=${value}&${name}=${value}` },
  { what: 'given twice, once empty', write: (name, value) => `${name}=${value}&${name}=` },
  {
    what: 'given twice, once encoded',
    write: (name, value) => `${name}=${value}&%${name.charCodeAt(0).toString(16)}${name.slice(1)}=x`,
  },
  { what: 'with %zz', write: (name, value) => `${name}=${value}%zz` },
  { what: 'with a lone %', write: (name, value) => `${name}=${value}%` },
  { what: 'with half an escape', write: (name, value) => `${name}=${value}%4` },
  { what: 'with NUL', write: (name, value) => `${name}=${value}%00`, isOfValue: true },
  { what: 'with a line break', write: (name, value) => `${name}=${value}%0d%0a`, isOfValue: true },
  { what: 'with DEL', write: (name, value) => `${name}=${value}%7F`, isOfValue: true },
  { what: 'with a C1 control', write: (name, value) => `${name}=${value}%C2%85`, isOfValue: true },
  { what: 'with a lone continuation byte', write: (name, value) => `${name}=${value}%80` },
  { what: 'with an overlong encoding', write: (name, value) => `${name}=${value}%C0%AF` },
  { what: 'with an encoded surrogate', write: (name, value) => `${name}=${value}%ED%A0%80` },
  { what: 'with bytes beyond Unicode', write: (name, value) => `${name}=${value}%F5%80%80%80` },
  { what: 'too long', write: (name) => `${name}=${'a'.repeat(513)}`, isOfValue: true },
  { what: 'much too long', write: (name) => `${name}=${'a'.repeat(7_000)}`, isOfValue: true },
]

function withMalformed({ endpoint, parameter }: (typeof parameters)[number], { write }: Malformation): string {
  const { [parameter]: value, ...rest } = endpoint.required()
  const written = write(parameter, encodeURIComponent(String(value)))
  return withQuery(endpoint.path, rest) + (written === '' ? '' : `&${written}`)
}

describe('every required parameter of every endpoint', () => {
  describe.each(parameters)('$endpoint.name: $parameter', (row) => {
    const malformed = malformations.filter(({ isOfValue }) => !(isOfValue && row.parameter in unknown))
    test.each(malformed)('is refused as invalid_argument when $what', async (malformation) => {
      expectError(await service.call(withMalformed(row, malformation)), 'invalid_argument')
    })
  })
})

describe('every code and token of every endpoint', () => {
  const rows = parameters.flatMap((row) =>
    Object.entries(unknown).flatMap(([parameter, type]) => (parameter === row.parameter ? { ...row, type } : [])),
  )
  describe.each(rows)('$endpoint.name: $parameter', ({ type, ...row }) => {
    const { endpoint, parameter } = row
    test.each(malformations.filter(({ isOfValue }) => isOfValue))('is unknown when $what', async (malformation) => {
      expectError(await service.call(withMalformed(row, malformation)), type)
    })

    test('that cannot be one is looked at after the appid', async () => {
      const query = { ...endpoint.required(), appid: 'nobody', [parameter]: 'a'.repeat(513) }
      expectError(await service.get(endpoint.path, query), 'invalid_appid')
    })
  })
})

describe('every endpoint', () => {
  test.each(endpoints)(
    '$name: refuses each documented optional parameter given twice',
    async ({ path, required, optional }) => {
      for (const name of optional) {
        expectError(await service.call(`${withQuery(path, required())}&${name}=1&${name}=1`), 'invalid_argument')
      }
    },
  )

  test.each(endpoints)('$name: ignores parameters it does not know', async ({ path, required }) => {
    const plain = await service.get(path, required())
    const unknown = [
      'lang=zh',
      'user_id=7',
      'lang=zh&lang=en',
      '__proto__=x',
      'constructor=x',
      'appid[]=x',
      'appid[0]=x',
      'x.y=1',
      '=',
      '=x',
      '&&',
      'toString',
    ]
    for (const extra of unknown) {
      const { code, type } = await service.call(`${withQuery(path, required())}&${extra}`)
      expect({ extra, code, type }).toEqual({ extra, code: plain.code, type: plain.type })
    }
  })

  const encode = (text: string) =>
    [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')

  test.each(endpoints)('$name: percent-decodes parameters once', async ({ path, required }) => {
    const twice = { ...required(), appid: encode(access.app.appid) } // encoded once more on its way
    expectError(await service.get(path, twice), 'invalid_appid')
  })

  test.each(endpoints)('$name: reads percent-encoded names and values', async ({ path, required }) => {
    const query = required()
    const plain = await service.get(path, query)
    const target = Object.entries(query)
      .map(([name, value]) => `${encode(name)}=${encode(String(value))}`)
      .join('&')
    const { code, type } = await service.call(`${path}?${target}`)
    expect({ code, type }).toEqual({ code: plain.code, type: plain.type })
  })

  test.each(endpoints)('$name: parameter names are case-sensitive', async ({ path, required }) => {
    const { appid, ...rest } = required()
    expectError(await service.get(path, { ...rest, APPID: appid }), 'invalid_argument')
  })

  test.each(parameters)('$endpoint.name: $parameter in a header or a cookie does not count', async (row) => {
    const { endpoint, parameter } = row
    const { [parameter]: given, ...rest } = endpoint.required()
    const value = String(given)
    const headers = { cookie: `${parameter}=${value}`, [parameter]: value, authorization: `Bearer ${value}` }
    const wrong = { ...rest, [parameter]: 'wrong' }
    expectError(await service.call(withQuery(endpoint.path, rest), { headers }), 'invalid_argument')
    const { code, type } = await service.get(endpoint.path, wrong)
    expect(code).not.toBe('OK')
    expect(await service.call(withQuery(endpoint.path, wrong), { headers })).toMatchObject({ code, type })
  })

  test.each(endpoints)('$name: an appid of garbage is unknown, not malformed', async ({ path, required }) => {
    const { appid: _, ...rest } = required()
    for (const garbage of ["' OR 1=1 --", '小明', '../../etc/passwd', '{{7*7}}', 'a'.repeat(128), '%s%n', '<script>']) {
      expectError(await service.get(path, { ...rest, appid: garbage }), 'invalid_appid')
    }
  })
})

describe('survey_id', () => {
  const bad = [
    '0',
    '-1',
    '+1',
    '1.0',
    '1e3',
    '0x10',
    '01',
    'abc',
    '1%20',
    '%31',
    '９',
    '9007199254740992',
    '9'.repeat(40),
    '1,2',
    '__proto__',
    'NaN',
  ]
  test.each(bad)('%s is refused as invalid_argument', async (id) => {
    expectError(await service.survey(access, encodeURI(id).replaceAll('%25', '%')), 'invalid_argument')
  })

  test.each(['1', '9007199254740991'])('%s is well-formed', async (id) => {
    expectError(await service.survey(access, id), 'survey_not_found')
  })
})
