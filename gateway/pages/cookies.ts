// The cookies of the pages: the session, the key that forms are signed with, what a form has just done, and the chosen language.
import { parseCookie, stringifySetCookie } from 'cookie'

export type OwnCookie = 'session' | 'form_key' | 'notice'

const LANGUAGE_COOKIE = 'sa_lang' // not secret: the same name over http and https, whoever may have set it
const NOTICE_MAX_AGE = 60 // in seconds: the page that shows it is the very next one
const LANGUAGE_MAX_AGE = 31_536_000 // one year, in seconds

/** What our cookies hold; any other value counts as none, and no service need be asked about it. */
const VALUES: Readonly<Record<OwnCookie, RegExp>> = {
  session: /^[\w-]{1,512}$/,
  form_key: /^[A-Za-z0-9_-]{43}$/,
  notice: /^[\w.-]{1,1300}$/, // 300 Chinese characters in base64url are 1,200
}

/**
 * Over https only the `__Host-` spelling counts, which most browsers take from this very origin alone. WebKitGTK takes it from any
 * page of the host: what keeps a planted form key useless there is that forms of another origin are refused (own-origin.ts).
 */
export function readOwnCookie(publicUrl: URL, header: string | undefined, name: OwnCookie): string | undefined {
  const value = parseCookie(header ?? '')[nameOf(publicUrl, name)]
  return value !== undefined && VALUES[name].test(value) ? value : undefined
}

export function readLanguageCookie(header: string | undefined): string | undefined {
  return parseCookie(header ?? '')[LANGUAGE_COOKIE]
}

/** A `Set-Cookie` value. It expires when the browser closes, a notice in a minute; the server ends sessions earlier by itself. */
export function setOwnCookie(publicUrl: URL, name: OwnCookie, value: string): string {
  const maxAge = name === 'notice' ? { maxAge: NOTICE_MAX_AGE } : {}
  return stringifySetCookie(nameOf(publicUrl, name), value, { ...attributes(publicUrl), ...maxAge })
}

export function clearOwnCookie(publicUrl: URL, name: OwnCookie): string {
  return stringifySetCookie(nameOf(publicUrl, name), '', { ...attributes(publicUrl), maxAge: 0 })
}

/** For a year if `isLasting`, else until the browser closes. */
export function setLanguageCookie(publicUrl: URL, language: string, isLasting: boolean): string {
  const maxAge = isLasting ? { maxAge: LANGUAGE_MAX_AGE } : {}
  return stringifySetCookie(LANGUAGE_COOKIE, language, { ...attributes(publicUrl), ...maxAge })
}

function nameOf(publicUrl: URL, name: OwnCookie): string {
  return isSecure(publicUrl) ? `__Host-sa_${name}` : `sa_${name}`
}

function attributes(publicUrl: URL) {
  return { path: '/', httpOnly: true, sameSite: 'lax', secure: isSecure(publicUrl) } as const
}

function isSecure(publicUrl: URL): boolean {
  return publicUrl.protocol === 'https:'
}
