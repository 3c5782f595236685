// WebKitGTK's MiniBrowser, driven by WebDriver (W3C) on a screen in memory. Debian: webkit2gtk-driver and xvfb.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../harness/free-port.js'
import type { Tab } from './tab.js'

const DRIVER = '/usr/bin/WebKitWebDriver'
const SCREEN = '/usr/bin/Xvfb'

export const hasWebKit = existsSync(DRIVER) && existsSync(SCREEN)

const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf' // the name under which a reference travels (W3C WebDriver §11.1)

export async function openWebKit(): Promise<Tab> {
  const screen = spawn(SCREEN, ['-displayfd', '3', '-screen', '0', '1280x1024x24', '-nolisten', 'tcp'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  })
  const [number] = await once(screen.stdio[3] as Readable, 'data')
  const port = await freePort()
  const env = { ...process.env, DISPLAY: `:${String(number).trim()}` }
  const driver = spawn(DRIVER, ['-p', String(port)], { env, stdio: 'ignore' })
  const address = `http://127.0.0.1:${port}`
  await untilReady(address)
  const created = await call('POST', `${address}/session`, {
    capabilities: { alwaysMatch: { acceptInsecureCerts: true } },
  })
  const session = `${address}/session/${(created as { sessionId: string }).sessionId}`
  const element = async (selector: string) => {
    const found = await call('POST', `${session}/element`, { using: 'css selector', value: selector })
    return `${session}/element/${(found as Record<string, string>)[ELEMENT]}`
  }
  const evaluate = (expression: string) =>
    call('POST', `${session}/execute/sync`, { script: `return ${expression}`, args: [] })
  return {
    goto: (url) => call('POST', `${session}/url`, { url }),
    reload: () => call('POST', `${session}/refresh`, {}),
    back: () => call('POST', `${session}/back`, {}),
    click: (selector) => evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`), // a click of the driver can get lost
    type: async (selector, text) => call('POST', `${await element(selector)}/value`, { text }),
    evaluate,
    screenshot: async () => String(await call('GET', `${session}/screenshot`)),
    forget: () => call('DELETE', `${session}/cookie`),
    close: async () => {
      await call('DELETE', session)
      for (const child of [driver, screen]) await end(child)
    },
  }
}

async function call(method: string, url: string, body?: object): Promise<unknown> {
  const response = await fetch(url, { method, ...(body ? { body: JSON.stringify(body) } : {}) })
  const { value } = (await response.json()) as { value: unknown }
  if (!response.ok) throw new Error(`${method} ${url}: ${JSON.stringify(value)}`)
  return value
}

async function untilReady(driver: string): Promise<void> {
  for (;;) {
    const isReady = await fetch(`${driver}/status`).then(
      ({ ok }) => ok,
      () => false,
    )
    if (isReady) return
    await sleep(50)
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return
  child.kill()
  await once(child, 'exit')
}
