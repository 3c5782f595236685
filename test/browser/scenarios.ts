// The flow as people go through it, in every engine, over https and http, with and without Fetch Metadata.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { authorizePath, type TestApp, type TestUser, tokensOf, type Verbs } from '../harness/verbs.js'
import { formWith } from '../harness/visitor.js'
import { openService } from '../harness.js'
import { createAuthority } from '../rpc/certificates.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { type Callback, startCallback } from './callback.js'
import { type Front, type FrontOptions, startFront } from './front.js'
import { type Tab, untilShown } from './tab.js'

/** The service behind its front, and an app on another origin. */
interface Place {
  readonly service: Verbs
  readonly front: Front
  readonly app: TestApp
  readonly callback: Callback
}

interface Scenario {
  /** Completes "with this front, …". */
  readonly title: string
  readonly run: (tab: Tab, place: Place, user: TestUser) => Promise<void>
}

const fronts: readonly (FrontOptions & { readonly name: string })[] = [
  { name: 'over https', isSecure: true },
  { name: 'over https without Fetch Metadata', isSecure: true, hidesFetchMetadata: true },
  { name: 'over http on loopback', isSecure: false },
  { name: 'over http on loopback without Fetch Metadata', isSecure: false, hidesFetchMetadata: true },
]

const scenarios: readonly Scenario[] = [
  {
    title: 'a wrong password is said once, and confirming leads to the app with a good code and no Referer',
    run: async (tab, { service, front, app, callback }, user) => {
      await tab.goto(link(front, app, 'kept'))
      await signIn(tab, { ...user, password: 'wrong password' })
      expect(await untilShown(tab, /is incorrect/)).toContain(`username=${user.username}`)
      await tab.reload()
      expect(await untilShown(tab, /username=$/m)).not.toContain('is incorrect')
      await signIn(tab, user)
      await untilShown(tab, /Confirm/)
      await tab.click('button[value=confirm]')
      await untilShown(tab, /Welcome back/)
      const visit = callback.visits.at(-1)
      expect([visit?.query.get('state'), visit?.referer]).toEqual(['kept', undefined])
      tokensOf(await service.exchange(app, visit?.query.get('code') ?? ''))
    },
  },
  {
    title: 'a session that has ended is said once, and the same authorization goes on',
    run: async (tab, { service, front, app, callback }, user) => {
      await tab.goto(link(front, app, 'goesOn'))
      await signIn(tab, user)
      await untilShown(tab, /Confirm/)
      await service.admin.setUserPassword({ username: user.username, password: 'another password' })
      await tab.click('button[value=confirm]')
      await untilShown(tab, /session has ended/)
      await tab.reload()
      expect(await untilShown(tab, /password=/)).not.toContain('session has ended')
      await signIn(tab, { ...user, password: 'another password' })
      await untilShown(tab, /Confirm/)
      await tab.click('button[value=cancel]')
      await untilShown(tab, /Welcome back/)
      expect(`${callback.visits.at(-1)?.query}`).toBe('error=access_denied&state=goesOn')
    },
  },
  {
    title: 'switching the account leads back to the same authorization',
    run: async (tab, { service, front, app, callback }, user) => {
      const other = await service.createUser({ nickname: 'Somebody Else' })
      await tab.goto(link(front, app, 'switched'))
      await signIn(tab, user)
      await untilShown(tab, /Confirm/)
      await tab.click('form[action*="/connect/sign-out"] button')
      await untilShown(tab, /password=/)
      await signIn(tab, other)
      await untilShown(tab, /Somebody Else/)
      await tab.click('button[value=confirm]')
      await untilShown(tab, /Welcome back/)
      expect(callback.visits.at(-1)?.query.get('state')).toBe('switched')
    },
  },
  {
    title: 'that access has ended is said once, so is signing out, and Back does not show the connected apps',
    run: async (tab, { service, front, app, callback }, user) => {
      await tab.goto(link(front, app, 'connected'))
      await signIn(tab, user)
      await untilShown(tab, /Confirm/)
      await tab.click('button[value=confirm]')
      await untilShown(tab, /Welcome back/)
      tokensOf(await service.exchange(app, callback.visits.at(-1)?.query.get('code') ?? ''))
      await tab.goto(`${front.url}/connect/apps`)
      await untilShown(tab, /Chart Maker/)
      for (const next of ['.app > summary', '.ending > summary', 'form[action*="/connect/apps/disconnect"] button'])
        await tab.click(next)
      await untilShown(tab, /Access has ended. Chart Maker/)
      await tab.reload()
      expect(await untilShown(tab, /No app is connected/)).not.toContain('Access has ended')
      await tab.goto(`${front.url}/connect/apps?lang=en`) // WebKit puts one address into its history once
      await untilShown(tab, /No app is connected/)
      await tab.click('form[action*="/connect/sign-out"] button')
      await untilShown(tab, /You are signed out/)
      await tab.reload()
      expect(await untilShown(tab, /password=/)).not.toContain('You are signed out')
      await tab.evaluate('document.body.prepend("LEFT")')
      await tab.back()
      await untilShown(tab, /^(?!LEFT)[\s\S]*password=/)
    },
  },
  ...['origin', 'no-referrer'].map((policy) => ({
    title: `a form of another port of the host, with a planted key, is refused: ${policy}`,
    run: async (tab: Tab, { service, front, callback }: Place, attacker: TestUser) => {
      const visitor = service.visitor()
      const page = await visitor.open('/connect/apps')
      const { fields, action } = formWith(page, 'password') ?? {}
      const cookies = [...visitor.cookies].map(
        ([name, value]) => `${name}=${value}; Path=/${front.url.startsWith('https') ? '; Secure' : ''}`,
      )
      await tab.goto(
        callback.attack({ policy, cookies, action: front.url + action, fields: { ...fields, ...attacker } }),
      )
      await tab.click('button')
      await untilShown(tab, /came from another address|did not say where this form came from/)
      await tab.goto(`${front.url}/connect/apps`)
      await untilShown(tab, /password=/)
    },
  })),
]

/** A front that hides what a browser says of a form's origin. */
const hiding: FrontOptions = { isSecure: true, hidesFetchMetadata: true, hidesOrigin: true }

export function describeEngine(name: string, isThere: boolean, open: () => Promise<Tab>): void {
  describe.skipIf(!isThere)(`the pages in ${name}`, { timeout: 60_000 }, () => {
    const authority = createAuthority()
    let tab: Tab
    let callback: Callback
    const closing: (() => Promise<unknown>)[] = []
    beforeAll(async () => {
      tab = await open()
      closing.push(() => tab.close())
      callback = await startCallback()
      closing.push(() => callback.close())
    })
    afterEach(() => tab.forget())
    afterAll(async () => {
      for (const close of closing.reverse()) await close()
    })

    async function openPlace(
      options: FrontOptions,
      env: Readonly<Record<string, string>> = {},
      face: object = {},
    ): Promise<Place> {
      const front = await startFront(options, authority)
      closing.push(() => front.close())
      const service = await openService({ env: { PUBLIC_URL: front.url, ...env } })
      closing.push(() => service.backend.close())
      front.target = service.url
      const app = await service.createApp({ name: 'Chart Maker', redirectUri: callback.redirectUri })
      await service.admin.updateApp({ appid: app.appid, face })
      return { service, front, app, callback }
    }

    describe.each(fronts)('$name', (options) => {
      let place: Place
      beforeAll(async () => {
        place = await openPlace(options)
      })
      for (const { title, run } of scenarios)
        test(title, async () => {
          await run(tab, place, await place.service.createUser())
        })
    })

    test('the consent page has the faces of the platform and the app, and leads to the app', async () => {
      const folder = temporaryDirectory()
      writeFileSync(path.join(folder, 'logo.svg'), logo('#7a1fa2'))
      const brand = { name: 'Survey Planet', logo: 'logo.svg', accent: { light: '#7a1fa2', dark: '#e1a6f5' } }
      writeFileSync(path.join(folder, 'brand.json'), JSON.stringify(brand))
      const env = { BRAND_FILE: path.join(folder, 'brand.json') }
      const face = { description: 'Draws charts.', homePage: 'https://app.example/', logo: Buffer.from(logo('#c60')) }
      const { service, front, app, callback } = await openPlace({ isSecure: true }, env, face)
      await tab.goto(link(front, app, 'branded'))
      await signIn(tab, await service.createUser())
      const shown = await untilShown(tab, /Confirm/)
      for (const text of ['Survey Planet', 'Draws charts.', 'app.example']) expect(shown).toContain(text)
      const widths = '[...document.images].map(({ naturalWidth }) => naturalWidth > 0).join()'
      await expect.poll(() => tab.evaluate(widths), { timeout: 20_000 }).toBe('true,true') // images may follow the page
      const accent = "getComputedStyle(document.querySelector('button[value=confirm]')).backgroundColor"
      expect(await tab.evaluate(accent)).toBe('rgb(122, 31, 162)')
      await tab.click('button[value=confirm]')
      await untilShown(tab, /Welcome back/)
      expect(callback.visits.at(-1)?.query.get('state')).toBe('branded')
    })

    test('the account page shows this session, and changes the password', async () => {
      const { service, front } = await openPlace({ isSecure: true })
      const user = await service.createUser()
      await tab.goto(`${front.url}/.well-known/change-password`)
      await signIn(tab, user)
      const shown = await untilShown(tab, /Where you are signed in/)
      for (const text of ['/connect/account', 'This browser', FAMILIES[name] ?? name]) expect(shown).toContain(text)
      await tab.type('#password', user.password)
      await tab.type('#new-password', 'another password')
      await tab.click('form[action="/connect/account/password"] button')
      await untilShown(tab, /Your password has been changed/)
      await tab.click('form[action*="/connect/sign-out"] button')
      await untilShown(tab, /You are signed out\. Connected/)
      await signIn(tab, { ...user, password: 'another password' })
      await untilShown(tab, /No app is connected/)
    })

    test('where the browser or a proxy hides the origin, the page says so and leads back to the same authorization', async () => {
      const { service, front, app } = await openPlace(hiding)
      await tab.goto(link(front, app, 'hidden'))
      await signIn(tab, await service.createUser())
      await untilShown(tab, /did not say where this form came from/)
      await tab.click('main a.button')
      expect(await untilShown(tab, /password=/)).toContain('state=hidden')
    })
  })
}

/** As the account page names them. */
const FAMILIES: Readonly<Record<string, string>> = { Chromium: 'Chrome', WebKit: 'Safari' }

const logo = (colour: string) =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="28" height="28"><circle cx="14" cy="14" r="14" fill="${colour}"/></svg>`

const link = (front: Front, app: TestApp, state: string) => `${front.url}${authorizePath(app, state)}#wj_redirect`

/** Types and submits; what comes then is for the scenario to wait for. */
async function signIn(tab: Tab, { username, password }: TestUser): Promise<void> {
  if (!(await untilShown(tab, /password=/)).includes(`username=${username}`)) await tab.type('#username', username)
  await tab.type('#password', password)
  await tab.click('button.primary')
}
