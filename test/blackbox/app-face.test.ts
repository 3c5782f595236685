import { createHash } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Verbs } from '../harness/verbs.js'
import type { Page } from '../harness/visitor.js'
import { openService } from '../harness.js'

/** Of all tests: each makes its own apps and users. */
let service: Verbs
beforeAll(async () => {
  service = await openService()
})
afterAll(() => service.backend.close())

const SVG = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
const PNG = Buffer.from('\x89PNG\r\n\x1a\nand so on', 'latin1')
const FACE = {
  homePage: 'https://app.example/home?a=1&b=2',
  description: 'Draws charts of your surveys.',
  contact: 'help@app.example',
  privacyLink: 'https://xn--80ak6aa92e.example/privacy',
}

const picturesOf = (page: Page) =>
  page.html.tags.flatMap(({ name, attributes }) => (name === 'img' ? [attributes.src ?? ''] : []))

/** The authorization page, and the connected apps once it has been confirmed. */
async function pagesOf(face: object, user = service.createUser()): Promise<readonly Page[]> {
  const [app, person] = [await service.createApp({ name: 'Chart Maker' }), await user]
  await service.admin.updateApp({ appid: app.appid, face })
  const visitor = service.visitor('en')
  const asking = await service.authorizationPage(visitor, app, person)
  const code = await service.issueCode(app, person, { visitor })
  expect((await service.exchange(app, code)).code).toBe('OK')
  return [asking, await visitor.open('/connect/apps')]
}

describe('how an app presents itself', () => {
  test('is on the authorization page and beside the connected apps, as words and links of its owner', async () => {
    for (const page of await pagesOf({ ...FACE, logo: PNG })) {
      expect(page.html.text).toContain('The app says of itself: Draws charts of your surveys.')
      expect(page.html.text).toContain('Home page app.example')
      expect(page.html.text).toContain('Privacy policy xn--80ak6aa92e.example')
      expect(page.html.text).toContain('Contact: help@app.example')
      const links = page.html.tags.filter(({ attributes }) => attributes.href?.startsWith('https://'))
      expect(links.map(({ attributes }) => attributes)).toEqual(
        [FACE.homePage, FACE.privacyLink].map((href) => ({ href, rel: 'noopener noreferrer', target: '_blank' })),
      )
      expect(picturesOf(page).filter((src) => src.includes('/apps/'))).toHaveLength(1)
    }
  })

  test('is text, whatever it holds: nothing of it is hidden, reordered or part of the page', async () => {
    const [page] = await pagesOf({ description: 'a\u202eb<script>alert(1)</script>\u200b', contact: '\u2066<b>' })
    expect(page?.html.text).toContain('a\ufffdb<script>alert(1)</script>\ufffd')
    expect(page?.text).not.toContain('<script>alert')
    expect(page?.html.text).toContain('\ufffd<b>')
  })

  test('is left out where there is nothing', async () => {
    for (const page of await pagesOf({})) {
      expect(page.html.text).not.toMatch(/says of itself|Home page|Contact/)
      expect(picturesOf(page)).toHaveLength(1) // the platform's
    }
  })

  test.each([
    { what: 'a script as link', face: { homePage: 'javascript:alert(1)' } },
    { what: 'a link without TLS', face: { homePage: 'http://app.example/' } },
    { what: 'a link with a user name', face: { privacyLink: 'https://bank.example@app.example/' } },
    { what: 'a link without a host', face: { privacyLink: 'https://?' } },
    { what: 'a description of two lines', face: { description: 'a\nb' } },
    { what: 'a description of 301 characters', face: { description: 'a'.repeat(301) } },
    { what: 'a GIF', face: { logo: Buffer.from('GIF89a') } },
    { what: 'a page as logo', face: { logo: Buffer.from('<html><svg></svg></html>') } },
    { what: 'a logo of more than 48 KiB', face: { logo: Buffer.concat([PNG, Buffer.alloc(48 * 1024)]) } },
  ])('does not hold $what', async ({ face }) => {
    const { appid } = await service.createApp()
    await expect(service.admin.updateApp({ appid, face })).rejects.toThrow(/\[invalid_argument\]/)
    await expect(service.admin.createApp({ name: 'a', redirectUris: ['https://a.example/'], face })).rejects.toThrow()
    expect((await service.admin.getApp({ appid })).app?.face).toMatchObject({ homePage: '', logoHash: '' })
  })
})

describe('the logo of an app', () => {
  test.each([
    { type: 'image/svg+xml', logo: SVG },
    { type: 'image/png', logo: PNG },
  ])('comes from our own address, as $type, without a script, for good', async ({ type, logo }) => {
    const [page] = await pagesOf({ logo })
    const src = picturesOf(page as Page).find((each) => each.includes('/apps/')) ?? ''
    const version = createHash('sha256').update(logo).digest('base64url').slice(0, 12)
    expect(src).toMatch(new RegExp(`^/connect/assets/apps/app_[\\w-]{22}\\?v=${version}$`))
    const reply = await service.visitor().request(src)
    expect(reply.status).toBe(200)
    expect(reply.text).toBe(logo.toString())
    expect(Object.fromEntries(reply.headers)).toMatchObject({
      'content-type': type,
      'cache-control': 'public, max-age=31536000, immutable',
      'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; sandbox",
      'x-content-type-options': 'nosniff',
    })
    expect(page?.headers.get('content-security-policy')).toContain("img-src 'self';")
  })

  test('has another address when it has changed, and none when it is gone', async () => {
    const { appid } = await service.createApp()
    const get = (v: string) => service.visitor().request(`/connect/assets/apps/${appid}?v=${v}`)
    expect((await get('')).status).toBe(404)
    await service.admin.updateApp({ appid, face: { logo: PNG } })
    await service.admin.updateApp({ appid, face: { logo: SVG } })
    const before = createHash('sha256').update(PNG).digest('base64url').slice(0, 12)
    expect((await get(before)).headers.get('cache-control')).toBe('no-store')
    await service.admin.updateApp({ appid, name: 'still there' })
    expect((await get(before)).text).toBe(SVG.toString())
    await service.admin.updateApp({ appid, face: { logo: Buffer.of() } })
    expect((await get(before)).status).toBe(404)
  })

  test.each(['nobody', 'a'.repeat(129), '%00', '..%2f'])('of %s does not exist', async (appid) => {
    expect((await service.visitor().request(`/connect/assets/apps/${appid}`)).status).toBe(404)
  })
})

test("an avatar is shown from our own address only, so that nobody else's server sees the visit", async () => {
  const own = `${service.url}/avatars/ming.png`
  for (const [avatar, shown] of [
    [own, [own]],
    ['https://img.example/ming.png', []],
    [`${service.url}.evil.example/a.png`, []],
    ['', []],
  ] as const) {
    const [page] = await pagesOf({}, service.createUser({ avatar }))
    expect(picturesOf(page as Page).slice(1), avatar).toEqual(shown)
  }
})
