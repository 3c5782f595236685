// Validators of answers about access tokens, like HTTP's (RFC 9110 §8.8): a caller that keeps an answer sends its validator
// back and learns whether the answer still holds. The validator contains the whole question, so the service does not have to
// remember who keeps what.
// Layout: a 16-byte fingerprint of the answer, the digest of the token, and its place if it has one.
import { hash } from 'node:crypto'
import { byteKey } from '../collections/bounded-map.js'
import { onceForEach } from '../collections/once-for-each.js'
import { DigestedCredential, type PresentedCredential } from './credentials.js'
import type { AccessTokenRow } from './store/token-store.js'

const FINGERPRINT_BYTES = 16
const DIGEST_END = FINGERPRINT_BYTES + 32

export interface Validator {
  /** Of the row that was found; see fingerprintOf. */
  readonly fingerprint: string
  readonly token: DigestedCredential
}

/** The validator of answers about `token`, which was found as `row`. */
export function validatorOf(token: PresentedCredential, row: AccessTokenRow): Uint8Array {
  return Buffer.from(fingerprintOf(row) + token.digest + token.place, 'latin1')
}

/** Bytes that are no validator become one that matches nothing. */
export function readValidator(bytes: Uint8Array): Validator {
  const text = byteKey(bytes)
  const token = new DigestedCredential(text.slice(FINGERPRINT_BYTES, DIGEST_END), text.slice(DIGEST_END))
  return { fingerprint: text.slice(0, FINGERPRINT_BYTES), token }
}

/** 16 bytes, one character each, that differ whenever something differs that an answer says or depends on. */
export const fingerprintOf = onceForEach((row: AccessTokenRow): string => {
  const { grantId, appid, userId, openid, scope, nickname, avatar, expiresAtMs, isRevoked } = row
  const answered = [grantId, appid, userId, openid, scope, nickname, avatar, expiresAtMs, isRevoked]
  return hash('sha256', JSON.stringify(answered), 'binary').slice(0, FINGERPRINT_BYTES)
})
