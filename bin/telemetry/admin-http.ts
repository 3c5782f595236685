// The operators' HTTP server: /healthz, /readyz, /metrics. It has no part in the protocol and is not for the public.
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'

export interface AdminHttpOptions {
  readonly host: string
  /** 0 takes a free one. */
  readonly port: number
  readonly readiness: () => Promise<Readiness>
  readonly metrics: { readonly contentType: string; text(): Promise<string> }
}

export interface Readiness {
  /** Whether this process should get requests now. */
  readonly isReady: boolean
  /** What it lacks, in lines; where it is ready, what only some requests need. */
  readonly lacks: readonly string[]
}

export interface AdminHttp {
  readonly port: number
  close(): void
}

interface Page {
  readonly status: number
  readonly type: string
  readonly body: string
}

const MAX_CONNECTIONS = 32

/** Fulfils when it listens. @throws Error with the `code` of the system when it cannot */
export function startAdminHttp(options: AdminHttpOptions): Promise<AdminHttp> {
  const pages: Readonly<Record<string, () => Page | Promise<Page>>> = {
    '/healthz': () => plain(200, 'ok\n'), // nothing is asked: an outage of a database must not restart this process
    '/readyz': () => options.readiness().then(readinessPage),
    '/metrics': async () => ({ status: 200, type: options.metrics.contentType, body: await options.metrics.text() }),
  }

  async function pageFor({ method, url = '' }: IncomingMessage): Promise<Page> {
    const [path = ''] = url.split('?', 1)
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined
    if (!page) return plain(404, 'here are /healthz, /readyz and /metrics\n')
    return method === 'GET' || method === 'HEAD' ? page() : plain(405, 'use GET\n')
  }

  const server = createServer(async (request, response) => {
    const { status, type, body } = await pageFor(request).catch(() => plain(500, 'failed\n'))
    response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' })
    response.end(request.method === 'HEAD' ? undefined : body)
  })
  Object.assign(server, { httpAllowHalfOpen: true }) // a client that sends FIN after its request, as `nc -N` does, is answered
  server.headersTimeout = 5_000
  server.requestTimeout = 10_000
  closeOldest(server)

  return new Promise((resolve, reject) => {
    server.on('error', reject)
    server.listen(options.port, options.host, () => {
      resolve({
        port: (server.address() as AddressInfo).port,
        close() {
          server.close()
          server.closeAllConnections()
        },
      })
    })
  })
}

/** Beyond MAX_CONNECTIONS the oldest goes, not the newest: who asks is answered, whoever keeps connections open. */
function closeOldest(server: Server): void {
  const open = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    open.add(socket.once('close', () => open.delete(socket)))
    const [oldest] = open
    if (open.size <= MAX_CONNECTIONS || !oldest) return
    open.delete(oldest) // at once: it is not closed before others have come
    oldest.destroy()
  })
}

function readinessPage({ isReady, lacks }: Readiness): Page {
  const lines = isReady ? ['ready', ...lacks] : lacks
  return plain(isReady ? 200 : 503, `${lines.join('\n')}\n`)
}

function plain(status: number, body: string): Page {
  return { status, type: 'text/plain; charset=utf-8', body }
}
