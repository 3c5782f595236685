// A stock Firefox, driven by WebDriver BiDi, which it speaks itself. Debian: firefox-esr.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Tab } from './tab.js'

const CANDIDATES = [process.env.FIREFOX_PATH, '/usr/bin/firefox-esr', '/usr/bin/firefox']

/** Path of the browser to use; undefined when there is none. */
export const firefoxPath = CANDIDATES.find((path) => path !== undefined && existsSync(path))

/** A profile that asks nothing, and nobody on the network. */
const PREFERENCES = {
  'app.normandy.enabled': false,
  'app.update.disabledForTesting': true,
  'browser.shell.checkDefaultBrowser': false,
  'browser.startup.homepage_override.mstone': 'ignore',
  'datareporting.policy.dataSubmissionEnabled': false,
  'extensions.getAddons.cache.enabled': false,
  'intl.accept_languages': 'en-US',
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'services.settings.server': 'data:,#remote-settings-dummy/v1',
  'toolkit.telemetry.reportingpolicy.firstRun': false,
}

export async function openFirefox(): Promise<Tab> {
  if (firefoxPath === undefined) throw new Error('no Firefox found')
  const profile = await mkdtemp(path.join(tmpdir(), 'survey-auth-firefox-'))
  const lines = Object.entries(PREFERENCES).map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});`)
  await writeFile(path.join(profile, 'user.js'), lines.join('\n'))
  const child = spawn(
    firefoxPath,
    ['--headless', '--no-remote', '--profile', profile, '--remote-debugging-port', '0'],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  )
  const connection = await Connection.open(`${await addressOf(child)}/session`)
  await connection.send('session.new', { capabilities: { alwaysMatch: { acceptInsecureCerts: true } } })
  const { context } = await connection.send('browsingContext.create', { type: 'tab' })
  const target = { context }
  const evaluate = async (expression: string) => {
    const sent = { expression, target, awaitPromise: false, userActivation: true }
    const { result, exceptionDetails } = await connection.send('script.evaluate', sent)
    if (result === undefined) throw new Error(JSON.stringify(exceptionDetails))
    return result as { value?: unknown; sharedId?: string }
  }
  const perform = (...actions: object[]) => connection.send('input.performActions', { context, actions })
  const click = async (selector: string) => {
    const found = `(() => {
      const found = document.querySelector(${JSON.stringify(selector)})
      found.scrollIntoView({ block: 'center', behavior: 'instant' })
      return found
    })()`
    const { sharedId } = await evaluate(found)
    const origin = { type: 'element', element: { sharedId } }
    const actions = [
      { type: 'pointerMove', x: 0, y: 0, origin },
      { type: 'pointerDown', button: 0 },
      { type: 'pointerUp', button: 0 },
    ]
    await perform({ type: 'pointer', id: 'mouse', actions })
  }
  return {
    goto: (url) => connection.send('browsingContext.navigate', { context, url, wait: 'complete' }),
    reload: () => connection.send('browsingContext.reload', { context, wait: 'complete' }),
    back: () => connection.send('browsingContext.traverseHistory', { context, delta: -1 }),
    click,
    type: async (selector, text) => {
      await click(selector)
      const keys = [...text].flatMap((value) => ['keyDown', 'keyUp'].map((type) => ({ type, value })))
      await perform({ type: 'key', id: 'keyboard', actions: keys })
    },
    evaluate: async (expression) => (await evaluate(expression)).value,
    screenshot: async () => String((await connection.send('browsingContext.captureScreenshot', { context })).data),
    forget: () => connection.send('storage.deleteCookies', {}),
    close: async () => {
      const exit = once(child, 'exit')
      await connection.send('browser.close', {})
      await exit
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

/** Where it listens, as it says when it has started. */
function addressOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = ''
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString()
      const [, address] = /WebDriver BiDi listening on (ws:\S+)/.exec(said) ?? []
      if (address) resolve(address)
    })
    child.once('exit', (code) => reject(new Error(`Firefox ended with ${code}: ${said}`)))
  })
}

type Received = Readonly<Record<string, unknown>>

/** Commands and their answers; events are dropped. */
class Connection {
  readonly #socket: Socket
  readonly #waiting = new Map<number, { resolve(result: Received): void; reject(error: Error): void }>()
  #lastId = 0

  static open(address: string): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(address)
      socket.addEventListener('open', () => resolve(new Connection(socket)))
      socket.addEventListener('error', () => reject(new Error(`cannot connect to ${address}`)))
    })
  }

  constructor(socket: Socket) {
    this.#socket = socket
    socket.addEventListener('message', ({ data }) => this.#take(JSON.parse(String(data))))
  }

  send(method: string, params: object): Promise<Received> {
    const id = ++this.#lastId
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      this.#socket.send(JSON.stringify({ id, method, params }))
    })
  }

  #take({ id, result, error, message }: { id?: number; result?: Received; error?: string; message?: string }): void {
    const waiting = this.#waiting.get(id ?? 0)
    if (!waiting) return
    this.#waiting.delete(id ?? 0)
    if (result) waiting.resolve(result)
    else waiting.reject(new Error(`${error}: ${message}`))
  }
}

/** What is used of the WebSocket that is global from Node 22 on, and in Node 20 by the flag that vitest.config.ts sets. */
interface Socket {
  addEventListener(type: string, listener: (event: { readonly data?: unknown }) => void): void
  send(text: string): void
}
const { WebSocket } = globalThis as unknown as { WebSocket: new (address: string) => Socket }
