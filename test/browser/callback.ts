// A third-party app on another origin.
import { createServer, type Server } from 'node:http'

export interface Callback {
  readonly redirectUri: string
  /** What came with each visit. */
  readonly visits: readonly { readonly query: URLSearchParams; readonly referer: string | undefined }[]
  /** Query of the last visit. */
  last(): URLSearchParams | undefined
  /** Address of a page that sends a form of its own to `action`. */
  attack(attack: Attack): string
  close(): Promise<void>
}

export interface Attack {
  /** Of referrers. */
  readonly policy: string
  /** `Set-Cookie` lines; cookies do not keep ports apart. */
  readonly cookies: readonly string[]
  readonly action: string
  readonly fields: Readonly<Record<string, string>>
}

/** Its callback redirects once more, as many do. */
export function startCallback(): Promise<Callback> {
  const visits: { query: URLSearchParams; referer: string | undefined }[] = []
  let prepared: Attack | undefined
  const server: Server = createServer((request, response) => {
    const { pathname, searchParams: query } = new URL(request.url ?? '/', 'http://callback')
    const html = { 'content-type': 'text/html' }
    if (pathname === '/callback') {
      visits.push({ query, referer: request.headers.referer })
      response.writeHead(302, { location: '/welcome' }).end()
    } else if (pathname === '/attack' && prepared) {
      const { policy, cookies, action, fields } = prepared
      const inputs = Object.entries(fields).map(
        ([name, value]) => `<input type="hidden" name="${name}" value="${value}">`,
      )
      response
        .writeHead(200, { ...html, 'set-cookie': [...cookies], 'referrer-policy': policy })
        .end(
          `<!doctype html><title>Win</title><form method="post" action="${action}">${inputs.join('')}<button>Win</button></form>`,
        )
    } else response.writeHead(200, html).end('<!doctype html><title>Welcome</title><p>Welcome back')
  })
  return new Promise((resolve, reject) => {
    server.on('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      if (typeof address !== 'object' || address === null) throw new Error('a TCP server has an address')
      const origin = `http://127.0.0.1:${address.port}`
      resolve({
        redirectUri: `${origin}/callback`,
        visits,
        last: () => visits.at(-1)?.query,
        attack: (attack) => {
          prepared = attack
          return `${origin}/attack`
        },
        close: () => new Promise((done) => server.close(() => done())),
      })
      server.unref()
    })
  })
}
