import { MAX_WORD_LENGTH } from '../bounds.js'
import { Problem } from '../errors.js'
import type { Params } from '../query.js'

/**
 * Before the parameters that belong to it: who asks for another grant has others.
 * @throws Problem invalid_grant_type, or invalid_argument when it is missing or malformed
 */
export function requireGrantType(query: Params, expected: string): void {
  const grantType = query.required('grant_type', MAX_WORD_LENGTH)
  if (grantType !== expected) throw new Problem('invalid_grant_type', `grant_type must be ${expected}`)
}
