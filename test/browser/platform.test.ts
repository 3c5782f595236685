// Signing in at the platform's own page in Chromium, with the service and the platform in processes apart, over mTLS: what people
// do, and what attackers try.
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type OverMtls, openOverMtls } from '../harness/over-mtls.js'
import { authorizePath } from '../harness/verbs.js'
import { type Callback, startCallback } from './callback.js'
import { chromiumPath, launchChromium, openPage } from './chromium.js'

type Name = 'ming' | 'lan'
const nicknames = { ming: '小明', lan: 'Lan' } as const

describe.skipIf(chromiumPath === undefined)('sign-ins at the platform in Chromium', { timeout: 90_000 }, () => {
  let place: OverMtls
  let browser: Browser
  let callback: Callback
  let app: { appid: string; redirectUri: string }

  beforeAll(async () => {
    place = await openOverMtls()
    browser = await launchChromium()
    callback = await startCallback()
    const { redirectUri } = callback
    const created = await place.admin.createApp({ name: 'Chart Maker', redirectUris: [redirectUri] })
    app = { appid: created.app?.appid ?? '', redirectUri }
  }, 60_000)
  afterAll(async () => {
    await browser.close()
    await place.close()
    await callback.close()
  })

  const link = (state = 'kept') => `${place.url}${authorizePath(app, state)}#wj_redirect`

  /** A browser of its own, at the platform's page with the challenge of this link. */
  async function arrive(state?: string, options: BrowserContextOptions = {}): Promise<Page> {
    const { page } = await openPage(browser, options)
    await page.goto(link(state))
    await page.waitForURL(`${place.platformUrl}/sign-in?sign_in_challenge=*`)
    return page
  }

  async function fill(page: Page, name: Name): Promise<void> {
    await page.fill('input[name=name]', name)
    await page.fill('input[name=password]', `${name}-password`)
    await page.getByRole('button', { name: 'Sign in' }).click()
  }

  async function enter(page: Page, name: Name): Promise<void> {
    await fill(page, name)
    await page.waitForLoadState()
  }

  /** Signs in there, and keeps the return link instead of following it. */
  async function returnLinkOf(page: Page, name: Name): Promise<string> {
    let kept = ''
    const form = `${place.platformUrl}/sign-in`
    await page.route(form, async (route) => {
      kept = (await route.fetch({ maxRedirects: 0 })).headers().location ?? ''
      return route.fulfill({ status: 204 })
    })
    await fill(page, name)
    await expect.poll(() => kept).toContain('/connect/sign-in/return?verifier=')
    await page.unroute(form)
    return kept
  }

  const shown = async (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor()

  async function isSignedIn(page: Page): Promise<boolean> {
    const cookies = await page.context().cookies(place.url)
    return cookies.some(({ name }) => name.endsWith('sa_session'))
  }

  test.each([true, false])(
    'a person signs in there, consents here and comes to the app, with JavaScript: %s',
    async (javaScriptEnabled) => {
      const page = await arrive('abc', { javaScriptEnabled })
      await enter(page, 'lan')
      await shown(page, 'Lan')
      expect(page.url()).toBe(link('abc'))
      await page.getByRole('button', { name: 'Confirm' }).click()
      await page.waitForURL('**/welcome')
      expect([callback.last()?.get('state'), callback.visits.at(-1)?.referer]).toEqual(['abc', undefined])
    },
  )

  test('the pages are in the language of the browser all the way', async () => {
    const page = await arrive('zh', { locale: 'zh-CN' })
    expect(new URL(page.url()).searchParams.get('lang')).toBe('zh')
    await enter(page, 'ming')
    await shown(page, '申请访问您的问卷')
  })

  test('cancelling there is a refusal at the app', async () => {
    const page = await arrive('no')
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.waitForURL('**/welcome')
    expect(`${callback.last()}`).toBe('error=access_denied&state=no')
  })

  test('switching the account asks there who it is, though somebody is signed in there', async () => {
    const page = await arrive('switched')
    await enter(page, 'ming')
    await page.getByRole('button', { name: 'Switch account' }).click()
    await page.waitForURL(`${place.platformUrl}/sign-in?sign_in_challenge=*`)
    await enter(page, 'lan')
    await shown(page, 'Lan')
    expect(page.url()).toBe(link('switched'))
  })

  test('signing out here stays here; signing out everywhere there ends the session here', async () => {
    const page = await arrive()
    await enter(page, 'ming')
    await page.goto(`${place.url}/connect/apps`)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await shown(page, 'You are signed out')
    expect(page.url()).toBe(`${place.url}/connect/apps`)
    await page.goto(link()) // signed in there: nobody is asked
    await shown(page, nicknames.ming)
    await page.goto(place.platformUrl)
    await page.getByRole('button', { name: 'Sign out everywhere' }).click()
    await shown(page, 'Nobody is signed in')
    await page.goto(`${place.url}/connect/apps`)
    await page.waitForURL(`${place.platformUrl}/sign-in?*`)
  })

  test('Back from consent leads to the same consent again', async () => {
    const page = await arrive('back')
    await enter(page, 'ming')
    await shown(page, nicknames.ming)
    await page.goBack()
    await page.reload()
    await shown(page, nicknames.ming)
    expect(page.url()).toBe(link('back'))
  })

  test('two tabs at once come back each to what it was for', async () => {
    const first = await arrive('first')
    const second = await first.context().newPage()
    await second.goto(link('second'))
    await enter(second, 'lan')
    await enter(first, 'lan')
    for (const [tab, state] of [
      [first, 'first'],
      [second, 'second'],
    ] as const) {
      await shown(tab, 'Lan')
      expect(tab.url()).toBe(link(state))
    }
  })

  describe('an attack fails:', () => {
    test('a victim signs in with the challenge of an attacker, whose sign-in is unharmed', async () => {
      const attacker = await arrive('attack')
      const victim = await arrive('victim')
      await victim.goto(attacker.url())
      await enter(victim, 'ming')
      await shown(victim, 'Begun in another browser')
      expect(await isSignedIn(victim)).toBe(false)
      await attacker.goto(victim.url()) // has it from the victim, within its minute
      await shown(attacker, nicknames.ming)
    })

    test('a victim opens the return link of an attacker, and is not signed in as the attacker', async () => {
      const attacker = await arrive('csrf')
      const back = await returnLinkOf(attacker, 'lan')
      for (const victim of [(await openPage(browser)).page, await arrive('own')]) {
        await victim.goto(back)
        await shown(victim, 'Begun in another browser')
        expect(await isSignedIn(victim)).toBe(false)
        await victim.locator('main a.button').click()
        await victim.waitForURL(`${place.platformUrl}/sign-in?*`)
      }
      await attacker.goto(back)
      await shown(attacker, 'Lan')
    })

    test('a return link is read from the history and used again, in this browser and in another', async () => {
      const page = await arrive('history')
      const back = await returnLinkOf(page, 'lan')
      await page.goto(back)
      await shown(page, 'Lan')
      await page.context().clearCookies({ name: /sa_session$/ })
      await page.goto(back)
      await shown(page, 'This sign-in is over')
      const { page: other } = await openPage(browser)
      await other.goto(back)
      await shown(other, 'Begun in another browser')
      for (const each of [page, other]) expect(await isSignedIn(each)).toBe(false)
    })

    test('a session is planted before the sign-in: the victim gets another, and the planted one ends', async () => {
      const attacker = await arrive('plant')
      await enter(attacker, 'lan')
      await shown(attacker, 'Lan')
      const planted = (await attacker.context().cookies(place.url)).find(({ name }) => name.endsWith('sa_session'))
      if (!planted) throw new Error('no session to plant')
      const victim = await arrive('planted')
      const back = await returnLinkOf(victim, 'ming')
      await victim.context().addCookies([planted])
      await victim.goto(back)
      await shown(victim, nicknames.ming)
      await attacker.goto(`${place.url}/connect/apps`) // is signed in at the platform, not here
      const now = (await attacker.context().cookies(place.url)).find(({ name }) => name === planted.name)
      expect(now?.value).not.toBe(planted.value)
    })

    test('the platform accepts a second person for one challenge: that person begins anew, and the first stays', async () => {
      const first = await arrive('twice')
      const challenge = first.url()
      const back = await returnLinkOf(first, 'ming')
      const { page: second } = await openPage(browser)
      await second.goto(challenge)
      await enter(second, 'lan')
      await shown(second, 'Lan') // by a challenge of its own
      expect(second.url()).toBe(link('twice'))
      await first.goto(back)
      await shown(first, nicknames.ming)
      const { events } = await place.admin.listAuditEvents({})
      const contradicted = events.find(({ kind }) => kind === 'sign_in.contradicted')
      expect(contradicted).toMatchObject({ actor: 'sign_in', actorId: 'DNS:platform.test' })
    })

    test('a return link names another place to go on: the way back is the stored one', async () => {
      const page = await arrive('stored')
      const back = await returnLinkOf(page, 'lan')
      await page.goto(`${back}&restart_uri=${encodeURIComponent(callback.redirectUri)}&redirect_uri=//evil.example`)
      await shown(page, 'Lan')
      expect(page.url()).toBe(link('stored'))
    })
  })

  test('whom an operator disables is told so by the platform or by us, whoever learns it first', async () => {
    const page = await arrive()
    const back = await returnLinkOf(page, 'lan')
    const { page: before } = await openPage(browser)
    await before.goto(link())
    await enter(before, 'lan')
    await place.admin.setUserDisabled({ externalId: '1002', disabled: true })
    await page.goto(back)
    await shown(page, 'This account is disabled')
    await page.goto(link())
    await shown(page, 'You may not sign in here')
    await place.admin.setUserDisabled({ externalId: '1002', disabled: false })
  })
})
