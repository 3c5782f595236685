// The operators' HTTP server: /healthz, /readyz, /metrics. It has no part in the protocol and is not for the public. It runs
// in a thread of its own (admin-thread.js), which asks here for what only this thread knows.
import { Worker } from 'node:worker_threads'
import { SIDE_THREAD } from '../../services/storage/side-thread.js'
import { packageFile } from '../package-root.js'

export interface AdminHttpOptions {
  readonly host: string
  /** 0 takes a free one. */
  readonly port: number
  /** Whether the start is over and the shutdown has not begun: only then must the event loop keep turning. */
  readonly isRunning: () => boolean
  /** Why this process should get no requests now; empty when it is ready. */
  readonly notReady: () => Promise<readonly string[]>
  readonly metrics: { readonly contentType: string; text(): Promise<string> }
  /** Called when the thread has ended by itself: from then on, operators get no answer. */
  readonly onLost: (error: unknown) => void
  /** How long the event loop may be busy before /healthz says so, in ms. */
  readonly hungAfterMs?: number
}

export interface AdminHttp {
  readonly port: number
  close(): Promise<void>
}

/** What the thread is told. */
export interface Answer {
  readonly isRunning: boolean
  readonly status: number
  readonly type: string
  readonly body: string
}

type FromThread =
  | { readonly type: 'listening'; readonly port: number }
  | { readonly type: 'failed'; readonly code: string; readonly message: string }
  | { readonly type: 'question'; readonly id: number; readonly path: string }

/** No turn takes this long, except on a machine where everything else has stopped too. */
const HUNG_AFTER_MS = 10_000
const PLAIN = 'text/plain; charset=utf-8'

/** Fulfils when it listens. @throws Error with the `code` of the system when it cannot */
export function startAdminHttp(options: AdminHttpOptions): Promise<AdminHttp> {
  const { host, port, hungAfterMs = HUNG_AFTER_MS } = options
  const thread = new Worker(packageFile('bin/telemetry/admin-thread.js'), {
    ...SIDE_THREAD,
    workerData: { host, port, hungAfterMs },
  })
  let isListening = false
  async function close(): Promise<void> {
    isListening = false
    await thread.terminate()
  }

  async function answerTo(path: string): Promise<Answer> {
    const page = await pageOf(options, path).catch(() => ({ status: 500, type: PLAIN, body: 'failed\n' }))
    return { ...page, isRunning: options.isRunning() }
  }

  return new Promise((resolve, reject) => {
    const onLost = (error: unknown) => {
      reject(error)
      if (isListening) options.onLost(error)
      isListening = false
    }
    thread.on('error', onLost)
    thread.on('exit', () => onLost(new Error('the thread of the admin port has ended')))
    thread.on('message', async (message: FromThread) => {
      if (message.type === 'question') {
        thread.postMessage({ id: message.id, answer: await answerTo(message.path) })
      } else if (message.type === 'listening') {
        isListening = true
        resolve({ port: message.port, close })
      } else {
        reject(Object.assign(new Error(message.message), { code: message.code }))
        await close()
      }
    })
  })
}

async function pageOf(options: AdminHttpOptions, path: string): Promise<Omit<Answer, 'isRunning'>> {
  switch (path) {
    case '/readyz': {
      const reasons = await options.notReady()
      if (reasons.length === 0) return { status: 200, type: PLAIN, body: 'ready\n' }
      return { status: 503, type: PLAIN, body: `${reasons.join('\n')}\n` }
    }
    case '/metrics':
      return { status: 200, type: options.metrics.contentType, body: await options.metrics.text() }
    default:
      return { status: 200, type: PLAIN, body: 'ok\n' }
  }
}
