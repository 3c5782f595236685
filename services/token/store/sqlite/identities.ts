import { judgeUnlinking, type OpenWays, type UnlinkingVerdict } from '../../../protocol/unlinking.js'
import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { type Identity, type IdentityRow, noteOnIdentity, type UserRow } from '../token-store.js'
import type { RecordEvent } from './audit.js'

export function identityReads(db: Connection) {
  const list = db.prepare<[string], IdentityRow>(
    // Index identities_by_user.
    `SELECT provider, subject, user_id AS userId, created_at_ms AS createdAtMs, last_used_at_ms AS lastUsedAtMs
     FROM identities WHERE user_id = ? ORDER BY provider, subject`,
  )
  return {
    listIdentities: (userId: string) => list.all(userId),
  }
}

interface Owner {
  readonly userId: string
  readonly isDisabled: number
  readonly isDeleted: number
}

/** The statement that finds whose an identity is, be the user deleted. */
export function ownerStatement(db: Connection) {
  return db.prepare<[string, string], Owner>(
    // Primary keys of both tables.
    `SELECT u.user_id AS userId, u.is_disabled AS isDisabled, u.is_deleted AS isDeleted
     FROM identities i JOIN users u ON u.user_id = i.user_id
     WHERE i.provider = ? AND i.subject = ?`,
  )
}

/** The user, who is not deleted, whose identity it is. */
export function ownerFinder(db: Connection) {
  const find = ownerStatement(db)
  return ({ provider, subject }: Identity): string | undefined => {
    const owner = find.get(provider, subject)
    return owner?.isDeleted === 0 ? owner.userId : undefined
  }
}

export function identityWrites(
  db: Connection,
  record: RecordEvent,
  findUserById: (userId: string) => UserRow | undefined,
) {
  const findOwner = ownerStatement(db)
  const { listIdentities } = identityReads(db)
  const put = db.prepare<[Identity & { userId: string; now: number }]>(
    // Primary key.
    `INSERT OR REPLACE INTO identities (provider, subject, user_id, created_at_ms, last_used_at_ms)
     VALUES (:provider, :subject, :userId, :now, 0)`,
  )
  const remove = db
    .prepare<[string, string], string>(
      // Primary key.
      'DELETE FROM identities WHERE provider = ? AND subject = ? RETURNING user_id',
    )
    .pluck()

  const use = db.prepare<[{ provider: string; subject: string; now: number }]>(
    // Primary key.
    `UPDATE identities SET last_used_at_ms = :now
     WHERE provider = :provider AND subject = :subject AND last_used_at_ms < :now`,
  )

  return {
    useIdentity({ provider, subject }: Identity, now: number): void {
      use.run({ provider, subject, now })
    },

    linkIdentity(
      { provider, subject }: Identity,
      userId: string,
      now: number,
      cause: Cause,
    ): 'linked' | 'already_linked' | 'taken' | 'not_found' {
      if (!findUserById(userId)) return 'not_found'
      const owner = findOwner.get(provider, subject)
      if (owner?.userId === userId) return 'already_linked'
      if (owner && owner.isDeleted === 0) return 'taken'
      put.run({ provider, subject, userId, now })
      record({ kind: 'identity.linked', now, cause, userId, note: noteOnIdentity({ provider, subject }) })
      return 'linked'
    },

    unlinkIdentity({ provider, subject }: Identity, now: number, cause: Cause): string | undefined {
      const userId = remove.get(provider, subject)
      if (userId === undefined) return undefined
      record({ kind: 'identity.unlinked', now, cause, userId, note: noteOnIdentity({ provider, subject }) })
      return userId
    },

    unlinkOwnIdentity(
      { provider, subject }: Identity,
      userId: string,
      ways: OpenWays,
      now: number,
      cause: Cause,
    ): UnlinkingVerdict {
      const user = findUserById(userId)
      const identity = { provider, subject }
      const verdict = user
        ? judgeUnlinking(identity, { ...user, identities: listIdentities(userId) }, ways)
        : 'not_found'
      if (verdict !== 'unlinked') return verdict
      remove.run(provider, subject)
      record({ kind: 'identity.unlinked', now, cause, userId, note: noteOnIdentity(identity) })
      return verdict
    },
  }
}
