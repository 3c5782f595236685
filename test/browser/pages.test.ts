import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { authorizePath, type TestApp, type TestUser, tokensOf, type Verbs } from '../harness/verbs.js'
import { openService, startService } from '../harness.js'
import { type Callback, startCallback } from './callback.js'
import { chromiumPath, launchChromium, OTHER_NAME, openPage } from './chromium.js'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

let service: Verbs
let browser: Browser
let callback: Callback
let app: TestApp
let user: TestUser

describe.skipIf(chromiumPath === undefined)('the pages in Chromium', { timeout: 90_000 }, () => {
  beforeAll(async () => {
    service = await openService()
    browser = await launchChromium()
    callback = await startCallback()
    app = await service.createApp({ name: 'Chart Maker', redirectUri: callback.redirectUri, readsAnswers: true })
    user = await service.createUser({ username: 'ming' })
  })
  afterAll(async () => {
    await browser.close()
    await service.backend.close()
  })

  const link = (state?: string) => `${service.url}${authorizePath(app, state)}#wj_redirect`

  async function signIn(page: Page, { username, password } = user): Promise<void> {
    await page.fill('input[name=username]', username)
    await page.fill('input[name=password]', password)
    await page.press('input[name=password]', 'Enter')
    await page.waitForLoadState()
  }

  async function confirm(page: Page, button = 'Confirm'): Promise<URLSearchParams | undefined> {
    await page.getByRole('button', { name: button }).click()
    await page.waitForURL('**/welcome')
    return callback.last()
  }

  async function exchangeLast(): Promise<void> {
    tokensOf(await service.exchange(app, callback.last()?.get('code') ?? ''))
  }

  test('signing in and confirming leads to the app, through a callback that redirects again', async () => {
    const { page, console } = await openPage(browser)
    await page.goto(link('abc123'))
    await signIn(page)
    expect((await confirm(page))?.get('state')).toBe('abc123')
    await exchangeLast()
    expect(console).toEqual([])
  })

  test('an app that opens them in a popup keeps its handle, and the callback can reach the opener', async () => {
    const { page } = await openPage(browser)
    const appAddress = new URL('/welcome', callback.redirectUri).href
    await page.goto(appAddress)
    const opened = page.waitForEvent('popup')
    await page.evaluate(`
      opened = window.open(${JSON.stringify(link('popup'))})
      addEventListener('message', ({ data }) => document.body.append(data))
    `)
    const popup = await opened
    await signIn(popup)
    await confirm(popup)
    expect(await page.evaluate('opened.closed')).toBe(false)
    await popup.evaluate("opener.postMessage('arrived', '*')")
    await page.getByText('arrived').waitFor()
  })

  test('reloading after a wrong password, and going back later, sends nothing again and loses nothing', async () => {
    const { page } = await openPage(browser)
    await page.goto(link('reloaded'))
    await signIn(page, { ...user, password: 'wrong password' })
    expect(page.url()).toBe(link('reloaded'))
    await page.reload()
    expect(await page.getByRole('alert').count()).toBe(0)
    await signIn(page, { ...user, password: 'wrong password' })
    await signIn(page)
    await page.goBack()
    expect((await confirm(page))?.get('state')).toBe('reloaded')
  })

  test('a page that a browser shows again as it was left is asked for again, so that after signing out it tells nobody who was there', async () => {
    const { page } = await openPage(browser)
    await page.goto(`${service.url}/connect/apps`)
    await signIn(page)
    await page.waitForSelector('form[action*="/connect/sign-out"]')
    await page.context().clearCookies() // as if signed out in another tab
    await page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))") // Chromium keeps no such page
    await page.waitForSelector('input[name=password]')
  })

  test('everything can be done by keyboard alone', async () => {
    const { page } = await openPage(browser)
    await page.goto(link('keys'))
    await focusByTab(page, 'input[name=username]')
    await page.keyboard.type(user.username)
    await page.keyboard.press('Tab')
    await page.keyboard.type(user.password)
    await page.keyboard.press('Enter')
    await page.waitForSelector('button[value=confirm]')
    await focusByTab(page, 'button[value=confirm]')
    await page.keyboard.press('Enter')
    await page.waitForURL('**/welcome')
    expect(callback.last()?.get('state')).toBe('keys')
    await exchangeLast()
  })

  test('everything works with JavaScript off', async () => {
    const { page } = await openPage(browser, { javaScriptEnabled: false })
    await page.goto(link('nojs'))
    await signIn(page)
    expect((await confirm(page))?.get('state')).toBe('nojs')
    await exchangeLast()
  })

  test('everything works over plain http under a name of the local network', async () => {
    const port = String(await freePort())
    const url = `http://${OTHER_NAME}:${port}`
    const elsewhere = await startService({ env: { PORT: port, PUBLIC_URL: url } })
    const registered = await elsewhere.createApp({ redirectUri: callback.redirectUri })
    await elsewhere.createUser({ username: user.username, password: user.password })
    const { page } = await openPage(browser)
    await page.goto(`${url}${authorizePath(registered, 'lan')}`)
    await signIn(page)
    expect((await confirm(page))?.get('state')).toBe('lan')
    tokensOf(await elsewhere.exchange(registered, callback.last()?.get('code') ?? ''))
  })

  test('a double click on Confirm arrives at the app with one code, and that is good', async () => {
    const { page } = await openPage(browser)
    const before = callback.visits.length
    await page.goto(link('double'))
    await signIn(page)
    await page.getByRole('button', { name: 'Confirm' }).dblclick()
    await page.waitForURL('**/welcome')
    expect(new Set(callback.visits.slice(before).map(({ query }) => query.get('code'))).size).toBe(1)
    await exchangeLast()
  })

  test('a link without #wj_redirect gets a warning in the console and works all the same', async () => {
    const { page, console } = await openPage(browser)
    await page.goto(link().replace('#wj_redirect', ''))
    await expect.poll(() => console.join('\n')).toMatch(/^warning: .*#wj_redirect/)
    await signIn(page)
    await confirm(page)
    await exchangeLast()
  })

  test('the language switch on the sign-in page keeps the username, with JavaScript and without, and Enter signs in', async () => {
    for (const javaScriptEnabled of [true, false]) {
      const { page } = await openPage(browser, { javaScriptEnabled })
      await page.goto(link('spoken'))
      await page.fill('input[name=username]', user.username)
      await page.getByRole('button', { name: '中文' }).click()
      await page.getByRole('heading', { name: '登录' }).waitFor()
      expect(await page.inputValue('input[name=username]')).toBe(user.username)
      expect(page.url()).not.toContain(user.username)
      await signIn(page)
      expect((await confirm(page, '确认'))?.get('state')).toBe('spoken')
    }
  })

  test('a password can be shown, and is hidden again when it is sent; without JavaScript nothing offers that', async () => {
    const { page } = await openPage(browser)
    await page.goto(link())
    await page.fill('input[name=username]', user.username)
    await page.fill('input[name=password]', user.password)
    const typeOf = () => page.getAttribute('#password', 'type')
    await page.getByRole('button', { name: 'Show password' }).click()
    expect(await typeOf()).toBe('text')
    await page.getByRole('button', { name: 'Hide password' }).click()
    expect(await typeOf()).toBe('password')
    await page.getByRole('button', { name: 'Show password' }).click()
    await page.evaluate("document.forms[0].addEventListener('submit', (event) => event.preventDefault())")
    await page.press('#password', 'Enter')
    expect(await typeOf()).toBe('password')
    const without = await openPage(browser, { javaScriptEnabled: false })
    await without.page.goto(link())
    expect(await without.page.locator('[aria-controls]').isVisible()).toBe(false)
  })

  test.each([
    ['Asia/Tokyo', 'en-US', /^\w{3} \d+, \d{4}, \d+:\d\d [AP]M$/u],
    ['America/New_York', 'en-GB', /^\d+ \w{3} \d{4}, \d\d:\d\d$/u],
    ['Europe/Berlin', 'zh-CN', /^\d{4}年\d+月\d+日 \d\d:\d\d$/u],
  ])('times are those of a reader in %s, spelt as in %s', async (timezoneId, locale, spelling) => {
    const own = await service.createUser()
    await service.grantAccess({ app, user: own })
    const { page } = await openPage(browser, { timezoneId, locale })
    await page.goto(`${service.url}/connect/apps`)
    await signIn(page, own)
    const time = page.locator('time').first()
    await time.waitFor({ state: 'attached' })
    const [shown = '', iso = ''] = [await time.textContent(), await time.getAttribute('datetime')].map(String)
    expect(shown.replace('\u202f', ' ')).toMatch(spelling)
    const minute = new Intl.DateTimeFormat('en', {
      timeZone: timezoneId,
      minute: 'numeric',
      hour: 'numeric',
      hourCycle: 'h23',
    })
    const [hour = '', minutes = ''] = minute.format(new Date(iso)).split(':')
    expect(shown).toContain(`${locale === 'en-US' ? Number(hour) % 12 || 12 : hour}:${minutes}`)
  })

  test('of 39 connected apps each takes little room, and one is found by searching, with and without JavaScript', async () => {
    const own = await service.createUser()
    for (let n = 1; n <= 39; n += 1) {
      const one = await service.createApp({ name: `Report ${n}`, redirectUri: `https://r${n}.example/callback` })
      await service.grantAccess({ app: one, user: own })
    }
    for (const javaScriptEnabled of [true, false]) {
      const { page } = await openPage(browser, { javaScriptEnabled })
      await page.goto(`${service.url}/connect/apps`)
      await signIn(page, own)
      const rows = page.locator('.apps > li')
      await rows.first().waitFor()
      expect(await rows.count()).toBe(39)
      expect((await page.locator('.apps').boundingBox())?.height).toBeLessThan(39 * 80)
      await page.fill('#search', 'r17.example')
      await page.press('#search', 'Enter')
      await page.getByText('1 of 39 apps').waitFor()
      expect(await rows.allTextContents()).toEqual([expect.stringContaining('Report 17')])
    }
  })

  test('in forced colours the button that goes on stands out from the other one, and what goes on is legible', async () => {
    const { page } = await openPage(browser, { forcedColors: 'active' })
    await page.goto(link())
    await signIn(page)
    const lookOf = (value: string) =>
      page.locator(`button[value=${value}]`).evaluate((button) => {
        const { getComputedStyle } = globalThis as unknown as {
          getComputedStyle(element: unknown): { backgroundColor: string; color: string }
        }
        const { backgroundColor, color } = getComputedStyle(button)
        return { backgroundColor, color }
      })
    const [confirm, cancel] = [await lookOf('confirm'), await lookOf('cancel')]
    expect(confirm.backgroundColor).not.toBe(cancel.backgroundColor)
    expect(confirm.backgroundColor).not.toBe(confirm.color)
  })

  test.each([
    ['/nowhere?a=b', 'Page not found', '页面不存在'],
    ['/connect/oauth2/authorize?appid=unknown&state=%zz', 'This link does not work', '链接无效'],
  ])(
    'the language switch of the error page at %s leads to the same in the other language',
    async (path, english, chinese) => {
      const { page } = await openPage(browser, { javaScriptEnabled: false })
      await page.goto(service.url + path)
      await page.getByRole('heading', { name: english }).waitFor()
      await page.getByRole('link', { name: '中文' }).click()
      await page.getByRole('heading', { name: chinese }).waitFor()
      expect(page.url()).toBe(service.url + path)
      await page.getByRole('link', { name: 'English' }).click()
      await page.getByRole('heading', { name: english }).waitFor()
    },
  )

  test('the page cannot be framed by another site', async () => {
    const { page } = await openPage(browser)
    await page.goto(callback.redirectUri)
    const asked = page.waitForResponse((response) => response.url().includes('/connect/oauth2/authorize'))
    await page.setContent(`<iframe src="${link().replaceAll('&', '&amp;')}"></iframe>`)
    expect((await asked).status()).toBe(200)
    await page.waitForTimeout(500)
    const inside = await page
      .frames()[1]
      ?.content()
      .catch(() => '')
    expect(inside).not.toContain('password')
  })

  const views: readonly { readonly name: string; readonly open: (page: Page) => Promise<unknown> }[] = [
    { name: 'landing', open: (page) => page.goto(`${service.url}/`) },
    { name: 'sign-in', open: (page) => page.goto(link()) },
    {
      name: 'wrong password',
      open: async (page) => {
        await page.goto(link())
        await signIn(page, { ...user, password: 'wrong password' })
      },
    },
    {
      name: 'authorization',
      open: async (page) => {
        await page.goto(link())
        await signIn(page)
      },
    },
    {
      name: 'connected apps',
      open: async (page) => {
        await service.grantAccess({ app, user })
        await page.goto(`${service.url}/connect/apps`)
        await signIn(page)
        await page.locator('.app > summary').first().click()
        await page.locator('.ending > summary').first().click()
      },
    },
    {
      name: 'account',
      open: async (page) => {
        await service.admin.linkIdentity({ username: user.username, provider: 'corp', subject: 'of ming' })
        await page.goto(`${service.url}/connect/account`)
        await signIn(page)
        await page.waitForURL('**/connect/account')
      },
    },
    { name: 'bad link', open: (page) => page.goto(`${service.url}/connect/oauth2/authorize?appid=unknown`) },
    { name: 'not found', open: (page) => page.goto(`${service.url}/nowhere`) },
  ]

  let english: Page
  let chinese: Page
  beforeAll(async () => {
    const options = { reducedMotion: 'reduce', bypassCSP: true } as const
    english = await (await browser.newContext({ ...options, locale: 'en-US' })).newPage()
    chinese = await (await browser.newContext({ ...options, locale: 'zh-CN' })).newPage()
  })
  /** As if its profile were new, which would take seconds. */
  async function renew(page: Page): Promise<void> {
    await page.context().clearCookies()
    await page.goto('about:blank')
  }

  test.each(views)('$name: axe finds nothing serious, in light and dark, Chinese and English', async ({ open }) => {
    for (const [page, lang] of [
      [english, 'en'],
      [chinese, 'zh-CN'],
    ] as const) {
      await renew(page)
      await open(page)
      expect(await page.getAttribute('html', 'lang')).toBe(lang)
      expect(await seriousFindings(page)).toEqual([])
    }
  })

  test.each(views)(
    '$name: nothing scrolls sideways at 320 px, at 390 px with text of 24 px, or at 640 px with doubled text',
    async ({ open }) => {
      for (const { viewport, fontSize } of [
        { viewport: { width: 320, height: 640 }, fontSize: '100%' },
        { viewport: { width: 390, height: 800 }, fontSize: '150%' },
        { viewport: { width: 640, height: 400 }, fontSize: '200%' },
      ]) {
        await renew(english)
        await english.setViewportSize(viewport)
        await open(english)
        const normal = await textSize(english)
        await english.addStyleTag({ content: `html { font-size: ${fontSize} }` })
        expect(await textSize(english)).toBe((normal * Number.parseInt(fontSize, 10)) / 100)
        const { scrollWidth, clientWidth } = await english.evaluate(() => {
          const { document } = globalThis as unknown as {
            document: { documentElement: { scrollWidth: number; clientWidth: number } }
          }
          const { scrollWidth, clientWidth } = document.documentElement
          return { scrollWidth, clientWidth }
        })
        expect(scrollWidth).toBeLessThanOrEqual(clientWidth)
      }
    },
  )

  test('at 390 px with text of 24 px no word of ours is broken in two', async () => {
    const page = english
    await renew(page)
    await page.setViewportSize({ width: 390, height: 800 })
    await page.goto(link())
    await signIn(page)
    await page.addStyleTag({ content: 'html { font-size: 24px }' })
    const broken = await page.evaluate(`[...document.querySelectorAll('button, h1, h2, p, li')].flatMap((element) => {
      const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT)
      const found = []
      while (texts.nextNode()) {
        for (const { index, 0: word } of texts.currentNode.data.matchAll(/[a-z]+/gi)) {
          const range = document.createRange()
          range.setStart(texts.currentNode, index)
          range.setEnd(texts.currentNode, index + word.length)
          if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) found.push(word)
        }
      }
      return found
    })`)
    expect(broken).toEqual([])
  })

  test('with a brand, the least contrast that is accepted is legible, the logo is shown, and its script does not run', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-brand-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const brand = {
      name: 'P'.repeat(60),
      logo: 'logo',
      accent: '#7a7a7a',
      links: { help: 'https://p.example/', terms: 'https://p.example/' },
    }
    const logo =
      '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="40" onload="document.title=1"><script>document.title=1</script></svg>'
    writeFileSync(path.join(folder, 'brand.json'), JSON.stringify(brand))
    writeFileSync(path.join(folder, 'logo'), logo)
    const branded = await startService({ env: { BRAND_FILE: path.join(folder, 'brand.json') } })
    const registered = await branded.createApp({ redirectUri: callback.redirectUri })
    const own = await branded.createUser()
    for (const page of [english, chinese]) {
      await renew(page)
      await page.setViewportSize({ width: 320, height: 640 })
      await page.goto(`${branded.url}${authorizePath(registered)}#wj_redirect`)
      await signIn(page, own)
      expect(await seriousFindings(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(320)
      expect(await page.evaluate("document.querySelector('.brand img').naturalWidth")).toBe(600)
    }
    const { page } = await openPage(browser)
    await page.goto(`${branded.url}/connect/assets/logo`)
    expect(await page.title()).toBe('')
  })

  test('a hostile name of an app is shown as text, isolated, and causes no console message', async () => {
    const hostile = await service.createApp({
      name: `<b>${'W'.repeat(60)}</b> \u202eevil`,
      redirectUri: callback.redirectUri,
    })
    const { page, console } = await openPage(browser, { viewport: { width: 320, height: 640 } })
    await page.goto(`${service.url}${authorizePath(hostile)}#wj_redirect`)
    await signIn(page)
    expect(await page.locator('b').count()).toBe(0)
    expect(await page.locator('h1 bdi').textContent()).toMatch(/^<b>W/)
    expect(console).toEqual([])
  })
})

/** What axe finds on the page in light and dark. */
async function seriousFindings(page: Page): Promise<string[]> {
  await page.addScriptTag({ content: AXE })
  const found: string[] = []
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme })
    const { violations } = await page.evaluate(async () => {
      const { axe } = globalThis as unknown as {
        axe: { run(options: object): Promise<{ violations: { id: string; impact: string; nodes: unknown[] }[] }> }
      }
      return axe.run({ resultTypes: ['violations'] })
    })
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
    found.push(...serious.map(({ id, nodes }) => `${colorScheme}: ${id}: ${JSON.stringify(nodes)}`))
  }
  return found
}

/** Font size of the page's text, in px. */
function textSize(page: Page): Promise<number> {
  return page.evaluate(() => {
    const { document, getComputedStyle } = globalThis as unknown as {
      document: { body: unknown }
      getComputedStyle(element: unknown): { fontSize: string }
    }
    return Number.parseFloat(getComputedStyle(document.body).fontSize)
  })
}

/** Presses Tab until the element has the focus; fails when Tab does not reach it. */
async function focusByTab(page: Page, selector: string): Promise<void> {
  for (let presses = 0; presses < 20; presses += 1) {
    const hasFocus = await page.locator(selector).evaluate((element) => {
      const { document } = globalThis as unknown as { document: { activeElement: unknown } }
      return document.activeElement === element
    })
    if (hasFocus) return
    await page.keyboard.press('Tab')
  }
  throw new Error(`${selector} cannot be reached by keyboard`)
}
