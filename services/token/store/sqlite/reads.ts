import type { Connection } from '../../../sqlite/open.js'
import { appReads } from './apps.js'
import { auditReads } from './audit.js'
import { grantReads } from './grants.js'
import type { KeptRows } from './kept-rows.js'
import { secretReads } from './secrets.js'
import { sessionReads } from './sessions.js'
import { tokenReads } from './tokens.js'
import { userReads } from './users.js'

/** Every read of the token store over one connection, its statements prepared. */
export function tokenStoreReads(db: Connection, kept: KeptRows) {
  return {
    ...appReads(db, kept),
    ...secretReads(db, kept),
    ...userReads(db),
    ...sessionReads(db),
    ...grantReads(db),
    ...tokenReads(db, kept),
    ...auditReads(db),
  }
}
