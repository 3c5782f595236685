// The operators' HTTP server, in a thread of its own: a liveness probe is answered even while the main thread is busy, and
// learns when its event loop no longer turns. JavaScript, since it must run beside sources and dist/ alike.
import { createServer } from 'node:http'
import { parentPort, workerData } from 'node:worker_threads'

const LOOK_EVERY_MS = 1_000
const PLAIN = 'text/plain; charset=utf-8'

/** @type {{ host: string, port: number, hungAfterMs: number }} */
const { host, port, hungAfterMs } = workerData

/** Questions to the main thread that it has not answered. */
const asked = new Map()
let questions = 0

/** @returns {Promise<import('./admin-http.ts').Answer>} */
function ask(path) {
  questions += 1
  const id = questions
  return new Promise((resolve) => {
    asked.set(id, resolve)
    parentPort.postMessage({ type: 'question', id, path })
  })
}

parentPort.on('message', ({ id, answer }) => {
  asked.get(id)?.(answer)
  asked.delete(id)
})

/** Of the main thread, which may take its time to start and stop, for a long migration for example. */
let isRunning = false
/** When the main thread was asked the question it has not answered yet. */
let lookedAt

async function look() {
  lookedAt = performance.now()
  const answer = await ask('/healthz')
  isRunning = answer.isRunning
  lookedAt = undefined
  setTimeout(look, LOOK_EVERY_MS)
}

/** Only the event loop is checked, so that an outage of the database does not restart this process. */
function health() {
  const busyMs = lookedAt === undefined ? 0 : performance.now() - lookedAt
  if (!isRunning || busyMs < hungAfterMs) return { status: 200, type: PLAIN, body: 'ok\n' }
  return { status: 503, type: PLAIN, body: `the event loop has not turned for ${Math.floor(busyMs / 1000)} s\n` }
}

const pages = {
  '/healthz': health,
  '/readyz': () => ask('/readyz'),
  '/metrics': () => ask('/metrics'),
}

async function pageOf(method, path) {
  const page = Object.hasOwn(pages, path) ? pages[path] : undefined
  if (!page) return { status: 404, type: PLAIN, body: 'here are /healthz, /readyz and /metrics\n' }
  if (method !== 'GET' && method !== 'HEAD') return { status: 405, type: PLAIN, body: 'use GET\n' }
  return page()
}

const server = createServer(async (request, response) => {
  const { status, type, body } = await pageOf(request.method, request.url.split('?', 1)[0])
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' })
  response.end(request.method === 'HEAD' ? undefined : body)
})
Object.assign(server, { httpAllowHalfOpen: true }) // a client that sends FIN after its request, as `nc -N` does, is answered
server.headersTimeout = 5_000
server.requestTimeout = 10_000
const onFailed = ({ code, message }) => parentPort.postMessage({ type: 'failed', code, message })
server.once('error', onFailed)
server.listen(port, host, () => {
  server.off('error', onFailed) // a later one ends this thread, and the main thread learns of it
  parentPort.postMessage({ type: 'listening', port: server.address().port })
  look()
})
