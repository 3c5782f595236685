// The three cookies of the pages: the session, the key that forms are signed with, and the chosen language.
import { parseCookie, stringifySetCookie } from 'cookie'

export type SecretCookie = 'session' | 'form_key'

const LANGUAGE_COOKIE = 'sa_lang' // not secret: the same name over http and https, whoever may have set it
const LANGUAGE_MAX_AGE = 31_536_000 // one year, in seconds

/** What our cookies hold; any other value counts as none, and no service need be asked about it. */
const SECRET = /^[\w-]{1,512}$/

/** Over https only the `__Host-` spelling counts: nothing but this very origin can have set it. */
export function readSecretCookie(publicUrl: URL, header: string | undefined, name: SecretCookie): string | undefined {
  const value = parseCookie(header ?? '')[secretName(publicUrl, name)]
  return value !== undefined && SECRET.test(value) ? value : undefined
}

export function readLanguageCookie(header: string | undefined): string | undefined {
  return parseCookie(header ?? '')[LANGUAGE_COOKIE]
}

/** A `Set-Cookie` value. It expires when the browser closes; the server ends sessions earlier by itself. */
export function setSecretCookie(publicUrl: URL, name: SecretCookie, value: string): string {
  return stringifySetCookie(secretName(publicUrl, name), value, attributes(publicUrl))
}

export function clearSecretCookie(publicUrl: URL, name: SecretCookie): string {
  return stringifySetCookie(secretName(publicUrl, name), '', { ...attributes(publicUrl), maxAge: 0 })
}

/** For a year if `isLasting`, else until the browser closes. */
export function setLanguageCookie(publicUrl: URL, language: string, isLasting: boolean): string {
  const maxAge = isLasting ? { maxAge: LANGUAGE_MAX_AGE } : {}
  return stringifySetCookie(LANGUAGE_COOKIE, language, { ...attributes(publicUrl), ...maxAge })
}

function secretName(publicUrl: URL, name: SecretCookie): string {
  return isSecure(publicUrl) ? `__Host-sa_${name}` : `sa_${name}`
}

function attributes(publicUrl: URL) {
  return { path: '/', httpOnly: true, sameSite: 'lax', secure: isSecure(publicUrl) } as const
}

function isSecure(publicUrl: URL): boolean {
  return publicUrl.protocol === 'https:'
}
