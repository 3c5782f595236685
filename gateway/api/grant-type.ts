import { MAX_WORD_LENGTH } from '../bounds.js'
import { Problem } from '../errors.js'
import type { Params } from '../query.js'

/**
 * Called before the grant's own parameters are read: a request for another grant type has others.
 * @throws Problem invalid_grant_type, or invalid_argument when it is missing or malformed
 */
export function requireGrantType(query: Params, expected: string): void {
  const grantType = query.required('grant_type', MAX_WORD_LENGTH)
  if (grantType !== expected) throw new Problem('invalid_grant_type', `grant_type must be ${expected}`)
}
