import { judgeUnlinking } from '../../../protocol/unlinking.js'
import type { Cause } from '../../../storage/cause.js'
import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import { type Identity, type IdentityRow, noteOnIdentity, type TokenStore, type UserRow } from '../token-store.js'
import type { Audit } from './audit.js'
import { lockUser } from './users.js'

type IdentityMethods = Pick<TokenStore, 'linkIdentity' | 'unlinkIdentity' | 'unlinkOwnIdentity' | 'listIdentities'>

/** By the primary keys of both tables. */
const findOwner: Statement = {
  name: 'find_owner_of_identity',
  text: `
    SELECT u.user_id AS "userId", u.is_deleted AS "isDeleted" FROM identities i JOIN users u ON u.user_id = i.user_id
    WHERE i.provider = $1 AND i.subject = $2`,
}
const deleteIdentity: Statement = {
  name: 'delete_identity',
  text: 'DELETE FROM identities WHERE provider = $1 AND subject = $2 RETURNING user_id AS "userId"',
}
const insertIdentity: Statement = {
  name: 'insert_identity',
  text: `
    INSERT INTO identities (provider, subject, user_id, created_at_ms, last_used_at_ms)
    VALUES ($1, $2, $3, $4, 0)`,
}
/** By the primary keys of both tables. Whose identity it is that is not deleted keeps it. */
const takeIdentityFromDeleted: Statement = {
  name: 'take_identity_from_deleted',
  text: `
    DELETE FROM identities i USING users u
    WHERE i.provider = $1 AND i.subject = $2 AND u.user_id = i.user_id AND u.is_deleted`,
}
/** By the index identities_by_user. */
const listIdentities: Statement = {
  name: 'list_identities',
  text: `
    SELECT provider, subject, user_id AS "userId", created_at_ms AS "createdAtMs", last_used_at_ms AS "lastUsedAtMs"
    FROM identities WHERE user_id = $1 ORDER BY provider, subject`,
}

/** Of an identity that is nobody's, or a deleted user's. As writeNewUser, fails where another has linked it meanwhile. */
export function writeIdentity(
  transaction: Transaction,
  audit: Audit,
  { provider, subject, userId }: Identity & { readonly userId: string },
  now: number,
  cause: Cause,
): void {
  transaction.write(takeIdentityFromDeleted, [provider, subject])
  transaction.write(insertIdentity, [provider, subject, userId, now])
  audit.write(transaction, now, cause, { kind: 'identity.linked', userId, note: noteOnIdentity({ provider, subject }) })
}

export function createIdentityMethods(database: Database, audit: Audit): IdentityMethods {
  return {
    linkIdentity(identity, userId, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const { provider, subject } = identity
        const [user, owner] = await Promise.all([
          transaction.askOne(lockUser, [userId]),
          transaction.askOne<{ userId: string; isDeleted: boolean }>(findOwner, [provider, subject]),
        ])
        if (!user) return 'not_found'
        if (owner?.userId === userId) return 'already_linked'
        if (owner && !owner.isDeleted) return 'taken'
        writeIdentity(transaction, audit, { provider, subject, userId }, now, cause)
        return 'linked'
      })
    },

    unlinkIdentity(identity, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const [removed] = await transaction.write<{ userId: string }>(deleteIdentity, [
          identity.provider,
          identity.subject,
        ])
        if (!removed) return undefined
        const { userId } = removed
        audit.write(transaction, now, cause, { kind: 'identity.unlinked', userId, note: noteOnIdentity(identity) })
        return userId
      })
    },

    unlinkOwnIdentity(identity, userId, ways, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const user = await transaction.askOne<UserRow>(lockUser, [userId])
        const identities = await transaction.ask<IdentityRow>(listIdentities, [userId])
        const verdict = user ? judgeUnlinking(identity, { ...user, identities }, ways) : 'not_found'
        if (verdict !== 'unlinked') return verdict
        transaction.write(deleteIdentity, [identity.provider, identity.subject])
        audit.write(transaction, now, cause, { kind: 'identity.unlinked', userId, note: noteOnIdentity(identity) })
        return verdict
      })
    },

    listIdentities: (userId) => database.read<IdentityRow>(listIdentities, [userId]),
  }
}
