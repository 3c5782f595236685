import { type ImportedUser, judgeImport, newUserOf } from '../../../protocol/imported-users.js'
import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import type { TokenStore, UserRow } from '../token-store.js'
import type { Audit } from './audit.js'
import { writeIdentity } from './identities.js'
import { USER, writeDisabled, writeNewUser, writePassword, writeProfile } from './users.js'

/** By the indexes users_by_external_id and users_by_username. In the order of their ids, so that imports do not deadlock. */
const lockUsers: Statement = {
  name: 'lock_users_to_import',
  text: `
    SELECT ${USER}, is_deleted AS "isDeleted" FROM users
    WHERE (external_id = ANY($1::text[]) AND external_id <> '') OR username = ANY($2::text[])
    ORDER BY user_id FOR NO KEY UPDATE`,
}
/** By the primary keys of both tables. */
const findOwners: Statement = {
  name: 'find_owners_to_import',
  text: `
    SELECT i.provider, i.subject, i.user_id AS "userId"
    FROM unnest($1::text[], $2::text[]) AS asked (provider, subject)
    JOIN identities i ON i.provider = asked.provider AND i.subject = asked.subject
    JOIN users u ON u.user_id = i.user_id AND NOT u.is_deleted`,
}

interface OwnerRow {
  readonly provider: string
  readonly subject: string
  readonly userId: string
}

/** Reads what decides of all users at once, then judges one after the other. */
export function createImportMethods(database: Database, audit: Audit): Pick<TokenStore, 'importUsers'> {
  return {
    importUsers(users, rules, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const factsOf = await readFacts(transaction, users)
        const verdicts = users.map((user) => judgeImport(user, factsOf(user), rules))
        if (rules.isDryRun) return verdicts
        for (const [index, verdict] of verdicts.entries()) {
          const user = users[index] as ImportedUser
          if (verdict.outcome === 'created') {
            writeNewUser(transaction, audit, newUserOf(user), cause)
            for (const identity of user.identities) {
              writeIdentity(transaction, audit, { ...identity, userId: user.userId }, now, cause)
            }
          }
          if (verdict.outcome === 'updated') {
            const { userId, profile, passwordHash } = verdict
            const { ofExternalId, ofUsername } = factsOf(user)
            const before = (ofExternalId ?? ofUsername) as UserRow // who is updated
            const isChanged = Object.keys(profile).length > 0
            if (isChanged) writeProfile(transaction, audit, { before, after: { ...before, ...profile } }, now, cause)
            if (verdict.isDisabled) writeDisabled(transaction, audit, userId, now, cause)
            if (passwordHash !== undefined) writePassword(transaction, audit, { userId, passwordHash }, now, cause)
            for (const identity of verdict.link) writeIdentity(transaction, audit, { ...identity, userId }, now, cause)
          }
        }
        return verdicts
      })
    },
  }
}

async function readFacts(transaction: Transaction, users: readonly ImportedUser[]) {
  const identities = users.flatMap((user) => user.identities)
  const [found, owners] = await Promise.all([
    transaction.ask<UserRow & { readonly isDeleted: boolean }>(lockUsers, [
      users.map((user) => user.externalId),
      users.map((user) => user.username),
    ]),
    transaction.ask<OwnerRow>(findOwners, [identities.map((of) => of.provider), identities.map((of) => of.subject)]),
  ])
  const known = found.filter((user) => !user.isDeleted)
  const deletedIds = new Set(found.filter((user) => user.isDeleted).map((user) => user.externalId))
  const byExternalId = new Map(known.map((user) => [user.externalId, user]))
  const byUsername = new Map(known.map((user) => [user.username, user]))
  const keyOf = (provider: string, subject: string) => JSON.stringify([provider, subject])
  const ownerOf = new Map(owners.map((owner) => [keyOf(owner.provider, owner.subject), owner.userId]))
  return (user: ImportedUser) => ({
    wasDeleted: user.externalId !== '' && deletedIds.has(user.externalId),
    ofExternalId: user.externalId === '' ? undefined : byExternalId.get(user.externalId),
    ofUsername: byUsername.get(user.username),
    owners: user.identities.map(({ provider, subject }) => ownerOf.get(keyOf(provider, subject))),
  })
}
