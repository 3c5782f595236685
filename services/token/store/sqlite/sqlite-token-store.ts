// TokenStore on SQLite. Reads are synchronous point lookups; writes go through a GroupCommit and share its transactions. Each
// noun has a file with its reads and writes; nothing outside this folder knows a table.

import { cleanUps } from '../../../storage/sqlite/clean-ups.js'
import { causedWriting, GroupCommit, type GroupCommitOptions, writing } from '../../../storage/sqlite/group-commit.js'
import { migrate } from '../../../storage/sqlite/migrate.js'
import { type Connection, fileProbe, openDatabase, reading, toStoreError } from '../../../storage/sqlite/open.js'
import type { TokenStore } from '../token-store.js'
import { aheadWrites } from './ahead.js'
import { appFaceReads } from './app-faces.js'
import { appReads, appWrites } from './apps.js'
import { auditReads, eventRecorder } from './audit.js'
import { codeWrites, unusedCodeEnders, unusedCodeFinder } from './codes.js'
import { grantEnder, grantReads, grantWrites, userGrantsEnder } from './grants.js'
import { identityReads, identityWrites } from './identities.js'
import { importWrites } from './imports.js'
import { KeptTokens } from './kept-tokens.js'
import { RequestCounts } from './request-counts.js'
import { tokenSchema } from './schema.js'
import { authenticationFinder, secretInserter, secretReads, secretWrites } from './secrets.js'
import { openSessionFinder, sessionReads, sessionWrites } from './sessions.js'
import { signInReads, signInWrites } from './sign-ins.js'
import { tokenReads, tokenWrites } from './tokens.js'
import { upkeepWrites } from './upkeep.js'
import { unchangedUserFinder, userFinders, userReads, userWrites } from './users.js'
import { fewAtATime, useWrites } from './uses.js'

/**
 * Opens the token database in `file`, creating and migrating it as needed; `:memory:` for one that ends with the store.
 * @throws StoreUnavailable, DatabaseRefused, or the system's error
 */
export function openSqliteTokenStore(options: { file: string; onCommit?: GroupCommitOptions['onCommit'] }): TokenStore {
  const db = openDatabase(options.file)
  try {
    migrate(db, tokenSchema)
    return createSqliteTokenStore(db, new GroupCommit(db, { onCommit: options.onCommit }))
  } catch (error) {
    db.close()
    throw toStoreError(error, options.file)
  }
}

/** The store over an open, migrated connection for its reads and a writer for its writes; closing it closes both. */
export function createSqliteTokenStore(db: Connection, writer: GroupCommit): TokenStore {
  const kept = new KeptTokens(db)
  const reads = tokenStoreReads(db, kept)
  const writes = tokenStoreWrites(db, kept)
  const requestCounts = new RequestCounts()
  return {
    createApp: causedWriting(writer, writes.createApp),
    findApp: reading(db, reads.findApp),
    isAppid: reading(db, reads.isAppid),
    listApps: reading(db, reads.listApps),
    updateApp: causedWriting(writer, writes.updateApp),
    findAppFace: reading(db, reads.findAppFace),
    findAppLogo: reading(db, reads.findAppLogo),
    setAppDisabled: causedWriting(writer, writes.setAppDisabled),
    deleteApp: causedWriting(writer, writes.deleteApp),
    addAppSecret: causedWriting(writer, writes.addAppSecret),
    revokeAppSecret: causedWriting(writer, writes.revokeAppSecret),
    listAppSecrets: reading(db, reads.listAppSecrets),

    createUser: causedWriting(writer, writes.createUser),
    findUser: reading(db, reads.findUser),
    findUserById: reading(db, reads.findUserById),
    findUserByExternalId: reading(db, reads.findUserByExternalId),
    findPasswordHash: reading(db, reads.findPasswordHash),
    countPasswordHashes: reading(db, reads.countPasswordHashes),
    isUserId: reading(db, reads.isUserId),
    listUsers: reading(db, reads.listUsers),
    updateUser: causedWriting(writer, writes.updateUser),
    setUserDisabled: causedWriting(writer, writes.setUserDisabled),
    setUserPassword: causedWriting(writer, writes.setUserPassword),
    changePassword: causedWriting(writer, writes.changePassword),
    deleteUser: causedWriting(writer, writes.deleteUser),
    linkIdentity: causedWriting(writer, writes.linkIdentity),
    importUsers: causedWriting(writer, writes.importUsers),
    unlinkIdentity: causedWriting(writer, writes.unlinkIdentity),
    unlinkOwnIdentity: causedWriting(writer, writes.unlinkOwnIdentity),
    listIdentities: reading(db, reads.listIdentities),
    endSessions: causedWriting(writer, writes.endSessions),
    endProviderSessions: causedWriting(writer, writes.endProviderSessions),
    listSessions: reading(db, reads.listSessions),
    startSession: causedWriting(writer, writes.startSession),
    findSession: reading(db, reads.findSession),
    touchSession: writing(writer, writes.touchSession),
    endSession: causedWriting(writer, writes.endSession),

    beginSignIn: causedWriting(writer, writes.beginSignIn),
    findSignIn: reading(db, reads.findSignIn),
    acceptSignIn: causedWriting(writer, writes.acceptSignIn),
    rejectSignIn: causedWriting(writer, writes.rejectSignIn),
    completeSignIn: causedWriting(writer, writes.completeSignIn),
    removeSignIns: writing(writer, writes.removeSignIns),

    issueCode: causedWriting(writer, writes.issueCode),
    redeemCode: causedWriting(writer, writes.redeemCode),
    mintAccessToken: causedWriting(writer, writes.mintAccessToken),
    findAccessToken: reading(db, reads.findAccessToken),
    listGrants: reading(db, reads.listGrants),
    revokeGrant: causedWriting(writer, writes.revokeGrant),
    disconnectApp: causedWriting(writer, writes.disconnectApp),
    recordUses: fewAtATime(writing(writer, writes.recordUses)),

    listAuditEvents: reading(db, reads.listAuditEvents),
    countRequests: async (counts) => counts.map((count) => requestCounts.add(count)),
    removeRequestCounts: async ({ endedBeforeMs }) => requestCounts.removeEnded(endedBeforeMs),
    removeEnded: writing(writer, writes.removeEnded),
    shortenAhead: writing(writer, writes.shortenAhead),
    ...cleanUps(db, writer),
    ping: reading(db, fileProbe(db)),
    async close() {
      await writer.close()
      kept.forgetAll()
      db.close()
    },
  }
}

/** Every read of the token store over one connection, its statements prepared. */
export function tokenStoreReads(db: Connection, kept: KeptTokens) {
  return {
    ...appReads(db),
    ...appFaceReads(db),
    ...secretReads(db),
    ...userReads(db),
    ...identityReads(db),
    ...sessionReads(db),
    ...signInReads(db),
    ...grantReads(db),
    ...tokenReads(db, kept),
    ...auditReads(db),
  }
}

/** Every write of the token store over one connection, its statements prepared: each runs inside a transaction. */
export function tokenStoreWrites(db: Connection, kept: KeptTokens) {
  const record = eventRecorder(db, kept)
  const insertSecret = secretInserter(db)
  const findAuthentication = authenticationFinder(db)
  const unusedCodes = unusedCodeEnders(db)
  const endGrant = grantEnder(db, record)
  const { listGrants } = grantReads(db)
  const hasLiveGrant = (of: { readonly appid: string; readonly liveAtMs: number }) =>
    listGrants(of, { limit: 1, after: undefined }).rows.length > 0
  const isUnchangedUser = unchangedUserFinder(db)
  const isOpenSession = openSessionFinder(db)
  const secrets = secretWrites(db, record, insertSecret)
  const { findUserById } = userFinders(db)
  const users = userWrites(db, record, unusedCodes.ofUser, userGrantsEnder(db, endGrant))
  const identities = identityWrites(db, record, findUserById)
  const sessions = sessionWrites(db, record, isUnchangedUser)
  return {
    ...appWrites(db, record, insertSecret, secrets.addAppSecret, unusedCodes, hasLiveGrant, unusedCodeFinder(db)),
    ...secrets,
    ...users,
    ...identities,
    ...sessions,
    ...signInWrites(db, record, { isOpenSession, ...users, ...identities, ...sessions }),
    ...importWrites(db, { ...users, ...identities }),
    ...codeWrites(db, { record, findAuthentication, isOpenSession, endGrant }),
    ...tokenWrites(db, { record, findAuthentication }),
    ...grantWrites(db, endGrant, unusedCodes.ofAppAndUser),
    ...useWrites(db, kept),
    ...upkeepWrites(db, kept),
    ...aheadWrites(db, kept),
  }
}
