// What pages look like and what they say: ours, or the platform's where its brand has something else.
import { type Asset, assetOf, readOwn } from './asset.js'
import type { Brand } from './brand.js'
import { textOn } from './colours.js'
import type { Language } from './language.js'
import { replaceTexts, type Texts, texts } from './texts.js'

export interface Look {
  readonly texts: Readonly<Record<Language, Texts>>
  readonly style: Asset
  readonly script: Asset
  readonly logo: Asset
  /** At the foot of every page. */
  readonly links: Readonly<Record<Language, readonly { readonly href: string; readonly label: string }[]>>
}

export function createLook(brand: Brand = {}): Look {
  const { accent, logo = { contentType: 'image/svg+xml', body: readOwn('icon.svg') } } = brand
  const style = Buffer.concat([readOwn('style.css'), accent ? colours(accent) : Buffer.of()])
  const spoken = { zh: textsOf(brand, 'zh'), en: textsOf(brand, 'en') }
  return {
    texts: spoken,
    style: assetOf('style', 'text/css; charset=utf-8', style),
    script: assetOf('script', 'text/javascript; charset=utf-8', readOwn('page.js')),
    logo: assetOf('logo', logo.contentType, logo.body),
    links: { zh: linksOf(brand, 'zh', spoken.zh), en: linksOf(brand, 'en', spoken.en) },
  }
}

function textsOf({ name, texts: replaced }: Brand, language: Language): Texts {
  const serviceName = name ? { serviceName: name[language] } : {}
  return replaceTexts(texts[language], { ...replaced?.[language], ...serviceName })
}

function linksOf({ links = {} }: Brand, language: Language, { links: labels }: Texts) {
  const names = ['help', 'privacy', 'terms', 'support'] as const
  return names.flatMap((name) => {
    const href = links[name]?.[language]
    return href === undefined ? [] : [{ href, label: labels[name] }]
  })
}

/** After the rules of style.css, which they override. */
function colours({ light, dark }: NonNullable<Brand['accent']>): Buffer {
  return Buffer.from(
    `:root{--accent:light-dark(${light},${dark});--on-accent:light-dark(${textOn(light)},${textOn(dark)})}\n`,
  )
}
