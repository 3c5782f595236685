// Validators of answers about access tokens, as HTTP has them of responses (RFC 9110 §8.8): a caller that keeps an answer
// hands its validator back and learns whether the answer still holds. All that is asked is in the validator, so nothing is
// remembered of who keeps what.
// Layout: 16 bytes of what was answered, the digest of the token, and its place if it has one.
import { hash } from 'node:crypto'
import { byteKey } from '../collections/bounded-map.js'
import { onceForEach } from '../collections/once-for-each.js'
import { DigestedCredential, type PresentedCredential } from './credentials.js'
import type { AccessTokenRow } from './store/token-store.js'

const FINGERPRINT_BYTES = 16
const DIGEST_END = FINGERPRINT_BYTES + 32

export interface Validator {
  /** Of what was found; see fingerprintOf. */
  readonly fingerprint: string
  readonly token: DigestedCredential
}

/** Of the answers about `token`, which was found as `row`. */
export function validatorOf(token: PresentedCredential, row: AccessTokenRow): Uint8Array {
  return Buffer.from(fingerprintOf(row) + token.digest + token.place, 'latin1')
}

/** Of bytes that are no validator, one that stands for nothing. */
export function readValidator(bytes: Uint8Array): Validator {
  const text = byteKey(bytes)
  const token = new DigestedCredential(text.slice(FINGERPRINT_BYTES, DIGEST_END), text.slice(DIGEST_END))
  return { fingerprint: text.slice(0, FINGERPRINT_BYTES), token }
}

/** 16 bytes, a character each, that differ when anything does which an answer says or depends on. */
export const fingerprintOf = onceForEach((row: AccessTokenRow): string => {
  const { grantId, appid, userId, openid, scope, nickname, avatar, expiresAtMs, isRevoked } = row
  const answered = [grantId, appid, userId, openid, scope, nickname, avatar, expiresAtMs, isRevoked]
  return hash('sha256', JSON.stringify(answered), 'binary').slice(0, FINGERPRINT_BYTES)
})
