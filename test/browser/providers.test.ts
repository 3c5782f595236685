// Sign-ins at an OpenID Provider as people go through them: in Chromium, on pages of another origin.
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Clock } from '../harness/clock.js'
import { freePort } from '../harness/free-port.js'
import { authorizePath, type TestApp, tokensOf, type Verbs } from '../harness/verbs.js'
import { openService, type ServiceOptions } from '../harness.js'
import { openProvider, type TestProvider, writeProvidersFile } from '../oidc/start-provider.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
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
  async function place(
    env: Readonly<Record<string, string>> = {},
    { ids = ['corp'], ...options }: { ids?: string[] } & Pick<ServiceOptions, 'place'> = {},
  ) {
    const listed = Object.fromEntries(ids.map((id) => [id, provider]))
    const { file, remove } = writeProvidersFile(listed, { switch_account_prompt: 'login' })
    const service = await openService({ env: { OIDC_PROVIDERS_FILE: file, ...env }, ...options })
    remove()
    closing.push(() => service.backend.close())
    for (const id of ids) await provider.register(service.url, id)
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

  test.each([
    {
      javaScriptEnabled: true,
      locale: 'en',
      signInWith: 'Sign in with Provider corp',
      connect: 'Connect Provider home',
    },
    { javaScriptEnabled: false, locale: 'zh-CN', signInWith: '使用Provider corp登录', connect: '关联Provider home' },
  ])(
    'a user without a password, whose sign-in is not of the last 5 minutes, signs in anew and goes on to link, with JavaScript: $javaScriptEnabled',
    async ({ javaScriptEnabled, locale, signInWith, connect }) => {
      const clock = new Clock()
      clock.set({ ms: Date.now() - clock.now(), minutes: -6 }) // the provider says by its own when somebody signed in
      const { service } = await place({}, { ids: ['corp', 'home'], place: { dataDir: temporaryDirectory(), clock } })
      const { page } = await openPage(browser, { javaScriptEnabled, locale })
      const button = (name: string) => page.getByRole('button', { name })
      await page.goto(`${service.url}/connect/account`)
      await button(signInWith).click()
      await signInThere(page, 'ben')
      await button(connect).waitFor()
      clock.advance({ minutes: 6 })
      await page.reload()
      expect(await button(connect).count()).toBe(0)
      await button(signInWith).click()
      await signInThere(page, 'ben')
      expect(page.url()).toBe(`${service.url}/connect/account`)
      await button(connect).click()
      await signInThere(page, 'ben')
      await page.getByRole('status').waitFor()
      expect(await button(connect).count()).toBe(0)
    },
  )

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
