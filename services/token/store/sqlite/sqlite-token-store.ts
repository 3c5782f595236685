// TokenStore on SQLite. Reads are point lookups on the caller's thread; writes go by name through a Writer, which shares
// transactions among them. One file per noun holds both; nothing outside this folder knows a table.
import { GroupCommit, type GroupCommitOptions, type Writer } from '../../../sqlite/group-commit.js'
import { migrate } from '../../../sqlite/migrate.js'
import { type Connection, openDatabase, readAnything, reading, toStoreError } from '../../../sqlite/open.js'
import type { TokenStore } from '../token-store.js'
import { KeptRows } from './kept-rows.js'
import { tokenStoreReads } from './reads.js'
import { RequestCounts } from './request-counts.js'
import { tokenSchema } from './schema.js'
import { type TokenStoreWrites, tokenStoreWrites } from './writes.js'

/**
 * Opens the token database of `file`, created and migrated as needed; `:memory:` for one that ends with the store.
 * @throws StoreUnavailable, SchemaMismatch
 */
export function openSqliteTokenStore(options: { file: string; onCommit?: GroupCommitOptions['onCommit'] }): TokenStore {
  const db = openDatabase(options.file)
  try {
    migrate(db, tokenSchema)
    const kept = new KeptRows(db)
    const writer = new GroupCommit(db, tokenStoreWrites(db, kept), { onCommit: options.onCommit, watcher: kept })
    return createSqliteTokenStore(db, writer, kept)
  } catch (error) {
    db.close()
    throw toStoreError(error)
  }
}

/** The store over an open, migrated connection for its reads and a writer for its writes; closing it closes both. */
export function createSqliteTokenStore(db: Connection, writer: Writer<TokenStoreWrites>, kept: KeptRows): TokenStore {
  const reads = tokenStoreReads(db, kept)
  const requestCounts = new RequestCounts()
  return {
    createApp: (app, secret, cause) => writer.submit('createApp', { app, secret, cause }),
    findApp: reading(db, reads.findApp),
    listApps: reading(db, reads.listApps),
    updateApp: (appid, change, now, cause) => writer.submit('updateApp', { appid, change, now, cause }),
    setAppDisabled: (appid, isDisabled, now, cause) =>
      writer.submit('setAppDisabled', { appid, isDisabled, now, cause }),
    addAppSecret: (secret, now, cause) => writer.submit('addAppSecret', { secret, now, cause }),
    revokeAppSecret: (appid, secretId, now, cause) => writer.submit('revokeAppSecret', { appid, secretId, now, cause }),
    listAppSecrets: reading(db, reads.listAppSecrets),

    createUser: (user, cause) => writer.submit('createUser', { user, cause }),
    findUser: reading(db, reads.findUser),
    listUsers: reading(db, reads.listUsers),
    setUserDisabled: (username, isDisabled, now, cause) =>
      writer.submit('setUserDisabled', { username, isDisabled, now, cause }),
    setUserPassword: (username, passwordHash, now, cause) =>
      writer.submit('setUserPassword', { username, passwordHash, now, cause }),
    startSession: (session, now, cause) => writer.submit('startSession', { session, now, cause }),
    findSession: reading(db, reads.findSession),
    touchSession: (sessionHash, now) => writer.submit('touchSession', { sessionHash, now }),
    endSession: (sessionHash, now, cause) => writer.submit('endSession', { sessionHash, now, cause }),

    issueCode: (code, now, cause) => writer.submit('issueCode', { code, now, cause }),
    redeemCode: (redemption, now, cause) => writer.submit('redeemCode', { redemption, now, cause }),
    mintAccessToken: (minting, now, cause) => writer.submit('mintAccessToken', { minting, now, cause }),
    findAccessToken: reading(db, reads.findAccessToken),
    findAccessTokens: reading(db, reads.findAccessTokens),
    listGrants: reading(db, reads.listGrants),
    revokeGrant: (grantId, now, cause) => writer.submit('revokeGrant', { grantId, now, cause }),
    disconnectApp: (grantId, userId, now, cause) => writer.submit('disconnectApp', { grantId, userId, now, cause }),
    recordUses: (uses) => writer.submit('recordUses', { uses }),

    listAuditEvents: reading(db, reads.listAuditEvents),
    countRequests: async (counts) => counts.map((count) => requestCounts.add(count)),
    removeRequestCounts: async (endedBeforeMs) => requestCounts.removeEnded(endedBeforeMs),
    removeEnded: (bounds) => writer.submit('removeEnded', { bounds }),
    ping: reading(db, () => readAnything(db)),
    async close() {
      await writer.close()
      db.close()
    },
  }
}
