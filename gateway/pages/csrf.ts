// Forms only our own pages can have made, without state on the server: a random key per browser, in a cookie, signs
// what a form is about. Another site can send the cookie along but cannot read it, so it cannot sign. OWASP calls this
// the signed double-submit pattern; the signature covers the session, so a form dies with the sign-in it was made for.
import { createHash, createHmac, timingSafeEqual } from 'node:crypto'

const FORM_TTL_MS = 30 * 60_000 // long enough to fetch a password, short for a page left open; our own choice

const KEY_BYTES = 32
const FORM_ID_BYTES = 24
const FORM_TIME_BYTES = 6 // ms since 1970

export type FormName =
  | 'sign_in'
  | 'authorization'
  | 'sign_out'
  | 'disconnect'
  | 'change_password'
  | 'end_sessions'
  | 'link'
  | 'unlink'

/** What a form may be used for; all of it is signed. */
export interface FormUse {
  readonly form: FormName
  /** Session the form was shown in; undefined for the sign-in form, which belongs to nobody yet. */
  readonly sessionToken: string | undefined
  /** The authorization request in progress, or what is to end, to be linked or unlinked. */
  readonly about: readonly string[]
}

export type FormCheck = { readonly formId: string } | { readonly refused: 'expired' | 'rejected' }

/** Why a form is not acted upon; guarded() in failures.ts turns it into an answer. */
export class FormRefused extends Error {
  constructor(readonly why: 'cross_site' | 'hidden_origin' | 'expired' | 'no_cookies' | 'rejected') {
    super(`form refused: ${why}`)
  }
}

type RandomBytes = (size: number) => Uint8Array

export function newFormKey(randomBytes: RandomBytes): string {
  return base64url(randomBytes(KEY_BYTES))
}

/**
 * Unguessable and fresh for every rendering; a confirmed form gets the same code while that is good. It begins with the
 * time, in 8 characters, so that the codes of forms shown at about the same time lie together in their table.
 */
export function newFormId(randomBytes: RandomBytes, nowMs: number): string {
  const time = Buffer.alloc(FORM_TIME_BYTES)
  time.writeUIntBE(Math.max(0, Math.floor(nowMs)), 0, FORM_TIME_BYTES)
  return Buffer.concat([time, randomBytes(FORM_ID_BYTES - FORM_TIME_BYTES)]).toString('base64url')
}

/** The value of the hidden `csrf` field: issue time, form id, signature. */
export function signForm(key: string, use: FormUse, formId: string, nowMs: number): string {
  const issued = nowMs.toString(36)
  return `${issued}.${formId}.${signature(key, use, formId, issued)}`
}

/** The signature is judged before the age, so that only a form of ours is ever called expired. */
export function checkForm(key: string, use: FormUse, value: string, nowMs: number): FormCheck {
  const [issued = '', formId = '', given = ''] = value.split('.')
  if (!isEqual(given, signature(key, use, formId, issued))) return { refused: 'rejected' }
  if (nowMs - Number.parseInt(issued, 36) >= FORM_TTL_MS) return { refused: 'expired' }
  return { formId }
}

function signature(key: string, use: FormUse, formId: string, issued: string): string {
  const session = use.sessionToken === undefined ? 'none' : createHash('sha256').update(use.sessionToken).digest('hex')
  const signed = JSON.stringify([use.form, session, use.about, formId, issued])
  return createHmac('sha256', key).update(signed).digest('base64url')
}

function isEqual(given: string, expected: string): boolean {
  const a = Buffer.from(given)
  const b = Buffer.from(expected)
  return a.length === b.length && timingSafeEqual(a, b)
}

function base64url(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64url')
}
