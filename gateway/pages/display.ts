// How text written by others is shown, and times and durations. Escaping is left to the templates.
import type { Language } from './language.js'
import { texts } from './texts.js'

const NAME_GRAPHEMES = 60 // about two lines on a phone
const GRAPHEME_CODE_POINTS = 12 // the longest emoji in use; stacked accents beyond it only deface the page

// Controls, line and paragraph separators, zero-width and bidirectional controls: what could hide or reorder text.
const HARMFUL =
  /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]/gu

/** A visible character; the five at the end are letters and a symbol that are not. */
const INK = /[^\p{Z}\p{C}\u115f\u1160\u2800\u3164\uffa0]/u

const segmenter = new Intl.Segmenter('und', { granularity: 'grapheme' })

/** A name as a person sees it: harmful characters visible as U+FFFD, cut to 60 graphemes, `fallback` when blank. */
export function displayName(name: string, fallback: string): string {
  return displayText(name, NAME_GRAPHEMES) || fallback
}

/** Any text in the same way, '' when blank. */
export function displayText(text: string, maxGraphemes: number): string {
  if (!INK.test(text)) return ''
  const shown = graphemes(text.slice(0, 2000).trim().replace(HARMFUL, '\ufffd'), maxGraphemes + 1)
  return shown.length > maxGraphemes ? `${shown.slice(0, maxGraphemes).join('').trimEnd()}…` : shown.join('')
}

export type DisplayUser = ReturnType<typeof displayUser>

/** A user as every page shows them. */
export function displayUser(
  user: { readonly nickname: string; readonly username: string; readonly avatar: string },
  publicUrl: URL,
) {
  const isNamed = !user.username.startsWith('~') || user.nickname === '' // a placeholder says nothing to people
  const username = displayName(isNamed ? user.username : user.nickname, '—')
  const nickname = displayName(user.nickname, username)
  return { nickname, initial: initial(nickname), username, avatar: ownPicture(user.avatar, publicUrl) }
}

/** '' for a picture that is elsewhere: to load it would tell its host of the visit (decisions 47). */
function ownPicture(address: string, { origin }: URL): string {
  return URL.canParse(address) && new URL(address).origin === origin ? address : ''
}

/** First grapheme of a name for its badge, upper case. */
export function initial(name: string): string {
  return graphemes(name, 1).join('').toUpperCase()
}

/** Host and port of a callback address, in ASCII (punycode), so that look-alike letters show. */
export function callbackHost(redirectUri: string): string {
  return URL.canParse(redirectUri) ? new URL(redirectUri).host : redirectUri
}

/** The hosts of an app's callback addresses, each once. */
export function callbackHosts(redirectUris: readonly string[]): readonly string[] {
  return [...new Set(redirectUris.map(callbackHost))]
}

/** How long something lasts, in its largest whole unit, rounded down; from two days on in days. */
export function displayDuration(seconds: number, language: Language): string {
  return inLargestUnit(seconds, language, Math.floor)
}

/** How long to wait, in the same units, rounded up, so that a user who waits this long does not come too early. */
export function displayWait(seconds: number, language: Language): string {
  return inLargestUnit(seconds, language, Math.ceil)
}

function inLargestUnit(seconds: number, language: Language, round: (count: number) => number): string {
  const { duration } = texts[language]
  if (seconds >= 172_800) return duration.days(round(seconds / 86_400))
  if (seconds >= 7200) return duration.hours(round(seconds / 3600))
  if (seconds >= 120) return duration.minutes(round(seconds / 60))
  return duration.seconds(seconds)
}

export interface DisplayTime {
  /** For `<time datetime>`. */
  readonly iso: string
  /** With its offset in words, because the server does not know where the reader is. */
  readonly text: string
}

const clocks = {
  en: clockIn('en-GB', 'medium', 'UTC', 'UTC'),
  zh: clockIn('zh-CN', 'long', 'Asia/Shanghai', 'UTC+8'),
} satisfies Record<Language, unknown>

function clockIn(locale: string, dateStyle: 'medium' | 'long', timeZone: string, zone: string) {
  return {
    time: new Intl.DateTimeFormat(locale, { dateStyle, timeStyle: 'short', timeZone }),
    day: new Intl.DateTimeFormat(locale, { dateStyle, timeZone }),
    zone,
  }
}

export function displayTime(atMs: number, language: Language): DisplayTime {
  const { time, zone } = clocks[language]
  const at = new Date(atMs)
  return { iso: at.toISOString(), text: `${time.format(at)} ${zone}` }
}

/** The day alone, in the same zone. */
export function displayDay(atMs: number, language: Language): DisplayTime {
  const at = new Date(atMs)
  return { iso: at.toISOString(), text: clocks[language].day.format(at) }
}

function graphemes(text: string, limit: number): string[] {
  const found: string[] = []
  for (const { segment } of segmenter.segment(text)) {
    if (found.length === limit) break
    found.push(Array.from(segment).slice(0, GRAPHEME_CODE_POINTS).join(''))
  }
  return found
}
