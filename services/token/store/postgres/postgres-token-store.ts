// The token store on PostgreSQL, for services on more than one machine. Each method is one transaction at READ COMMITTED
// of one or two round trips: the first locks the rows that decide, in the order given in locks.ts, the second changes them.
// It uses no sequences and no advisory locks, so that other databases with PostgreSQL's protocol work too.

import { openDatabase } from '../../../storage/postgres/open.js'
import type { PoolOptions } from '../../../storage/postgres/pool.js'
import type { TokenStore } from '../token-store.js'
import { createAppFaceMethods } from './app-faces.js'
import { createAppMethods } from './apps.js'
import { Audit, createAuditMethods } from './audit.js'
import { createCodeMethods } from './codes.js'
import { createGrantMethods } from './grants.js'
import { createIdentityMethods } from './identities.js'
import { createImportMethods } from './imports.js'
import { createRequestCountMethods } from './request-counts.js'
import { tokenSchema } from './schema.js'
import { createSecretMethods } from './secrets.js'
import { createSessionMethods } from './sessions.js'
import { createSignInMethods } from './sign-ins.js'
import { createTokenMethods } from './tokens.js'
import { createUpkeepMethods } from './upkeep.js'
import { createUserMethods } from './users.js'
import { createUseMethods } from './uses.js'

/** Connects and brings the schema up to date. @throws StoreUnavailable, DatabaseRefused */
export async function openPostgresTokenStore(options: PoolOptions): Promise<TokenStore> {
  const database = await openDatabase(options, tokenSchema)
  const audit = new Audit()
  return {
    ...createAppMethods(database, audit),
    ...createAppFaceMethods(database),
    ...createSecretMethods(database, audit),
    ...createUserMethods(database, audit),
    ...createIdentityMethods(database, audit),
    ...createImportMethods(database, audit),
    ...createSessionMethods(database, audit),
    ...createSignInMethods(database, audit),
    ...createCodeMethods(database, audit),
    ...createTokenMethods(database, audit),
    ...createGrantMethods(database, audit),
    ...createUseMethods(database),
    ...createRequestCountMethods(database),
    ...createAuditMethods(database),
    ...createUpkeepMethods(database),
  }
}
