// The platform's face: what a brand may hold, and that pages show it.
import { readFileSync } from 'node:fs'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Brand, readBrand } from '../../gateway/pages/brand.js'
import { contrast, GROUNDS, textOn } from '../../gateway/pages/colours.js'
import { placesIn, replaceableTexts } from '../../gateway/pages/texts.js'
import { logoOf } from '../../services/token/logo.js'
import { Visitor } from '../harness/visitor.js'
import { type Served, serve } from './serve.js'

const SVG =
  '<?xml version="1.0"?>\n<!-- ours -->\n<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
const PNG = '\x89PNG\r\n\x1a\n'
const WEBP = 'RIFF\x01\x02\x03\x04WEBPVP8 '

/** Reads a brand whose logo has this content. */
function read(json: unknown, logo = '') {
  return readBrand(json, () => logoOf(Buffer.from(logo, 'latin1')))
}

function brandOf(json: unknown, logo?: string): Brand {
  const result = read(json, logo)
  if ('brand' in result) return result.brand
  throw new Error(result.faults.join('\n'))
}

describe('a brand', () => {
  test('may have one value for both languages and schemes, or one for each', () => {
    expect(brandOf({ name: 'Ours', accent: '#1677ff', links: { help: 'https://a.example/' } })).toMatchObject({
      name: { zh: 'Ours', en: 'Ours' },
      accent: { light: '#1677ff', dark: '#1677ff' },
      links: { help: { zh: 'https://a.example/', en: 'https://a.example/' } },
    })
    const each = { name: { zh: '我们', en: 'Ours' }, accent: { light: '#000080', dark: '#ffff00' } }
    expect(brandOf(each)).toEqual(each)
    expect(brandOf({})).toEqual({})
  })

  test.each([
    ['image/svg+xml', SVG],
    ['image/svg+xml', '<svg>'],
    ['image/png', PNG],
    ['image/webp', WEBP],
  ])('may have a logo that is %s by its content', (contentType, content) => {
    expect(brandOf({ logo: 'logo' }, content).logo?.contentType).toBe(contentType)
  })

  test.each<[string, unknown, RegExp]>([
    ['an unknown member', { colour: '#fff' }, /^Unrecognized key: "colour"$/],
    ['no object', [], /expected object/],
    ['an empty name', { name: '' }, /^name: must be a name of 1 to 60 characters/],
    ['a name in one language', { name: { en: 'Ours' } }, /^name: must be a name/],
    ['a name with a line break', { name: 'a\nb' }, /^name: must be a name/],
    ['a colour by name', { accent: 'red' }, /^accent: must be a colour like #0f6b5c/],
    [
      'a colour that is too light',
      { accent: { light: '#ffff00', dark: '#ffff00' } },
      /contrast of 1\.02 with the light page/,
    ],
    [
      'a colour that is too dark',
      { accent: '#0f6b5c' },
      /contrast of 2\.57 with the dark card, #19211e; it must have 3$/,
    ],
    ['a link to a script', { links: { help: 'javascript:alert(1)' } }, /^links\.help: must be an address/],
    ['a link without TLS', { links: { privacy: 'http://a.example/' } }, /^links\.privacy: must be an address/],
    ['a link with a space', { links: { terms: 'https://a.example/ ' } }, /^links\.terms: must be an address/],
    ['an unknown link', { links: { jobs: 'https://a.example/' } }, /^links: Unrecognized key: "jobs"$/],
    [
      'an unknown text',
      { texts: { en: { 'signIn.titel': 'x' } } },
      /^texts\.en\.signIn\.titel: is not the key of a text$/,
    ],
    ['a text that is a group', { texts: { en: { signIn: 'x' } } }, /signIn: is not the key/],
    ['the name as a text', { texts: { en: { serviceName: 'x' } } }, /serviceName: is not the key/],
    [
      'a place that is missing',
      { texts: { zh: { 'apps.found': '{shown}' } } },
      /must hold \{shown\} \{total\} as the text/,
    ],
    [
      'a place given twice',
      { texts: { en: { 'authorization.title': '{app}{app}' } } },
      /must hold \{app\} as the text/,
    ],
    ['a place of its own', { texts: { en: { 'signIn.title': '{app}' } } }, /must not hold \{app\}$/],
    ['an empty text', { texts: { en: { 'signIn.title': '' } } }, /^texts\.en\.signIn\.title: /],
  ])('may not have %s', (_, json, fault) => {
    expect(read(json)).toEqual({ faults: expect.arrayContaining([expect.stringMatching(fault)]) })
  })

  test.each([
    ['GIF89a', /^logo: is not a PNG, WebP or SVG image$/],
    ['<html><svg></svg></html>', /^logo: is not a PNG/],
    [PNG + 'x'.repeat(48 * 1024), /^logo: is larger than 48 KiB$/],
    ['<!---->'.repeat(5000), /^logo: is not a PNG/],
  ])('may not have such a logo', (content, fault) => {
    expect(read({ logo: 'logo' }, content)).toEqual({ faults: [expect.stringMatching(fault)] })
  })

  test('is refused with all its faults at once', () => {
    const json = { name: 1, logo: 'x', accent: '#ffffff', links: { help: 'x' }, texts: { zh: { x: 'y' } }, more: 1 }
    const result = read(json)
    const faults = 'faults' in result ? result.faults : []
    for (const at of ['name', 'logo', 'accent', 'links.help', 'texts.zh.x', 'Unrecognized'])
      expect(
        faults.some((fault) => fault.startsWith(at)),
        at,
      ).toBe(true)
  })
})

test('colours are judged against those of the style sheet', () => {
  const css = readFileSync(new URL('../../gateway/pages/style.css', import.meta.url), 'utf8')
  for (const [name, place] of [
    ['ground', 'page'],
    ['surface', 'card'],
  ] as const)
    expect(css).toContain(`--${name}: light-dark(${GROUNDS.light[place]}, ${GROUNDS.dark[place]});`)
})

test('black and white have the greatest contrast, equal colours none, and a text on any grey is legible', () => {
  expect(contrast('#000000', '#ffffff')).toBeCloseTo(21)
  expect(contrast('#1677ff', '#1677ff')).toBe(1)
  expect(contrast('#777777', '#ffffff')).toBeCloseTo(4.48, 2)
  for (let level = 0; level < 256; level += 1) {
    const grey = `#${level.toString(16).padStart(2, '0').repeat(3)}`
    expect(contrast(grey, textOn(grey)), grey).toBeGreaterThan(4.5)
  }
})

test('a text has the same places in both languages', () => {
  const chinese = replaceableTexts('zh')
  for (const [key, text] of replaceableTexts('en')) expect(placesIn(chinese.get(key) ?? ''), key).toBe(placesIn(text))
})

describe('pages of a platform', () => {
  let served: Served
  let visitor: Visitor
  beforeEach(async () => {
    const brand = brandOf(
      {
        name: { zh: '问卷星球', en: 'Survey <b>Planet</b>' },
        logo: 'logo.svg',
        accent: { light: '#7a1fa2', dark: '#e1a6f5' },
        links: {
          privacy: { zh: 'https://planet.example/zh', en: 'https://planet.example/en' },
          support: 'mailto:a@b.example',
        },
        texts: { en: { 'signIn.lead': 'Use your Planet account.', 'errors.notFound.0': 'Lost in space' } },
      },
      SVG,
    )
    served = await serve(undefined, brand)
    visitor = new Visitor(served.origin)
  })
  afterEach(() => served.close())

  test('say its name, link to its pages in their language, and say its texts', async () => {
    const page = await visitor.open('/connect/apps')
    expect(page.html.title).toBe('Sign in · Survey <b>Planet</b>')
    expect(page.html.text).toContain('Use your Planet account.')
    expect(page.html.links.slice(-2)).toEqual([
      { href: 'https://planet.example/en', text: 'Privacy' },
      { href: 'mailto:a@b.example', text: 'Support' },
    ])
    expect((await visitor.open('/nothing')).html.title).toBe('Lost in space · Survey <b>Planet</b>')
    const chinese = await new Visitor(served.origin, 'zh').open('/connect/apps')
    expect(chinese.html.title).toBe('登录 · 问卷星球')
    expect(chinese.html.text).toContain('请使用您的问卷账号登录。')
    expect(chinese.html.links.map(({ href }) => href)).toContain('https://planet.example/zh')
  })

  test('have its logo from our own origin, cached by its hash, of a strict type and without scripts', async () => {
    const { html } = await visitor.open('/')
    const src = html.tags.find(({ name }) => name === 'img')?.attributes.src ?? ''
    expect(src).toMatch(/^\/connect\/assets\/logo\?v=[\w-]{12}$/)
    expect(html.tags.find(({ attributes }) => attributes.rel === 'icon')?.attributes).toMatchObject({
      href: src,
      type: 'image/svg+xml',
    })
    const { status, headers, text } = await visitor.request(src)
    expect([status, text]).toEqual([200, SVG])
    expect(headers.get('content-type')).toBe('image/svg+xml')
    expect(headers.get('x-content-type-options')).toBe('nosniff')
    expect(headers.get('content-security-policy')).toBe("default-src 'none'; style-src 'unsafe-inline'; sandbox")
    expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
    expect((await visitor.request('/connect/assets/logo')).headers.get('cache-control')).toBe('no-store')
  })

  test('have its colour in a style sheet of its own address', async () => {
    const styleOf = async (one: Visitor) =>
      (await one.open('/')).html.tags.find(({ attributes }) => attributes.rel === 'stylesheet')?.attributes.href ?? ''
    const href = await styleOf(visitor)
    const plain = await serve()
    expect(href).not.toBe(await styleOf(new Visitor(plain.origin)))
    await plain.close()
    expect((await visitor.request(href)).text).toContain(
      ':root{--accent:light-dark(#7a1fa2,#e1a6f5);--on-accent:light-dark(#ffffff,#000000)}',
    )
  })
})
