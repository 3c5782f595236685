// TokenStore on SQLite. Reads are point lookups, done at once; writes go through a GroupCommit, which shares transactions
// among them. One file per noun holds both; nothing outside this folder knows a table.
import { GroupCommit, type GroupCommitOptions, writing } from '../../../sqlite/group-commit.js'
import { migrate } from '../../../sqlite/migrate.js'
import { type Connection, openDatabase, readAnything, reading, toStoreError } from '../../../sqlite/open.js'
import type { TokenStore } from '../token-store.js'
import { KeptRows } from './kept-rows.js'
import { tokenStoreReads } from './reads.js'
import { RequestCounts } from './request-counts.js'
import { tokenSchema } from './schema.js'
import { tokenStoreWrites } from './writes.js'

/**
 * Opens the token database of `file`, created and migrated as needed; `:memory:` for one that ends with the store.
 * @throws StoreUnavailable, DatabaseRefused
 */
export function openSqliteTokenStore(options: { file: string; onCommit?: GroupCommitOptions['onCommit'] }): TokenStore {
  const db = openDatabase(options.file)
  try {
    migrate(db, tokenSchema)
    const kept = new KeptRows(db)
    const writer = new GroupCommit(db, { onCommit: options.onCommit, watcher: kept })
    return createSqliteTokenStore(db, writer, kept)
  } catch (error) {
    db.close()
    throw toStoreError(error)
  }
}

/** The store over an open, migrated connection for its reads and a writer for its writes; closing it closes both. */
export function createSqliteTokenStore(db: Connection, writer: GroupCommit, kept: KeptRows): TokenStore {
  const reads = tokenStoreReads(db, kept)
  const writes = tokenStoreWrites(db, kept)
  const requestCounts = new RequestCounts()
  return {
    createApp: writing(writer, writes.createApp),
    findApp: reading(db, reads.findApp),
    listApps: reading(db, reads.listApps),
    updateApp: writing(writer, writes.updateApp),
    setAppDisabled: writing(writer, writes.setAppDisabled),
    addAppSecret: writing(writer, writes.addAppSecret),
    revokeAppSecret: writing(writer, writes.revokeAppSecret),
    listAppSecrets: reading(db, reads.listAppSecrets),

    createUser: writing(writer, writes.createUser),
    findUser: reading(db, reads.findUser),
    listUsers: reading(db, reads.listUsers),
    setUserDisabled: writing(writer, writes.setUserDisabled),
    setUserPassword: writing(writer, writes.setUserPassword),
    startSession: writing(writer, writes.startSession),
    findSession: reading(db, reads.findSession),
    touchSession: writing(writer, writes.touchSession),
    endSession: writing(writer, writes.endSession),

    issueCode: writing(writer, writes.issueCode),
    redeemCode: writing(writer, writes.redeemCode),
    mintAccessToken: writing(writer, writes.mintAccessToken),
    findAccessToken: reading(db, reads.findAccessToken),
    findAccessTokens: reading(db, reads.findAccessTokens),
    listGrants: reading(db, reads.listGrants),
    revokeGrant: writing(writer, writes.revokeGrant),
    disconnectApp: writing(writer, writes.disconnectApp),
    recordUses: writing(writer, writes.recordUses),

    listAuditEvents: reading(db, reads.listAuditEvents),
    countRequests: async (counts) => counts.map((count) => requestCounts.add(count)),
    removeRequestCounts: async (endedBeforeMs) => requestCounts.removeEnded(endedBeforeMs),
    removeEnded: writing(writer, writes.removeEnded),
    ping: reading(db, () => readAnything(db)),
    async close() {
      await writer.close()
      db.close()
    },
  }
}
