// What the endpoints' parameters have in common: their bounds (the same as in the proto) and grant_type.
import { Problem } from '../errors.js'
import type { Params } from '../query.js'

export const MAX_ID_LENGTH = 128 // appid, openid
export const MAX_CREDENTIAL_LENGTH = 512 // secret, code, tokens
export const MAX_REDIRECT_URI_LENGTH = 2048

const MAX_GRANT_TYPE_LENGTH = 128

/**
 * Before the parameters that belong to it: who asks for another grant has others.
 * @throws Problem invalid_grant_type, or invalid_argument when it is missing or malformed
 */
export function requireGrantType(query: Params, expected: string): void {
  const grantType = query.required('grant_type', MAX_GRANT_TYPE_LENGTH)
  if (grantType !== expected) throw new Problem('invalid_grant_type', `grant_type must be ${expected}`)
}
