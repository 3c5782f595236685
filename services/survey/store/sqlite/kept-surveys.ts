// Surveys and lists that were read, kept until anything is written to the database. Who reads the same again is given the
// same objects, so that those above can keep what they made of them.
//
// Why it is never stale: as kept-rows.ts says of tokens.
import { ForeignWrites } from '../../../sqlite/foreign-writes.js'
import { Kept } from '../../../sqlite/kept.js'
import type { Connection } from '../../../sqlite/open.js'
import { MAX_KEPT_BYTES } from '../kept-sizes.js'

export class KeptSurveys extends Kept<object> {
  constructor(db: Connection) {
    super(new ForeignWrites(db, () => this.forgetAll()), MAX_KEPT_BYTES)
  }
}
