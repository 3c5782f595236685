import { ForeignWrites } from '../../../storage/sqlite/foreign-writes.js'
import { Kept } from '../../../storage/sqlite/kept.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { MAX_KEPT_BYTES } from '../kept-sizes.js'

/**
 * Surveys and lists that were read, kept until anything is written to the database: writes of ours forget them all. Reading the
 * same again returns the same objects, so that callers can keep what they made of them. Why they are never stale: see
 * kept-rows.ts of the token store.
 */
export function keptSurveys(db: Connection): Kept<object> {
  const kept = new Kept<object>(new ForeignWrites(db, () => kept.forgetAll()), MAX_KEPT_BYTES)
  return kept
}
