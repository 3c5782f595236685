import { randomBytes } from 'node:crypto'
import { type Attributes, type Context, type Span, type SpanOptions, type Tracer, trace } from '@opentelemetry/api'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { startService } from '../harness.js'

interface Recorded {
  readonly name: string
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  /** 1: the parent is sampled. */
  readonly parentFlags: number | undefined
  readonly attributes: Attributes
  isEnded: boolean
}

/** An SDK that records the spans it is given. */
const spans: Recorded[] = []
const sdk: Tracer = {
  startSpan(name: string, options: SpanOptions = {}, context?: Context): Span {
    const parent = context && trace.getSpanContext(context)
    const recorded: Recorded = {
      name,
      traceId: parent?.traceId ?? randomBytes(16).toString('hex'),
      spanId: randomBytes(8).toString('hex'),
      parentSpanId: parent?.spanId,
      parentFlags: parent?.traceFlags,
      attributes: { ...options.attributes },
      isEnded: false,
    }
    spans.push(recorded)
    const span = {
      spanContext: () => ({ traceId: recorded.traceId, spanId: recorded.spanId, traceFlags: parent?.traceFlags ?? 1 }),
      setAttribute: (key: string, value: string | number) => Object.assign(recorded.attributes, { [key]: value }),
      setAttributes: (attributes: Attributes) => Object.assign(recorded.attributes, attributes),
      setStatus: (status: { message?: string }) => Object.assign(recorded.attributes, { status: status.message }),
      end: () => {
        recorded.isEnded = true
      },
    }
    return span as unknown as Span
  },
  startActiveSpan: () => {
    throw new Error('not used')
  },
}

beforeEach(() => {
  spans.length = 0
  trace.setGlobalTracerProvider({ getTracer: () => sdk })
})
afterEach(() => trace.disable())

const REMOTE = { traceId: '4bf92f3577b34da6a3ce929d0e0e4736', spanId: '00f067aa0ba902b7' }

describe('spans', () => {
  test.each([1, 0])(
    'of one request are one trace, from the proxy in front through every RPC, with its flags: %i',
    async (flags) => {
      const service = await startService({ env: { TRUSTED_PROXIES: '127.0.0.1' } })
      const { app, tokens } = await service.grantAccess()
      spans.length = 0
      const query = new URLSearchParams({ appid: app.appid, access_token: tokens.access_token, openid: tokens.openid })
      const traceparent = `00-${REMOTE.traceId}-${REMOTE.spanId}-0${flags}`
      const response = await fetch(`${service.backend.url}/api/surveys?${query}`, { headers: { traceparent } })
      const { request_id } = (await response.json()) as { request_id: string }

      const [request, list, verify] = [
        'GET surveys',
        'surveyauth.v1.SurveyService/ListSurveys',
        'surveyauth.v1.TokenService/VerifyAccessToken',
      ].map((name) => spans.find((span) => span.name === name))
      expect(spans.map(({ parentFlags }) => parentFlags)).toEqual([flags, flags, flags])
      expect(spans.every(({ traceId, isEnded }) => traceId === REMOTE.traceId && isEnded)).toBe(true)
      expect([request?.parentSpanId, list?.parentSpanId, verify?.parentSpanId]).toEqual([
        REMOTE.spanId,
        request?.spanId,
        list?.spanId,
      ])
      expect(spans.map(({ attributes }) => attributes.request_id)).toEqual([request_id, request_id, request_id])
    },
  )

  test('begin a trace of their own when the client is not a trusted proxy, whatever it claims', async () => {
    const service = await startService({ env: { TRUSTED_PROXIES: '192.0.2.1' } })
    const headers = { traceparent: `00-${REMOTE.traceId}-${REMOTE.spanId}-01`, 'x-forwarded-for': '192.0.2.1' }
    await fetch(`${service.backend.url}/api/oauth2/user?appid=x&access_token=x&openid=x`, { headers })
    expect(spans.map(({ name }) => name)).toContain('surveyauth.v1.TokenService/GetAuthorizedUser')
    expect(spans[0]).toMatchObject({ name: 'GET user', parentSpanId: undefined })
    expect(spans.map(({ traceId }) => traceId)).not.toContain(REMOTE.traceId)
  })

  test('begin a trace of their own when the proxy has none, or one that is malformed', async () => {
    const service = await startService({ env: { TRUSTED_PROXIES: '127.0.0.1' } })
    for (const traceparent of ['', '00-xyz-1-01', `00-${'0'.repeat(32)}-${REMOTE.spanId}-01`]) {
      spans.length = 0
      await fetch(`${service.backend.url}/api/oauth2/user?appid=x`, { headers: { traceparent } })
      expect(spans[0]).toMatchObject({ name: 'GET user', parentSpanId: undefined, isEnded: true })
    }
  })

  test('name a failure and hold no credential', async () => {
    const service = await startService()
    const { app, tokens } = await service.grantAccess()
    const query = new URLSearchParams({ appid: app.appid, access_token: `${tokens.access_token}x`, openid: 'o' })
    await fetch(`${service.backend.url}/api/oauth2/user?${query}`)
    const request = spans.findLast(({ name }) => name === 'GET user')
    expect(request?.attributes).toMatchObject({ 'http.response.status_code': 401, 'error.type': 'invalid_token' })
    expect(request?.attributes, 'which is its caller’s').not.toHaveProperty('status')
    const call = spans.findLast(({ name }) => name.endsWith('/GetAuthorizedUser'))
    expect(call?.attributes).toMatchObject({ 'rpc.grpc.status_code': 16, status: 'unauthenticated' })
    const text = JSON.stringify(spans)
    for (const secret of [app.secret, tokens.access_token, tokens.refresh_token]) expect(text).not.toContain(secret)
  })
  test('say when a failure is the fault of this service', async () => {
    const service = await startService()
    const { app, tokens } = await service.grantAccess()
    const showSurveys = await service.backend.sabotage.hideSurveys()
    spans.length = 0
    const query = new URLSearchParams({ appid: app.appid, access_token: tokens.access_token, openid: tokens.openid })
    await fetch(`${service.backend.url}/api/surveys?${query}`).finally(showSurveys)
    expect(Object.fromEntries(spans.map(({ name, attributes }) => [name, attributes.status]))).toEqual({
      'GET surveys': 'internal_server_error',
      'surveyauth.v1.SurveyService/ListSurveys': 'internal',
      'surveyauth.v1.TokenService/VerifyAccessToken': undefined,
    })
  })
})
