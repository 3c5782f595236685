import type { Cause } from '../../../storage/cause.js'
import { cutPage, type Page, type PageOf } from '../../../storage/page.js'
import type { Connection } from '../../../storage/sqlite/open.js'
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
import type { RecordEvent } from './audit.js'

/** UserRow with 0 and 1 for false and true. */
interface UserRecord extends Omit<UserRow, 'isDisabled'> {
  readonly isDisabled: number
}

const COLUMNS = `user_id AS userId, username, external_id AS externalId, nickname, avatar, password_hash AS passwordHash,
  is_disabled AS isDisabled, created_at_ms AS createdAtMs`

/** SQL: not deleted. */
const IS_THERE = 'is_deleted = 0'

export function userFinders(db: Connection) {
  const byName = db.prepare<[string], UserRecord>(
    // Index users_by_username.
    `SELECT ${COLUMNS} FROM users WHERE username = ? AND ${IS_THERE}`,
  )
  const byId = db.prepare<[string], UserRecord>(
    // Primary key.
    `SELECT ${COLUMNS} FROM users WHERE user_id = ? AND ${IS_THERE}`,
  )
  const byExternalId = db.prepare<[string], UserRecord>(
    // Index users_by_external_id.
    `SELECT ${COLUMNS} FROM users WHERE external_id = ? AND external_id <> '' AND ${IS_THERE}`,
  )
  return {
    findUser: (username: string) => toUser(byName.get(username)),
    findUserById: (userId: string) => toUser(byId.get(userId)),
    findUserByExternalId: (externalId: string) => toUser(byExternalId.get(externalId)),
  }
}

export function userReads(db: Connection) {
  const list = db.prepare<[string, number], UserRecord>(
    // Index users_by_username.
    `SELECT ${COLUMNS} FROM users WHERE username > ? AND ${IS_THERE} ORDER BY username LIMIT ?`,
  )
  const firstHash = db
    .prepare<[string], string>(
      // Index users_by_password_hash.
      "SELECT password_hash FROM users WHERE password_hash > ? AND password_hash <> '' ORDER BY password_hash LIMIT 1",
    )
    .pluck()
  const countHashes = db
    .prepare<[string, string], number>(
      // Index users_by_password_hash.
      "SELECT count(*) FROM users WHERE password_hash >= ? AND password_hash < ? AND password_hash <> ''",
    )
    .pluck()
  const findId = db.prepare<[string], 1>(
    // Primary key.
    'SELECT 1 FROM users WHERE user_id = ?',
  )
  return {
    ...userFinders(db),
    findPasswordHash: (behind: string) => firstHash.get(behind),
    countPasswordHashes: (beginning: string) => countHashes.get(beginning, behindAll(beginning)) ?? 0,
    isUserId: (userId: string) => findId.get(userId) !== undefined,
    listUsers(page: PageOf): Page<UserRow> {
      const rows = list.all(page.after ?? '', page.limit + 1).map((record) => toUser(record))
      return cutPage(rows, page.limit, (row) => row.username)
    },
  }
}

export type IsUnchangedUser = (userId: string, passwordHash: string) => boolean

/** Whether the user still has the password that was checked before and is not disabled, checked inside the transaction. */
export function unchangedUserFinder(db: Connection): IsUnchangedUser {
  const find = db.prepare<[string, string], 1>(
    // Primary key.
    'SELECT 1 FROM users WHERE user_id = ? AND password_hash = ? AND is_disabled = 0',
  )
  return (userId, passwordHash) => find.get(userId, passwordHash) !== undefined
}

/** The statement that stores a password hash of a user. */
export function passwordHashSetter(db: Connection) {
  return db.prepare<[string, string]>(
    // Primary key.
    'UPDATE users SET password_hash = ? WHERE user_id = ?',
  )
}

export function userWrites(
  db: Connection,
  record: RecordEvent,
  endUnusedCodesOfUser: (of: { readonly userId: string; readonly now: number }) => void,
  endGrantsOfUser: (userId: string, now: number, cause: Cause, note: string) => void,
) {
  const { findUser, findUserById, findUserByExternalId } = userFinders(db)
  const isUnchangedUser = unchangedUserFinder(db)
  const insert = db.prepare<[UserRecord]>(
    `INSERT INTO users (user_id, username, external_id, nickname, avatar, password_hash, is_disabled, is_deleted, created_at_ms)
     VALUES (:userId, :username, :externalId, :nickname, :avatar, :passwordHash, :isDisabled, 0, :createdAtMs)`,
  )
  const takeFromDeleted = db.prepare<[string]>(
    // Index users_by_external_id.
    `UPDATE users SET external_id = '' WHERE external_id = ? AND external_id <> '' AND is_deleted = 1`,
  )
  const update = db.prepare<[UserChange & { userId: string }]>(
    // Primary key.
    'UPDATE users SET external_id = :externalId, nickname = :nickname, avatar = :avatar WHERE user_id = :userId',
  )
  const setDisabled = db.prepare<[number, string]>(
    // Primary key.
    'UPDATE users SET is_disabled = ? WHERE user_id = ?',
  )
  const setPassword = passwordHashSetter(db)
  const erase = db.prepare<[{ username: string; userId: string } & typeof REMAINS]>(
    // Primary key.
    `UPDATE users SET username = :username, nickname = :nickname, avatar = :avatar, password_hash = :passwordHash,
       is_deleted = 1
     WHERE user_id = :userId`,
  )
  const removeSessions = db.prepare<[{ userId: string; allBut: Hash | null }]>(
    // Index sessions_by_user.
    'DELETE FROM sessions WHERE user_id = :userId AND session_hash IS NOT :allBut',
  )

  function replacePassword(userId: string, passwordHash: string, allBut: Hash | null, now: number, cause: Cause): void {
    setPassword.run(passwordHash, userId)
    removeSessions.run({ userId, allBut })
    endUnusedCodesOfUser({ userId, now })
    record({ kind: 'user.password_set', now, cause, userId })
  }

  return {
    createUser(user: UserRow, cause: Cause): 'created' | 'username_taken' | 'external_id_taken' {
      if (findUser(user.username)) return 'username_taken'
      if (findUserByExternalId(user.externalId)) return 'external_id_taken'
      takeFromDeleted.run(user.externalId)
      insert.run({ ...user, isDisabled: Number(user.isDisabled) })
      record({ kind: 'user.created', now: user.createdAtMs, cause, userId: user.userId, note: noteOnUser(user) })
      return 'created'
    },

    updateUser(
      userId: string,
      change: UserChange,
      now: number,
      cause: Cause,
    ): UserRow | 'external_id_taken' | undefined {
      const before = findUserById(userId)
      if (!before) return undefined
      const after = { ...before, ...change }
      const changed = changedOfUser(before, after)
      if (changed.length === 0) return before
      const { externalId, nickname, avatar } = after
      if (externalId !== before.externalId) {
        if (findUserByExternalId(externalId)) return 'external_id_taken'
        takeFromDeleted.run(externalId)
      }
      update.run({ userId, externalId, nickname, avatar })
      record({ kind: 'user.updated', now, cause, userId, note: changed.join(', ') })
      return after
    },

    setUserDisabled(userId: string, isDisabled: boolean, now: number, cause: Cause): UserRow | undefined {
      const before = findUserById(userId)
      if (!before || before.isDisabled === isDisabled) return before
      setDisabled.run(Number(isDisabled), userId)
      if (isDisabled) {
        removeSessions.run({ userId, allBut: null })
        endUnusedCodesOfUser({ userId, now })
      }
      record({ kind: isDisabled ? 'user.disabled' : 'user.enabled', now, cause, userId })
      return { ...before, isDisabled }
    },

    setUserPassword(userId: string, passwordHash: string, now: number, cause: Cause): boolean {
      if (!findUserById(userId)) return false
      replacePassword(userId, passwordHash, null, now, cause)
      return true
    },

    changePassword(
      { userId, passwordHash, newPasswordHash, sessionHash }: Parameters<TokenStore['changePassword']>[0],
      now: number,
      cause: Cause,
    ): boolean {
      if (!isUnchangedUser(userId, passwordHash)) return false
      replacePassword(userId, newPasswordHash, sessionHash, now, cause)
      return true
    },

    deleteUser(userId: string, now: number, cause: Cause): 'deleted' | 'not_found' | 'not_disabled' {
      const user = findUserById(userId)
      if (!user) return 'not_found'
      if (!user.isDisabled) return 'not_disabled'
      erase.run({ ...REMAINS, username: placeholderName(userId), userId })
      endGrantsOfUser(userId, now, cause, 'its user was deleted')
      record({ kind: 'user.deleted', now, cause, userId })
      return 'deleted'
    },
  }
}

function toUser(record: UserRecord): UserRow
function toUser(record: UserRecord | undefined): UserRow | undefined
function toUser(record: UserRecord | undefined): UserRow | undefined {
  return record && { ...record, isDisabled: record.isDisabled === 1 }
}
