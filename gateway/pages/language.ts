// Which language a page speaks: the one chosen by the switch, then the browser's preference, then English.
import type { GatewayRequest } from '../request.js'
import { readLanguageCookie } from './cookies.js'

const LANGUAGES = ['zh', 'en'] as const
/** Leads back to the page it is on, in the chosen language. */
export const SWITCH_PATH = '/connect/language'

export type Language = (typeof LANGUAGES)[number]

/** The language of a page, from the switch's cookie and `Accept-Language`. Never fails. */
export function languageOf(request: Pick<GatewayRequest, 'header'>): Language {
  return (
    toLanguage(readLanguageCookie(request.header('cookie'))) ?? preferredLanguage(request.header('accept-language'))
  )
}

/** An address of ours that asks for a language, everything else byte for byte. */
export function inLanguage(address: string, language: Language): string {
  const [, path = '', query = '', fragment = ''] = /^([^?#]*)\??([^#]*)(.*)$/s.exec(address) ?? []
  return `${path}?${[...partsWithoutLanguage(query), `lang=${language}`].join('&')}${fragment}`
}

/** The parts of a raw query but for what asks for a language. */
export function partsWithoutLanguage(query: string): readonly string[] {
  return query.split('&').filter((part) => part !== '' && !part.startsWith('lang='))
}

/** `zh`, `zh-CN`, `zh-Hant-TW` are Chinese, `en`, `en-GB` are English; anything else is undefined. */
export function toLanguage(tag: string | undefined): Language | undefined {
  const primary = tag?.split(/[-_]/, 1)[0]?.trim().toLowerCase()
  return LANGUAGES.find((language) => language === primary)
}

/** The language that `Accept-Language` weighs highest; the first one wins a tie, `q=0` excludes. RFC 9110 §12.5.4. */
export function preferredLanguage(header: string | undefined): Language {
  let best: Language | undefined
  let bestWeight = 0
  for (const range of (header ?? '').slice(0, 1024).split(',')) {
    const [tag, ...parameters] = range.split(';')
    const language = toLanguage(tag)
    const weight = weightOf(parameters)
    if (language && weight > bestWeight) {
      best = language
      bestWeight = weight
    }
  }
  return best ?? 'en'
}

function weightOf(parameters: readonly string[]): number {
  const q = parameters.map((parameter) => /^\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*$/i.exec(parameter)?.[1]).find(Boolean)
  if (q !== undefined) return Number(q)
  return parameters.length === 0 ? 1 : 0
}
