import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Access, Verbs } from '../harness/verbs.js'
import { openService } from '../harness.js'

// No input gives a 5xx, a hang or an answer that is not an envelope. The harness checks the envelope of every answer.

let service: Verbs
let access: Access
beforeAll(async () => {
  service = await openService()
  access = await service.grantAccess()
})
afterAll(() => service.backend.close())

const PATHS = [
  '/api/oauth2/access_token',
  '/api/oauth2/refresh_token',
  '/api/oauth2/user',
  '/api/surveys',
  '/api/surveys/1',
] as const
const NAMES = [
  'appid',
  'secret',
  'code',
  'grant_type',
  'refresh_token',
  'access_token',
  'openid',
  'page',
  'per_page',
  'redirect_uri',
  'state',
]

/** Text that may stand in a request target: node:http refuses the rest before it is sent. */
const targetText = fc.string({
  unit: fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCharCode(code)),
  maxLength: 60,
})
const encoded = fc
  .uint8Array({ maxLength: 20 })
  .map((bytes) => [...bytes].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''))

function known(): fc.Arbitrary<string> {
  const { app, tokens } = access
  return fc.constantFrom(
    app.appid,
    app.secret,
    tokens.access_token,
    tokens.refresh_token,
    tokens.openid,
    'authorization_code',
    'refresh_token',
    '1',
    '100',
  )
}

describe('fuzzing', () => {
  test.each(PATHS)('%s answers every query with an envelope below 500', async (path) => {
    const value = fc.oneof(
      targetText,
      encoded,
      known(),
      fc.constantFrom('', '%', '%00', '9'.repeat(400), '-1', '[]', '{}', 'null'),
    )
    const pair = fc
      .tuple(fc.oneof(fc.constantFrom(...NAMES), targetText), value)
      .map(([name, text]) => `${name}=${text}`)
    await fc.assert(
      fc.asyncProperty(fc.array(pair, { maxLength: 8 }), async (pairs) => {
        const { status } = await service.call(`${path}?${pairs.join('&').replaceAll('#', '')}`)
        expect(status).toBeLessThan(500)
      }),
      { numRuns: 150 },
    )
  })

  test('every path under /api/ answers with an envelope below 500', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(targetText, encoded), async (text) => {
        const { status } = await service.call(`/api/${text.replaceAll('#', '')}`)
        expect(status).toBeLessThan(500)
      }),
      { numRuns: 150 },
    )
  })

  test('every byte sequence on a connection gets answers below 500 or a closed connection', async () => {
    const mutation = fc.record({
      at: fc.nat(120),
      bytes: fc.uint8Array({ minLength: 1, maxLength: 6 }),
      drop: fc.nat(4),
    })
    const base = Buffer.from(
      `GET /api/surveys?appid=${access.app.appid} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Test: y\r\n\r\n`,
    )
    await fc.assert(
      fc.asyncProperty(fc.array(mutation, { minLength: 1, maxLength: 4 }), async (mutations) => {
        let bytes = base
        for (const { at, bytes: inserted, drop } of mutations) {
          bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from(inserted), bytes.subarray(at + drop)])
        }
        for (const { status } of await service.raw(bytes, 300)) expect(status).toBeLessThan(500)
      }),
      { numRuns: 60 },
    )
  })

  test.each([
    '/connect/oauth2/authorize',
    '/connect/apps',
    '/connect/sign-in',
    '/connect/sign-out',
    '/connect/apps/disconnect',
    '/',
  ])('%s answers every query and every form with a page below 500', async (path) => {
    const visitor = await service.signedIn(access.user)
    const body = fc.array(
      fc.tuple(
        fc.oneof(fc.constantFrom(...NAMES, 'csrf', 'decision', 'username', 'password', 'grant_id'), targetText),
        fc.oneof(targetText, encoded),
      ),
      { maxLength: 8 },
    )
    await fc.assert(
      fc.asyncProperty(body, fc.boolean(), async (pairs, isPost) => {
        const text = pairs
          .map(([name, value]) => `${name}=${value}`)
          .join('&')
          .replaceAll('#', '')
        const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: service.url }
        const reply = isPost
          ? await visitor.request(path, { method: 'POST', body: text, headers })
          : await visitor.request(`${path}?${text}`)
        expect(reply.status).toBeLessThan(500)
        expect(reply.headers.get('location') ?? '/connect').toMatch(/^\/connect/)
      }),
      { numRuns: 60 },
    )
  })

  test('afterwards the grant still works', async () => {
    expect((await service.user(access)).code).toBe('OK')
  })
})
