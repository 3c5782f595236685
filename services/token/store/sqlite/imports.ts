import {
  type ImportedUser,
  type ImportRules,
  type ImportVerdict,
  judgeImport,
  newUserOf,
} from '../../../protocol/imported-users.js'
import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { type identityWrites, ownerFinder } from './identities.js'
import { userFinders, type userWrites } from './users.js'

type Writes = ReturnType<typeof userWrites> & ReturnType<typeof identityWrites>

export function importWrites(db: Connection, writes: Writes) {
  const { findUser, findUserByExternalId } = userFinders(db)
  const findOwner = ownerFinder(db)
  const findDeleted = db.prepare<[string], 1>(
    // Index users_by_external_id.
    `SELECT 1 FROM users WHERE external_id = ? AND external_id <> '' AND is_deleted = 1`,
  )

  function importUser(user: ImportedUser, rules: ImportRules, now: number, cause: Cause): ImportVerdict {
    const facts = {
      wasDeleted: findDeleted.get(user.externalId) !== undefined,
      ofExternalId: findUserByExternalId(user.externalId),
      ofUsername: findUser(user.username),
      owners: user.identities.map(findOwner),
    }
    const verdict = judgeImport(user, facts, rules)
    if (rules.isDryRun) return verdict
    if (verdict.outcome === 'created') {
      writes.createUser(newUserOf(user), cause)
      for (const identity of user.identities) writes.linkIdentity(identity, user.userId, now, cause)
    }
    if (verdict.outcome === 'updated') {
      const { userId, profile, isDisabled, passwordHash, link } = verdict
      writes.updateUser(userId, profile, now, cause)
      if (isDisabled) writes.setUserDisabled(userId, true, now, cause)
      if (passwordHash !== undefined) writes.setUserPassword(userId, passwordHash, now, cause)
      for (const identity of link) writes.linkIdentity(identity, userId, now, cause)
    }
    return verdict
  }

  return {
    importUsers: (users: readonly ImportedUser[], rules: ImportRules, now: number, cause: Cause) =>
      users.map((user) => importUser(user, rules, now, cause)),
  }
}
