// What is taken from the claims of a user. Claims are the provider's, often its user's own words: bounded and cleaned.
import { isIP } from 'node:net'

export interface Profile {
  readonly nickname: string
  readonly avatar: string
}

type Claims = Readonly<Record<string, unknown>>

const LONGEST_NICKNAME = 64
const LONGEST_AVATAR = 2_048

/** Empty where there is nothing that can be shown. */
export function profileOf(names: { readonly nickname: string; readonly avatar: string }, claims: Claims): Profile {
  return { nickname: nicknameOf(claims[names.nickname]), avatar: avatarOf(claims[names.avatar]) }
}

/** Whether each of these claims has one of its values, or contains one in its list. */
export function claimsAllow(require: Readonly<Record<string, readonly string[]>>, claims: Claims): boolean {
  return Object.entries(require).every(([name, allowed]) => {
    const claim = claims[name]
    const values = Array.isArray(claim) ? claim : [claim]
    return values.some((value) => typeof value !== 'object' && value !== undefined && allowed.includes(String(value)))
  })
}

function nicknameOf(claim: unknown): string {
  if (typeof claim !== 'string') return ''
  const text = claim.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, '').trim()
  return [...text].slice(0, LONGEST_NICKNAME).join('').trim()
}

function avatarOf(claim: unknown): string {
  if (typeof claim !== 'string' || claim.length > LONGEST_AVATAR || !URL.canParse(claim)) return ''
  const { protocol, username, password, hostname, href } = new URL(claim)
  const isPublic = protocol === 'https:' && username === '' && password === '' && isIP(hostname) === 0
  return isPublic ? href : ''
}
