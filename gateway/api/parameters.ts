// What the endpoints' parameters have in common: their bounds (the same as in the proto) and grant_type.
import { Problem } from '../errors.js'
import type { Params } from '../query.js'

export const MAX_ID_LENGTH = 128 // appid, openid
export const MAX_CREDENTIAL_LENGTH = 512 // secret, code, tokens
export const MAX_REDIRECT_URI_LENGTH = 2048

const MAX_GRANT_TYPE_LENGTH = 128

/** Reads `grant_type`, whose one allowed value is known only when every parameter has been found well-formed. */
export function readGrantType(query: Params): string {
  return query.required('grant_type', MAX_GRANT_TYPE_LENGTH)
}

/** @throws Problem invalid_grant_type */
export function checkGrantType(grantType: string, expected: string): void {
  if (grantType !== expected) throw new Problem('invalid_grant_type', `grant_type must be ${expected}`)
}
