// A real browser for the tests. Without one they are skipped; the test runner says so, and on CI that is a failure.
import { existsSync } from 'node:fs'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { onTestFinished } from 'vitest'
import type { Tab } from './tab.js'

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

/** For the scenarios that every engine runs. */
export async function openChromium(): Promise<Tab> {
  const browser = await launchChromium()
  const context = await browser.newContext({ locale: 'en-US', ignoreHTTPSErrors: true })
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  return {
    goto: (url) => page.goto(url),
    reload: () => page.reload(),
    back: () => page.goBack(),
    click: (selector) => page.click(selector, { noWaitAfter: true }),
    type: (selector, text) => page.fill(selector, text),
    evaluate: (expression) => page.evaluate(expression),
    screenshot: async () => (await page.screenshot()).toString('base64'),
    forget: () => context.clearCookies(),
    close: () => browser.close(),
  }
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
