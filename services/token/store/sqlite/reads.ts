import type { Connection } from '../../../sqlite/open.js'
import { appReads } from './apps.js'
import { auditReads } from './audit.js'
import { grantReads } from './grants.js'
import { secretReads } from './secrets.js'
import { sessionReads } from './sessions.js'
import { tokenReads } from './tokens.js'
import { userReads } from './users.js'
import type { VerifiedTokens } from './verified-tokens.js'

/** Every read of the token store over one connection, its statements prepared. */
export function tokenStoreReads(db: Connection, verified: VerifiedTokens) {
  return {
    ...appReads(db),
    ...secretReads(db),
    ...userReads(db),
    ...sessionReads(db),
    ...grantReads(db),
    ...tokenReads(db, verified),
    ...auditReads(db),
  }
}
