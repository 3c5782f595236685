// The admin port while the main thread, which here is the test's own, is busy.
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { expect, onTestFinished, test } from 'vitest'
import { type AdminHttpOptions, startAdminHttp } from '../../bin/telemetry/admin-http.js'

async function open(options: Partial<AdminHttpOptions> = {}) {
  const lost: unknown[] = []
  const admin = await startAdminHttp({
    host: '127.0.0.1',
    port: 0,
    isRunning: () => true,
    notReady: async () => [],
    metrics: { contentType: 'text/plain; version=0.0.4', text: async () => 'counted 1\n' },
    onLost: (error) => lost.push(error),
    ...options,
  })
  onTestFinished(() => admin.close())
  const url = `http://127.0.0.1:${admin.port}`
  const get = async (path: string, init?: RequestInit) => {
    const answer = await fetch(url + path, init)
    return { status: answer.status, type: answer.headers.get('content-type'), text: await answer.text() }
  }
  return { admin, url, get, lost }
}

/** Polls from a thread of its own; returns the statuses received since the last call. */
async function startProber(url: string) {
  const worker = new Worker(
    `const { parentPort, workerData } = require('node:worker_threads')
     let statuses = []
     parentPort.on('message', () => { parentPort.postMessage(statuses); statuses = [] })
     const ask = async () => { statuses.push((await fetch(workerData)).status); setTimeout(ask, 5) }
     ask()`,
    { eval: true, workerData: `${url}/healthz` },
  )
  onTestFinished(() => worker.terminate().then(() => undefined))
  return async () => {
    worker.postMessage('statuses')
    const [statuses] = await once(worker, 'message')
    return statuses as number[]
  }
}

/** Blocks this thread. */
function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

const all = (statuses: readonly number[]) => [...new Set(statuses)]

test('answers /healthz, /readyz and /metrics, and nothing else', async () => {
  const { get } = await open({ notReady: async () => ['survey database: unavailable', 'second'] })
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
    const { admin } = await open({ notReady: () => sleep(50, []), metrics: later })
    const prober = connect({ port: admin.port, host: '127.0.0.1', allowHalfOpen: true }).setEncoding('latin1')
    prober.end(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
    let raw = ''
    for await (const data of prober) raw += data
    expect(raw).toMatch(/^HTTP\/1\.1 200 /)
  },
)

test('a check that fails is a 500 without the reason', async () => {
  const { get } = await open({ notReady: () => Promise.reject(new Error('secret')) })
  expect(await get('/readyz')).toMatchObject({ status: 500, text: 'failed\n' })
  expect((await get('/healthz')).status).toBe(200)
})

test('says that it is alive while the main thread is busy', async () => {
  const { url } = await open()
  const statuses = await startProber(url)
  await expect.poll(async () => all(await statuses())).toEqual([200])
  block(1_000)
  const meanwhile = await statuses()
  expect(all(meanwhile)).toEqual([200])
  expect(meanwhile.length, 'answers while it was').toBeGreaterThan(3)
})

test('says that the main thread hangs, until it runs again', async () => {
  const { url, get } = await open({ hungAfterMs: 300 })
  const statuses = await startProber(url)
  await expect.poll(async () => all(await statuses())).toEqual([200])
  block(3_000) // it checks once a second
  expect(all(await statuses())).toEqual([200, 503])
  await expect.poll(async () => (await get('/healthz')).status).toBe(200)
})

test.each(['starts', 'stops'])('a main thread that %s is not taken for a hung one', async (what) => {
  let isRunning = what === 'stops'
  const { url } = await open({ hungAfterMs: 300, isRunning: () => isRunning })
  const statuses = await startProber(url)
  if (what === 'stops') {
    isRunning = false
    await new Promise((resolve) => setTimeout(resolve, 1_500)) // until it has checked
  }
  await statuses()
  block(2_500)
  expect(all(await statuses())).toEqual([200])
})

test('a port in use fails with EADDRINUSE', async () => {
  const { admin } = await open()
  const lost: unknown[] = []
  const again = open({ port: admin.port, onLost: (error) => lost.push(error) })
  await expect(again).rejects.toMatchObject({ code: 'EADDRINUSE' })
  expect(lost).toEqual([])
})

test('the unexpected end of its thread is reported once, with the reason', async () => {
  const metrics = { contentType: 'no header has\n', text: async () => '' } // the thread does not expect it
  const { get, lost } = await open({ metrics })
  await expect(get('/metrics')).rejects.toThrow()
  await expect.poll(() => lost).toMatchObject([{ code: 'ERR_INVALID_CHAR' }])
  await expect(get('/healthz')).rejects.toThrow()
  expect(lost).toHaveLength(1)
})

test('ends when it is closed, without being reported as lost', async () => {
  const { admin, get, lost } = await open()
  await admin.close()
  await expect(get('/healthz')).rejects.toThrow()
  expect(lost).toEqual([])
})
