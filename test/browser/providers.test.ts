// Sign-ins at an OpenID Provider as people go through them: in Chromium, on pages of another origin.
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { authorizePath, type TestApp, tokensOf, type Verbs } from '../harness/verbs.js'
import { openService } from '../harness.js'
import { openProvider, type TestProvider, writeProvidersFile } from '../oidc/start-provider.js'
import { type Callback, startCallback } from './callback.js'
import { chromiumPath, launchChromium, openPage } from './chromium.js'

describe.skipIf(chromiumPath === undefined)('sign-ins at a provider in Chromium', { timeout: 90_000 }, () => {
  let provider: TestProvider
  let callback: Callback
  let browser: Browser
  const closing: (() => Promise<unknown>)[] = []

  beforeAll(async () => {
    provider = await openProvider()
    callback = await startCallback()
    browser = await launchChromium()
    closing.push(
      () => provider.stop(),
      () => callback.close(),
      () => browser.close(),
    )
    await provider.knows({ sub: 'li', name: 'Li Wei' })
    await provider.knows({ sub: 'ben', name: 'Ben' })
  })
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
  })

  /** With one app. */
  async function place(env: Readonly<Record<string, string>> = {}) {
    const { file, remove } = writeProvidersFile({ corp: provider }, { switch_account_prompt: 'login' })
    const service = await openService({ env: { OIDC_PROVIDERS_FILE: file, ...env } })
    remove()
    closing.push(() => service.backend.close())
    await provider.register(service.url, 'corp')
    return { service, app: await service.createApp({ name: 'Chart Maker', redirectUri: callback.redirectUri }) }
  }

  const link = (service: Verbs, app: TestApp, state: string) => `${service.url}${authorizePath(app, state)}#wj_redirect`

  async function signInThere(page: Page, name: string): Promise<void> {
    await page.waitForURL(`${provider.issuer}/**`)
    await page.fill('input[name=login]', name)
    await page.fill('input[name=password]', 'any')
    await page.click('button[type=submit]')
    await page.waitForLoadState()
  }

  async function confirm(page: Page): Promise<URLSearchParams> {
    await page.getByRole('button', { name: 'Confirm' }).click()
    await page.waitForURL('**/welcome')
    return callback.last() ?? new URLSearchParams()
  }

  test.each([true, false])(
    'the button beside the password leads there and back to the consent, with JavaScript: %s',
    async (javaScriptEnabled) => {
      const { service, app } = await place()
      const { page } = await openPage(browser, { javaScriptEnabled })
      await page.goto(link(service, app, 'abc'))
      expect(await page.locator('input[name=password]').count()).toBe(1)
      await page.getByRole('button', { name: 'Provider corp' }).click()
      await signInThere(page, 'li')
      await page.getByText('Li Wei').waitFor()
      expect(page.url()).toBe(link(service, app, 'abc'))
      const answered = await confirm(page)
      expect(answered.get('state')).toBe('abc')
      tokensOf(await service.exchange(app, answered.get('code') ?? ''))
    },
  )

  test('the only way is gone at once; switching the account asks there for another', async () => {
    const { service, app } = await place({ PASSWORD_SIGN_IN: 'off' })
    const { page } = await openPage(browser)
    await page.goto(link(service, app, 'first'))
    await signInThere(page, 'li')
    await page.getByText('Li Wei').waitFor()
    await page.getByRole('button', { name: 'Switch account' }).click()
    await signInThere(page, 'ben')
    await page.getByText('Ben').waitFor()
    expect((await confirm(page)).get('state')).toBe('first')
  })

  test('giving up there tells the app, as refusing access does', async () => {
    const { service, app } = await place()
    const { page } = await openPage(browser)
    await page.goto(link(service, app, 'no'))
    await page.getByRole('button', { name: 'Provider corp' }).click()
    await page.getByText('Cancel').click()
    await page.waitForURL('**/welcome')
    expect(`${callback.last()}`).toBe('error=access_denied&state=no')
  })

  test('a provider that is down has a page with a way on, to the same request and its password form, and the service is ready', async () => {
    const { service, app } = await place({ ADMIN_PORT: String(await freePort()) })
    const user = await service.createUser()
    await provider.stop()
    const { page } = await openPage(browser)
    await page.goto(link(service, app, 'kept'))
    await page.getByRole('button', { name: 'Provider corp' }).click()
    await page.getByRole('heading', { name: 'Sign-in is not available right now' }).waitFor()
    expect((await fetch(`${service.backend.adminUrl}/readyz`)).status).toBe(200)
    await provider.start()
    await page.getByRole('link', { name: 'Try again' }).click()
    await page.fill('input[name=username]', user.username)
    await page.fill('input[name=password]', user.password)
    await page.press('input[name=password]', 'Enter')
    expect((await confirm(page)).get('state')).toBe('kept')
  })
})
