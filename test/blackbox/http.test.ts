import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectError } from '../harness/envelope.js'
import type { ErrorType } from '../harness/errors.js'
import { type Access, type Verbs, withQuery } from '../harness/verbs.js'
import { openService, startService } from '../harness.js'

let service: Verbs
let access: Access
beforeAll(async () => {
  service = await openService()
  access = await service.grantAccess()
})
afterAll(() => service.backend.close())

const API_PATHS = [
  '/api/oauth2/access_token',
  '/api/oauth2/refresh_token',
  '/api/oauth2/user',
  '/api/surveys',
  '/api/surveys/1',
]
const OTHER_METHODS = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND']

function profileTarget(): string {
  const { app, tokens } = access
  return withQuery('/api/oauth2/user', { appid: app.appid, access_token: tokens.access_token, openid: tokens.openid })
}

describe('methods', () => {
  test.each(API_PATHS)('%s answers GET only', async (path) => {
    for (const method of OTHER_METHODS) {
      const refused = await service.call(path, { method })
      expectError(refused, 'method_not_allowed')
      expect(refused.message).toBe('the path takes GET only') // some libraries show an error's text and no header
    }
    const head = await service.visitor().request(path, { method: 'HEAD' })
    expect({ status: head.status, allow: head.headers.get('allow'), text: head.text }).toEqual({
      status: 405,
      allow: 'GET',
      text: '',
    })
  })

  test('no method but GET consumes a code', async () => {
    const code = await service.issueCode(access.app, access.user)
    const { appid, secret } = access.app
    const target = withQuery('/api/oauth2/access_token', { appid, secret, code, grant_type: 'authorization_code' })
    for (const method of ['HEAD', ...OTHER_METHODS]) {
      expect((await service.visitor().request(target, { method })).status).toBe(405)
    }
    expect((await service.exchange(access.app, code)).code).toBe('OK')
  })

  test('parameters in a form body do not count', async () => {
    const body = profileTarget().split('?')[1] ?? ''
    const headers = { 'content-type': 'application/x-www-form-urlencoded', 'content-length': String(body.length) }
    expectError(await service.call('/api/oauth2/user', { body, headers }), 'invalid_argument')
    expectError(await service.call('/api/oauth2/user', { method: 'POST', body, headers }), 'method_not_allowed')
  })

  test('a 401 has no WWW-Authenticate header', async () => {
    const target = withQuery('/api/surveys', { appid: access.app.appid, access_token: 'wrong', openid: 'wrong' })
    const { status, headers } = await service.visitor().request(target)
    expect([status, headers.get('www-authenticate')]).toEqual([401, undefined])
  })

  test('a method override header overrides nothing', async () => {
    const headers = { 'x-http-method-override': 'GET', 'x-method-override': 'GET' }
    expectError(await service.call(profileTarget(), { method: 'POST', headers }), 'method_not_allowed')
  })
})

describe('paths', () => {
  const variants = [
    '/api',
    '/api/',
    '/api/oauth2',
    '/api/oauth2/',
    '/api/oauth2/user/',
    '/api//oauth2/user',
    '/api/oauth2//user',
    '/api/./oauth2/user',
    '/api/x/../oauth2/user',
    '/api/%6fauth2/user',
    '/api/oauth2%2fuser',
    '/api/oauth2/user%00',
    '/api/oauth2/user%20',
    '/api/oauth2/user.json',
    '/api/oauth2/user;x=1',
    '/api/OAuth2/user',
    '/api/oauth2/USER',
    '/api/oauth2\\user',
    '/api/surveys/',
    '/api/surveys/1/',
    '/api/surveys/1/x',
    '/api/surveys//1',
    '/api/v1/surveys',
    '/api/__proto__',
    '/api/constructor',
    '/api/%',
    '/api/%zz',
    '/api/%ff',
  ]
  test.each(variants)('%s is no_route', async (path) => {
    expectError(await service.call(path + (profileTarget().split('oauth2/user')[1] ?? '')), 'no_route')
  })

  test.each([
    '//api/oauth2/user',
    '/%61pi/oauth2/user',
    '/API/oauth2/user',
    '/./api/oauth2/user',
    '/x/../api/oauth2/user',
    '/connect/../api/oauth2/user',
  ])('%s never reaches the profile', async (path) => {
    const reply = await service.visitor().request(path + (profileTarget().split('oauth2/user')[1] ?? ''))
    expect(reply.status).toBe(404)
    expect(reply.text).not.toContain(access.tokens.openid)
  })

  test('a target in absolute form is served by its path, and its host is ignored', async () => {
    const [reply] = await service.raw(
      `GET http://evil.example${profileTarget()} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`,
    )
    expect(reply?.status).toBe(200)
    expect(reply?.text).not.toContain('evil.example')
  })
})

describe('sizes and syntax', () => {
  test('a URL of 8 KiB is read and a longer one is 414 in the envelope', async () => {
    const target = profileTarget()
    const filled = (length: number) => `${target}&x=${'a'.repeat(length - target.length - 3)}`
    expect((await service.call(filled(8192))).code).toBe('OK')
    const answer = await service.call(filled(8193))
    expectError(answer, 'invalid_argument')
    expect(answer.status).toBe(414)
  })

  test.each([9_000, 15_000, 40_000, 200_000])('a URL of %i bytes is 414 or 431 in the envelope', async (length) => {
    const [reply] = await service.raw(`GET /api/surveys?x=${'a'.repeat(length)} HTTP/1.1\r\nHost: h\r\n\r\n`)
    if (reply === undefined) throw new Error('no answer')
    const answer = service.envelope(reply, '/api/surveys')
    expectError(answer, 'invalid_argument')
    expect([414, 431]).toContain(answer.status)
  })

  test('headers beyond 16 KiB are 431 in the envelope', async () => {
    const [reply] = await service.raw(
      `GET ${profileTarget()} HTTP/1.1\r\nHost: h\r\nX-Long: ${'a'.repeat(17_000)}\r\n\r\n`,
    )
    if (reply === undefined) throw new Error('no answer')
    const answer = service.envelope(reply, '/api/oauth2/user')
    expectError(answer, 'invalid_argument')
    expect(answer.status).toBe(431)
  })

  const malformed: readonly { readonly what: string; readonly bytes: string | Buffer }[] = [
    { what: 'a line that is no request', bytes: 'hello\r\n\r\n' },
    { what: 'a space in the target', bytes: 'GET /api/oauth2/user?a=b c HTTP/1.1\r\nHost: h\r\n\r\n' },
    { what: 'a bare carriage return in a header', bytes: 'GET /api/surveys HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n' },
    { what: 'a space before the colon', bytes: 'GET /api/surveys HTTP/1.1\r\nHost : h\r\n\r\n' },
    {
      what: 'two lengths that differ',
      bytes: 'GET /api/surveys HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab',
    },
    {
      what: 'a length and chunks',
      bytes: 'GET /api/surveys HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    },
    { what: 'a length that is no number', bytes: 'GET /api/surveys HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n' },
    { what: 'no Host', bytes: 'GET /api/surveys HTTP/1.1\r\n\r\n' },
    { what: 'NUL in the target', bytes: 'GET /api/surveys?\0 HTTP/1.1\r\nHost: h\r\n\r\n' },
    { what: 'a TLS hello', bytes: Buffer.from('16030100a5010000a10303', 'hex') },
    { what: 'an unknown version', bytes: 'GET /api/surveys HTTP/3.7\r\nHost: h\r\n\r\n' },
  ]
  test.each(malformed)('$what is refused in the envelope', async ({ bytes }) => {
    const replies = await service.raw(bytes)
    expect(replies).toHaveLength(1)
    for (const reply of replies) expectError(service.envelope(reply, '/api/surveys'), 'invalid_argument')
  })

  const strange: readonly { readonly line: string; readonly path: string; readonly type: ErrorType }[] = [
    { line: 'BREW /api/surveys?appid=a HTTP/1.1', path: '/api/surveys', type: 'method_not_allowed' },
    { line: 'get http://a.example/api/oauth2/user HTTP/1.0', path: '/api/oauth2/user', type: 'method_not_allowed' },
    { line: 'BREW /api/coffee HTTP/1.1', path: '/api/coffee', type: 'no_route' },
    { line: 'BREW /api/surveys HTTP/2.0', path: '/api/surveys', type: 'invalid_argument' },
    { line: 'BR EW /api/surveys HTTP/1.1', path: '/api/surveys', type: 'invalid_argument' },
  ]
  test.each(strange)('an unknown method is answered like any other: $line', async ({ line, path, type }) => {
    const [reply] = await service.raw(`${line}\r\nHost: h\r\n\r\n`)
    if (reply === undefined) throw new Error('no answer')
    expectError(service.envelope(reply, path), type)
  })

  test('bytes beyond ASCII in a query are refused as invalid_argument', async () => {
    const [reply] = await service.raw(
      Buffer.concat([
        Buffer.from('GET /api/surveys?appid='),
        Buffer.from([0xe5, 0xb0, 0x8f]),
        Buffer.from(' HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n'),
      ]),
    )
    if (reply === undefined) throw new Error('no answer')
    expectError(service.envelope(reply, '/api/surveys'), 'invalid_argument')
  })

  test('a request with an Expect header gets an answer', async () => {
    const replies = await service.raw(
      `GET ${profileTarget()} HTTP/1.1\r\nHost: h\r\nExpect: something\r\nConnection: close\r\n\r\n`,
    )
    expect(replies).toHaveLength(1)
    expect([200, 417]).toContain(replies[0]?.status)
  })
})

describe('one connection', () => {
  test('the body of a GET is never read as the next request', async () => {
    const smuggled = 'GET /api/smuggled HTTP/1.1\r\nHost: h\r\n\r\n'
    const replies = await service.raw(
      `GET ${profileTarget()} HTTP/1.1\r\nHost: h\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}` +
        'GET /api/second HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n',
    )
    const types = replies.map(
      (reply, at) => service.envelope(reply, at === 0 ? '/api/oauth2/user' : '/api/second').type,
    )
    // Either the body is read to its end and the second request answered, or the connection is closed after the first.
    expect([['', 'no_route'], ['']]).toContainEqual(types)
  })

  test('a chunked body of a GET is never read as the next request', async () => {
    const smuggled = 'GET /api/smuggled HTTP/1.1\r\nHost: h\r\n\r\n'
    const replies = await service.raw(
      `GET ${profileTarget()} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n` +
        'GET /api/second HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n',
    )
    expect(replies.length).toBeLessThanOrEqual(2)
    expect(replies[0]?.status).toBe(200)
  })

  test('pipelined requests are answered in order, each with its own request_id', async () => {
    const one = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: h\r\n${more}\r\n`
    const replies = await service.raw(
      one(profileTarget()) + one('/api/x') + one(profileTarget(), 'Connection: close\r\n'),
    )
    expect(replies.map((reply) => reply.status)).toEqual([200, 404, 200])
    expect(new Set(replies.map((reply) => service.envelope(reply, '/api/oauth2/user-pipelined').requestId)).size).toBe(
      3,
    )
  })
})

describe('headers', () => {
  test('another origin is granted nothing: no Access-Control header is sent', async () => {
    const headers = { origin: 'https://evil.example', 'access-control-request-method': 'GET' }
    const reply = await service.visitor().request(profileTarget(), { headers })
    expect([...reply.headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([])
  })

  test('Host and X-Forwarded headers appear in no page, link or cookie', async () => {
    const headers = {
      host: 'evil.example',
      'x-forwarded-host': 'evil.example',
      'x-forwarded-proto': 'https',
      forwarded: 'host=evil.example;proto=https',
    }
    for (const path of ['/connect/apps', `/connect/oauth2/authorize?appid=${access.app.appid}`, '/nowhere', '/']) {
      const reply = await service.visitor().request(path, { headers })
      expect(JSON.stringify([...reply.headers]) + reply.text).not.toContain('evil.example')
      expect(reply.headers.get('set-cookie') ?? '').not.toMatch(/; secure/i)
    }
  })

  test('with an https PUBLIC_URL cookies are Secure and __Host-, and HSTS is sent', async () => {
    const secure = await startService({ env: { PUBLIC_URL: 'https://auth.example' } })
    const reply = await secure.visitor().request('/connect/apps')
    expect(reply.headers.get('strict-transport-security')).toMatch(/max-age=\d{7,}/)
    const cookies = (reply.headers.get('set-cookie') ?? '').split('\n').filter((line) => line !== '')
    expect(cookies.length).toBeGreaterThan(0)
    for (const cookie of cookies) {
      expect(cookie).toMatch(/^__Host-/)
      for (const flag of [/; secure/i, /; httponly/i, /; samesite=lax/i, /; path=\/(;|$)/i])
        expect(cookie).toMatch(flag)
      expect(cookie).not.toMatch(/; domain/i)
    }
  })

  test('over http cookies are HttpOnly and SameSite=Lax, and HSTS is not sent', async () => {
    const reply = await service.visitor().request('/connect/apps')
    expect(reply.headers.has('strict-transport-security')).toBe(false)
    expect(reply.headers.get('set-cookie')).toMatch(/; httponly/i)
    expect(reply.headers.get('set-cookie')).toMatch(/; samesite=lax/i)
  })

  test('pages are never stored, never framed, never sniffed, send no referrer to others and run nothing inline', async () => {
    const visitor = service.visitor()
    const pages = [
      await service.authorizationPage(visitor, access.app, access.user),
      await visitor.open('/connect/apps'),
      await visitor.open('/connect/oauth2/authorize'),
    ]
    for (const page of pages) {
      expect(page.headers.get('cache-control')).toContain('no-store')
      expect(page.headers.get('referrer-policy')).toBe('same-origin')
      expect(page.headers.get('x-content-type-options')).toBe('nosniff')
      const policy = page.headers.get('content-security-policy') ?? ''
      for (const part of ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"])
        expect(policy).toContain(part)
      expect(policy).not.toContain('unsafe-inline')
      for (const { name, attributes } of page.html.tags) {
        expect(Object.keys(attributes).filter((key) => key.startsWith('on') || key === 'style')).toEqual([])
        if (name === 'script') expect(attributes.src).toMatch(/^\/connect\//)
      }
    }
  })
})

describe('slow and silent clients', () => {
  test('a client that never finishes its headers is cut off, and 100 of them do not slow an honest one', async () => {
    const patient = await startService({
      env: { HTTP_HEADERS_TIMEOUT_SECONDS: '1', HTTP_REQUEST_TIMEOUT_SECONDS: '2' },
    })
    const stalled = Array.from({ length: 100 }, () => patient.raw('GET /api/surveys HTTP/1.1\r\nHost: h\r\nX-', 8_000))
    const startedAt = performance.now()
    expectError(await patient.call('/api/none'), 'no_route')
    expect(performance.now() - startedAt).toBeLessThan(1_000)
    await Promise.all(stalled)
    expect(performance.now() - startedAt).toBeLessThan(7_500)
  })
})
