// The operators' HTTP server: /healthz, /readyz, /metrics. It has no part in the protocol and is not for the public.
import { createServer, type Server } from 'node:http'

export interface AdminHttpOptions {
  /** Why this process should get no requests now; empty when it is ready. */
  readonly notReady: () => Promise<readonly string[]>
  readonly metrics: { readonly contentType: string; text(): Promise<string> }
}

interface Page {
  readonly status: number
  readonly type: string
  readonly body: string
}

const PLAIN = 'text/plain; charset=utf-8'

/** Not yet listening. */
export function createAdminHttp(options: AdminHttpOptions): Server {
  const pages: Readonly<Record<string, () => Promise<Page>>> = {
    // The event loop turns: nothing else is asked, so that an outage of the database restarts nobody.
    '/healthz': async () => ({ status: 200, type: PLAIN, body: 'ok\n' }),
    '/readyz': async () => {
      const reasons = await options.notReady()
      if (reasons.length === 0) return { status: 200, type: PLAIN, body: 'ready\n' }
      return { status: 503, type: PLAIN, body: `${reasons.join('\n')}\n` }
    },
    '/metrics': async () => ({ status: 200, type: options.metrics.contentType, body: await options.metrics.text() }),
  }

  async function pageOf(method: string | undefined, path: string): Promise<Page> {
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined
    if (!page) return { status: 404, type: PLAIN, body: 'here are /healthz, /readyz and /metrics\n' }
    if (method !== 'GET' && method !== 'HEAD') return { status: 405, type: PLAIN, body: 'use GET\n' }
    return page().catch(() => ({ status: 500, type: PLAIN, body: 'failed\n' }))
  }

  const server = createServer(async (request, response) => {
    const { status, type, body } = await pageOf(request.method, (request.url ?? '').split('?', 1)[0] ?? '')
    response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' })
    response.end(request.method === 'HEAD' ? undefined : body)
  })
  server.headersTimeout = 5_000
  server.requestTimeout = 10_000
  return server
}
