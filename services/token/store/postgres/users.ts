import type { Cause } from '../../../storage/cause.js'
import { cutPage } from '../../../storage/page.js'
import type { Database, Statement, Transaction, Value } from '../../../storage/postgres/transaction.js'
import { ENDED_AT, IS_NOT_ENDED, MAX_CODE_TTL_MS } from '../ended-codes.js'
import {
  behindAll,
  changedOfUser,
  type Hash,
  noteOnUser,
  placeholderName,
  REMAINS,
  type TokenStore,
  type UserChange,
  type UserRow,
} from '../token-store.js'
import type { Audit } from './audit.js'
import { endGrants } from './grants.js'
import { lockUnchangedUser } from './locks.js'

type UserMethods = Pick<
  TokenStore,
  | 'createUser'
  | 'findUser'
  | 'findUserById'
  | 'findUserByExternalId'
  | 'findPasswordHash'
  | 'countPasswordHashes'
  | 'isUserId'
  | 'listUsers'
  | 'updateUser'
  | 'setUserDisabled'
  | 'setUserPassword'
  | 'changePassword'
  | 'deleteUser'
>

export const USER = `user_id AS "userId", username, external_id AS "externalId", nickname, avatar, password_hash AS "passwordHash",
  is_disabled AS "isDisabled", created_at_ms AS "createdAtMs"`

/** SQL: not deleted. */
export const IS_THERE = 'NOT is_deleted'

const insertUser: Statement = {
  name: 'insert_user',
  text: `
    INSERT INTO users
      (user_id, username, external_id, nickname, avatar, password_hash, is_disabled, is_deleted, created_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, false, $8)`,
}
/** By the index users_by_external_id, as is the next one. */
const takeExternalIdFromDeleted: Statement = {
  name: 'take_external_id_from_deleted',
  text: `UPDATE users SET external_id = '' WHERE external_id = $1 AND external_id <> '' AND is_deleted`,
}
const findUserByExternalId: Statement = {
  name: 'find_user_by_external_id',
  text: `SELECT ${USER} FROM users WHERE external_id = $1 AND external_id <> '' AND ${IS_THERE}`,
}
/** By the primary key. */
const findUserId: Statement = { name: 'find_user_id', text: 'SELECT 1 FROM users WHERE user_id = $1' }
const findUserById: Statement = {
  name: 'find_user_by_id',
  text: `SELECT ${USER} FROM users WHERE user_id = $1 AND ${IS_THERE}`,
}
/** By the index users_by_username, as is the next one. */
const findUser: Statement = { name: 'find_user', text: `SELECT ${USER} FROM users WHERE username = $1 AND ${IS_THERE}` }
/** By the index users_by_password_hash, as is the next one. */
const findPasswordHash: Statement = {
  name: 'find_password_hash',
  text: `
    SELECT password_hash AS "passwordHash" FROM users WHERE password_hash > $1 AND password_hash <> ''
    ORDER BY password_hash LIMIT 1`,
}
const countPasswordHashes: Statement = {
  name: 'count_password_hashes',
  text: `
    SELECT count(*)::int AS count FROM users
    WHERE password_hash >= $1 AND password_hash < $2 AND password_hash <> ''`,
}
const listUsers: Statement = {
  name: 'list_users',
  text: `SELECT ${USER} FROM users WHERE username > $1 AND ${IS_THERE} ORDER BY username LIMIT $2`,
}
export const lockUser: Statement = {
  name: 'lock_user',
  text: `SELECT ${USER} FROM users WHERE user_id = $1 AND ${IS_THERE} FOR NO KEY UPDATE`,
}
const updateUser: Statement = {
  name: 'update_user',
  text: 'UPDATE users SET external_id = $2, nickname = $3, avatar = $4 WHERE user_id = $1',
}
const setUserDisabled: Statement = {
  name: 'set_user_disabled',
  text: 'UPDATE users SET is_disabled = $2 WHERE user_id = $1',
}
export const setUserPassword: Statement = {
  name: 'set_user_password',
  text: 'UPDATE users SET password_hash = $2 WHERE user_id = $1',
}
const eraseUser: Statement = {
  name: 'erase_user',
  text: `
    UPDATE users SET username = $2, nickname = $3, avatar = $4, password_hash = $5, is_deleted = true
    WHERE user_id = $1`,
}
/** By the index grants_by_user. */
const lockAllGrantsOfUser: Statement = {
  name: 'lock_all_grants_of_user',
  text: `
    SELECT grant_id AS "grantId", appid FROM grants WHERE user_id = $1 AND revoked_at_ms IS NULL
    ORDER BY grant_id FOR NO KEY UPDATE`,
}
/** By the index sessions_by_user. $2: the one that stays, if it is not null. */
const deleteSessionsOfUser: Statement = {
  name: 'delete_sessions_of_user',
  text: 'DELETE FROM sessions WHERE user_id = $1 AND session_hash IS DISTINCT FROM $2',
}
/** By the index codes_by_user, once for every app. */
const endCodesOfUser: Statement = {
  name: 'end_codes_of_user',
  text: `
    UPDATE codes SET expires_at_ms = ${ENDED_AT}
    WHERE used_at_ms IS NULL AND ${IS_NOT_ENDED} AND appid IN (SELECT appid FROM apps) AND user_id = $1
      AND issued_at_ms > $2`,
}

function valuesOfUser(user: UserRow): Value[] {
  const { userId, username, externalId, nickname, avatar, passwordHash, isDisabled, createdAtMs } = user
  return [userId, username, externalId, nickname, avatar, passwordHash, isDisabled, createdAtMs]
}

/** As TokenStore.updateUser, within a transaction. */
export async function changeUser(
  transaction: Transaction,
  audit: Audit,
  userId: string,
  change: UserChange,
  now: number,
  cause: Cause,
): ReturnType<TokenStore['updateUser']> {
  const before = await transaction.askOne<UserRow>(lockUser, [userId])
  if (!before) return undefined
  const after = { ...before, ...change }
  if (changedOfUser(before, after).length === 0) return before
  const { externalId } = after
  if (externalId !== before.externalId) {
    if (await transaction.askOne(findUserByExternalId, [externalId])) return 'external_id_taken'
    transaction.write(takeExternalIdFromDeleted, [externalId])
  }
  writeProfile(transaction, audit, { before, after }, now, cause)
  return after
}

/** Of a user whose name and external_id are free. Fails if they no longer are, and then the transaction is repeated. */
export function writeNewUser(transaction: Transaction, audit: Audit, user: UserRow, cause: Cause): void {
  const { userId, externalId, createdAtMs } = user
  transaction.write(takeExternalIdFromDeleted, [externalId])
  transaction.write(insertUser, valuesOfUser(user))
  audit.write(transaction, createdAtMs, cause, { kind: 'user.created', userId, note: noteOnUser(user) })
}

/** Of a user who is locked and enabled. */
export function writeDisabled(transaction: Transaction, audit: Audit, userId: string, now: number, cause: Cause): void {
  transaction.write(setUserDisabled, [userId, true])
  endSessionsAndCodes(transaction, userId, now)
  audit.write(transaction, now, cause, { kind: 'user.disabled', userId })
}

/** Of a user who is locked. `sessionHash`: the session that goes on. */
export function writePassword(
  transaction: Transaction,
  audit: Audit,
  { userId, passwordHash }: Pick<UserRow, 'userId' | 'passwordHash'>,
  now: number,
  cause: Cause,
  sessionHash: Hash | null = null,
): void {
  transaction.write(setUserPassword, [userId, passwordHash])
  endSessionsAndCodes(transaction, userId, now, sessionHash)
  audit.write(transaction, now, cause, { kind: 'user.password_set', userId })
}

/** Of a user who is locked, whose row becomes `after`; its external_id is free. */
export function writeProfile(
  transaction: Transaction,
  audit: Audit,
  { before, after }: { readonly before: UserRow; readonly after: UserRow },
  now: number,
  cause: Cause,
): void {
  const { userId, externalId, nickname, avatar } = after
  transaction.write(updateUser, [userId, externalId, nickname, avatar])
  const note = changedOfUser(before, after).join(', ')
  audit.write(transaction, now, cause, { kind: 'user.updated', userId, note })
}

function endSessionsAndCodes(
  transaction: Transaction,
  userId: string,
  now: number,
  exceptHash: Hash | null = null,
): void {
  transaction.write(deleteSessionsOfUser, [userId, exceptHash])
  transaction.write(endCodesOfUser, [userId, now - MAX_CODE_TTL_MS])
}

export function createUserMethods(database: Database, audit: Audit): UserMethods {
  return {
    createUser(user, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const [ofName, ofExternalId] = await Promise.all([
          transaction.askOne(findUser, [user.username]),
          transaction.askOne(findUserByExternalId, [user.externalId]),
        ])
        if (ofName) return 'username_taken'
        if (ofExternalId) return 'external_id_taken'
        writeNewUser(transaction, audit, user, cause)
        return 'created'
      })
    },

    findUser: (username) => database.readOne<UserRow>(findUser, [username]),

    findUserById: (userId) => database.readOne<UserRow>(findUserById, [userId]),

    async findUserByExternalId(externalId) {
      return (await database.read<UserRow>(findUserByExternalId, [externalId]))[0]
    },

    async findPasswordHash(behind) {
      return (await database.read<UserRow>(findPasswordHash, [behind]))[0]?.passwordHash
    },

    async countPasswordHashes(beginning) {
      const [row] = await database.read<{ count: number }>(countPasswordHashes, [beginning, behindAll(beginning)])
      return row?.count ?? 0
    },

    async isUserId(userId) {
      return (await database.read(findUserId, [userId])).length > 0
    },

    async listUsers({ limit, after = '' }) {
      return cutPage(await database.read<UserRow>(listUsers, [after, limit + 1]), limit, (user) => user.username)
    },

    updateUser(userId, change, now, cause) {
      return database.causedTransaction(cause, (transaction) =>
        changeUser(transaction, audit, userId, change, now, cause),
      )
    },

    setUserDisabled(userId, isDisabled, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        // Waits for the redemptions, mintings and sign-ins in progress, which hold the row too.
        const before = await transaction.askOne<UserRow>(lockUser, [userId])
        if (!before || before.isDisabled === isDisabled) return before
        if (isDisabled) writeDisabled(transaction, audit, userId, now, cause)
        else {
          transaction.write(setUserDisabled, [userId, false])
          audit.write(transaction, now, cause, { kind: 'user.enabled', userId })
        }
        return { ...before, isDisabled }
      })
    },

    setUserPassword(userId, passwordHash, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        if (!(await transaction.askOne<UserRow>(lockUser, [userId]))) return false
        writePassword(transaction, audit, { userId, passwordHash }, now, cause)
        return true
      })
    },

    changePassword({ userId, passwordHash, newPasswordHash, sessionHash }, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        if (!(await transaction.askOne(lockUnchangedUser, [userId, passwordHash]))) return false
        writePassword(transaction, audit, { userId, passwordHash: newPasswordHash }, now, cause, sessionHash)
        return true
      })
    },

    deleteUser(userId, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        // In the order of redemptions: user, grants.
        const user = await transaction.askOne<UserRow>(lockUser, [userId])
        if (!user) return 'not_found'
        if (!user.isDisabled) return 'not_disabled'
        const { nickname, avatar, passwordHash } = REMAINS
        const grants = await transaction.ask<{ grantId: string; appid: string }>(lockAllGrantsOfUser, [userId])
        transaction.write(eraseUser, [userId, placeholderName(userId), nickname, avatar, passwordHash])
        const note = 'its user was deleted'
        endGrants(
          transaction,
          audit,
          grants.map((grant) => ({ ...grant, userId, note, now, cause })),
        )
        audit.write(transaction, now, cause, { kind: 'user.deleted', userId })
        return 'deleted'
      })
    },
  }
}
