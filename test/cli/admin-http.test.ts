import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { type AdminHttpOptions, startAdminHttp } from '../../bin/telemetry/admin-http.js'

async function open(options: Partial<AdminHttpOptions> = {}) {
  const admin = await startAdminHttp({
    host: '127.0.0.1',
    port: 0,
    readiness: async () => ({ isReady: true, lacks: [] }),
    metrics: { contentType: 'text/plain; version=0.0.4', text: async () => 'counted 1\n' },
    ...options,
  })
  onTestFinished(() => admin.close())
  const get = async (path: string, init?: RequestInit) => {
    const answer = await fetch(`http://127.0.0.1:${admin.port}${path}`, init)
    return { status: answer.status, type: answer.headers.get('content-type'), text: await answer.text() }
  }
  return { admin, get }
}

test('answers /healthz, /readyz and /metrics, and nothing else', async () => {
  const { get } = await open({
    readiness: async () => ({ isReady: false, lacks: ['survey database: unavailable', 'second'] }),
  })
  const plain = 'text/plain; charset=utf-8'
  expect(await get('/healthz?verbose')).toEqual({ status: 200, type: plain, text: 'ok\n' })
  expect(await get('/readyz')).toEqual({ status: 503, type: plain, text: 'survey database: unavailable\nsecond\n' })
  expect(await get('/metrics')).toEqual({ status: 200, type: 'text/plain; version=0.0.4', text: 'counted 1\n' })
  expect(await get('/metrics', { method: 'HEAD' })).toMatchObject({ status: 200, text: '' })
  expect((await get('/readyz', { method: 'POST' })).status).toBe(405)
  for (const path of ['/', '/healthz/', '/constructor', '/__proto__']) expect((await get(path)).status).toBe(404)
})

test.each(['/healthz', '/readyz', '/metrics'])(
  'answers a prober that closes its side after its request (%s)',
  async (path) => {
    const later = { contentType: 'text/plain', text: () => sleep(50, 'counted 1\n') }
    const { admin } = await open({ readiness: () => sleep(50, { isReady: true, lacks: [] }), metrics: later })
    const prober = connect({ port: admin.port, host: '127.0.0.1', allowHalfOpen: true }).setEncoding('latin1')
    prober.end(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
    let raw = ''
    for await (const data of prober) raw += data
    expect(raw).toMatch(/^HTTP\/1\.1 200 /)
  },
)

test('a process that is ready names what only some requests need', async () => {
  const { get } = await open({ readiness: async () => ({ isReady: true, lacks: ['survey provider: unavailable'] }) })
  expect(await get('/readyz')).toMatchObject({ status: 200, text: 'ready\nsurvey provider: unavailable\n' })
})

test('a check that fails is a 500 without the reason', async () => {
  const { get } = await open({ readiness: () => Promise.reject(new Error('secret')) })
  expect(await get('/readyz')).toMatchObject({ status: 500, text: 'failed\n' })
  expect((await get('/healthz')).status).toBe(200)
})

test('a port in use fails with EADDRINUSE', async () => {
  const { admin } = await open()
  await expect(open({ port: admin.port })).rejects.toMatchObject({ code: 'EADDRINUSE' })
})

test('ends when it is closed, whoever is connected', async () => {
  const { admin, get } = await open()
  const prober = connect(admin.port, '127.0.0.1')
  await get('/healthz')
  admin.close()
  await new Promise((resolve) => prober.once('close', resolve).resume())
  await expect(get('/healthz')).rejects.toThrow()
})
