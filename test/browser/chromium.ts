// A real browser for the tests. Without one they are skipped; the test runner says so, and on CI that is a failure.
import { existsSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { onTestFinished } from 'vitest'

const CANDIDATES = [
  process.env.CHROMIUM_PATH,
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
]

/** Path of the browser to use; undefined when there is none. */
export const chromiumPath = CANDIDATES.find((path) => path !== undefined && existsSync(path))

const ARGS = [
  '--no-sandbox', // CI runs as root in a container
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** A name that resolves to this machine in these browsers, which they do not treat as loopback. */
export const OTHER_NAME = 'auth.test'

export function launchChromium(): Promise<Browser> {
  if (chromiumPath === undefined) throw new Error('no chromium found')
  const args = [...ARGS, `--host-resolver-rules=MAP ${OTHER_NAME} 127.0.0.1`]
  return chromium.launch({ executablePath: chromiumPath, args })
}

export interface OpenedPage {
  readonly page: Page
  /** What the page wrote to the console, security policy violations included. */
  readonly console: string[]
}

/** A page in a browser profile of its own, closed when the test is over. */
export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<OpenedPage> {
  const context = await browser.newContext({ locale: 'en-US', ...options })
  onTestFinished(() => context.close())
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  const lines: string[] = []
  page.on('console', (message) => lines.push(`${message.type()}: ${message.text()}`))
  page.on('pageerror', (error) => lines.push(`error: ${error.message}`))
  return { page, console: lines }
}

/** A third-party app's callback that redirects once more, as many do. */
export interface Callback {
  readonly redirectUri: string
  /** The queries of all visits. */
  readonly visits: readonly URLSearchParams[]
  /** Query of the last visit. */
  last(): URLSearchParams | undefined
  close(): Promise<void>
}

export function startCallback(): Promise<Callback> {
  const visits: URLSearchParams[] = []
  const server: Server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://callback')
    if (url.pathname === '/callback') {
      visits.push(url.searchParams)
      response.writeHead(302, { location: '/welcome' }).end()
    } else {
      response
        .writeHead(200, { 'content-type': 'text/html' })
        .end('<!doctype html><title>Welcome</title><p>Welcome back')
    }
  })
  return new Promise((resolve, reject) => {
    server.on('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      if (typeof address !== 'object' || address === null) throw new Error('a TCP server has an address')
      resolve({
        redirectUri: `http://127.0.0.1:${address.port}/callback`,
        visits,
        last: () => visits.at(-1),
        close: () => new Promise((done) => server.close(() => done())),
      })
      server.unref()
    })
  })
}
