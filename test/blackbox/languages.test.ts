import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { authorizePath, type TestApp, type TestUser, type Verbs } from '../harness/verbs.js'
import { decisionForm } from '../harness/visitor.js'
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
    const toChinese = page.html.links.find(({ text }) => text === '中文')
    const { pathname, search } = new URL(toChinese?.href ?? '', page.url)
    expect((await visitor.open(pathname + search)).html.lang).toBe('zh-CN')
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
})
