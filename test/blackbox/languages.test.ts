import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { authorizePath, type TestApp, type TestUser, type Verbs } from '../harness/verbs.js'
import { decisionForm, formWith } from '../harness/visitor.js'
import { openService } from '../harness.js'

let service: Verbs
let app: TestApp
let user: TestUser
beforeAll(async () => {
  service = await openService()
  app = await service.createApp()
  user = await service.createUser()
})
afterAll(() => service.backend.close())

const preferences: readonly { readonly header: string; readonly lang: string }[] = [
  { header: 'zh', lang: 'zh-CN' },
  { header: 'zh-CN,zh;q=0.9,en;q=0.8', lang: 'zh-CN' },
  { header: 'zh-TW', lang: 'zh-CN' },
  { header: 'en-GB,en;q=0.9', lang: 'en' },
  { header: 'en;q=0.5,zh;q=0.9', lang: 'zh-CN' },
  { header: 'zh;q=0,en;q=0.1', lang: 'en' },
  { header: 'fr,de;q=0.9', lang: 'en' },
  { header: '*', lang: 'en' },
  { header: ';;;,,q=x', lang: 'en' },
]

describe('languages', () => {
  test.each(preferences)('Accept-Language "$header" gets $lang', async ({ header, lang }) => {
    expect((await service.visitor(header).open(authorizePath(app))).html.lang).toBe(lang)
  })

  test.each([
    { language: 'en', labels: ['Cancel', 'Confirm'] },
    { language: 'zh', labels: ['取消', '确认'] },
  ])('the buttons in $language read $labels', async ({ language, labels }) => {
    const page = await service.authorizationPage(service.visitor(language), app, user)
    expect(decisionForm(page).buttons.map(({ label }) => label)).toEqual(labels)
  })

  test('the switch changes the language of this page and of those that follow, and keeps the authorization', async () => {
    const visitor = service.visitor('en')
    const page = await visitor.open(authorizePath(app, 'keep'))
    const chinese = await visitor.switchLanguage(page, 'zh-CN', { username: 'half a na', password: 'half a password' })
    expect(chinese.html.lang).toBe('zh-CN')
    expect(formWith(chinese, 'password')?.fields).toMatchObject({ username: 'half a na', password: '' })
    const next = await service.authorizationPage(visitor, app, user, 'keep')
    expect(next.html.lang).toBe('zh-CN')
    expect((await visitor.decide(next, 'confirm')).headers.get('location')).toMatch(/state=keep$/)
  })

  test.each([
    ['our own switch, for a year', 'same-origin', 31_536_000],
    ['a browser that tells nothing, for a year', undefined, 31_536_000],
    ['a link of somebody else, until the browser closes', 'cross-site', undefined],
    ['an address that was typed, until the browser closes', 'none', undefined],
  ])('a language is kept as chosen by %s', async (_, site, seconds) => {
    const headers = site === undefined ? {} : { 'sec-fetch-site': site }
    const answer = await fetch(`${service.url}${authorizePath(app)}&lang=zh`, { headers })
    const cookie = answer.headers.getSetCookie().find((one) => one.startsWith('sa_lang=zh;')) ?? ''
    const maxAge = /Max-Age=(\d+)/.exec(cookie)?.[1]
    expect(cookie).not.toBe('')
    expect(maxAge && Number(maxAge)).toBe(seconds)
  })

  test('error pages speak the visitor’s language too', async () => {
    for (const [language, lang] of [
      ['zh', 'zh-CN'],
      ['en', 'en'],
    ] as const) {
      const visitor = service.visitor(language)
      for (const path of [authorizePath(app, undefined, { appid: 'unknown' }), '/nowhere']) {
        expect((await visitor.open(path)).html.lang).toBe(lang)
      }
    }
  })

  test.each([
    ['/nowhere', 404],
    ['//evil.example/nowhere?a=%3Cb%3E', 404],
    ['/connect/oauth2/authorize?appid=unknown&redirect_uri=x&response_type=code&scope=snsapi_user', 400],
    ['/connect/oauth2/authorize?appid=a&appid=b', 400],
    ['/connect/oauth2/authorize?x=%zz', 400],
  ])(
    'the switch of the error page at %s leads to the same error in the other language, and the choice is kept',
    async (path, status) => {
      const visitor = service.visitor('en')
      const page = await visitor.open(path)
      const chinese = await visitor.switchLanguage(page, 'zh-CN')
      expect([page.status, chinese.status, chinese.html.lang]).toEqual([status, status, 'zh-CN'])
      expect((await visitor.open('/')).html.lang).toBe('zh-CN')
      const hosts = chinese.html.links.map(({ href }) => new URL(href, service.url).host)
      expect(new Set(hosts)).toEqual(new Set([new URL(service.url).host]))
      expect((await visitor.switchLanguage(chinese, 'en')).html.text.replace(/ID \S+/, '')).toBe(
        page.html.text.replace(/ID \S+/, ''),
      )
    },
  )
})
