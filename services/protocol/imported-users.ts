/** A user as another system knew them. */
export interface ImportedUser {
  /** Of the user that is made, if one is. */
  readonly userId: string
  /** A placeholder when the other system had no name. */
  readonly username: string
  /** Empty for none. */
  readonly externalId: string
  /** As is the next one: undefined to keep what is known, empty for none. */
  readonly nickname: string | undefined
  readonly avatar: string | undefined
  /** As it is stored; empty for none. */
  readonly passwordHash: string
  readonly isDisabled: boolean
  readonly createdAtMs: number
  readonly identities: readonly { readonly provider: string; readonly subject: string }[]
}

export interface ImportFacts {
  /** Whether a user who was deleted here had the external_id. */
  readonly wasDeleted: boolean
  /** Who has the external_id; the name. Nobody who is deleted, as in what follows. */
  readonly ofExternalId: KnownUser | undefined
  readonly ofUsername: KnownUser | undefined
  /** The user_id that each identity belongs to, in their order. */
  readonly owners: readonly (string | undefined)[]
}

type KnownUser = Omit<ImportedUser, 'identities'>

export interface ImportRules {
  /** What becomes of a user who is there already and differs. */
  readonly onExisting: 'fail' | 'skip' | 'update'
  /** Whether an update replaces the password too. */
  readonly replacesPasswords: boolean
  /** Nothing is stored. */
  readonly isDryRun: boolean
}

export type ImportVerdict =
  | { readonly outcome: 'created' }
  | ({ readonly outcome: 'updated'; readonly userId: string } & ImportChanges)
  | { readonly outcome: 'unchanged' | 'skipped'; readonly userId: string }
  | { readonly outcome: 'refused'; readonly reason: ImportRefusal }

export type ImportRefusal = 'deleted' | 'exists' | 'username_taken' | 'other_username' | 'identity_taken'

export interface ImportChanges {
  readonly profile: { readonly nickname?: string; readonly avatar?: string }
  readonly isDisabled: boolean
  /** Undefined to keep it. */
  readonly passwordHash: string | undefined
  readonly link: ImportedUser['identities']
}

/**
 * What becomes of a user in an import. The key is the external_id, or else the name: nobody is ever found by anything else,
 * and a user with an external_id not by the name. A user who has been disabled or deleted here stays so. (Decision 42.)
 */
export function judgeImport(user: ImportedUser, facts: ImportFacts, rules: ImportRules): ImportVerdict {
  const { externalId, username, userId } = user
  const isNamed = username !== `~${userId}`
  const existing = externalId === '' ? facts.ofUsername : facts.ofExternalId
  if (facts.owners.some((owner) => owner !== undefined && owner !== existing?.userId)) return refused('identity_taken')
  if (!existing && facts.wasDeleted) return refused('deleted')
  if (!existing) return facts.ofUsername ? refused('username_taken') : { outcome: 'created' }
  if (isNamed && existing.username !== username) return refused('other_username')
  const changes = changesOf(user, existing, facts, rules)
  if (isNothing(changes)) return { outcome: 'unchanged', userId: existing.userId }
  if (rules.onExisting === 'fail') return refused('exists')
  if (rules.onExisting === 'skip') return { outcome: 'skipped', userId: existing.userId }
  return { outcome: 'updated', userId: existing.userId, ...changes }
}

/** A user who was not there before. */
export function newUserOf(user: ImportedUser) {
  return { ...user, nickname: user.nickname ?? '', avatar: user.avatar ?? '' }
}

function changesOf(
  user: ImportedUser,
  existing: KnownUser,
  { owners }: ImportFacts,
  rules: ImportRules,
): ImportChanges {
  const { nickname, avatar, passwordHash } = user
  const isReplaced = rules.replacesPasswords && passwordHash !== '' && passwordHash !== existing.passwordHash
  return {
    profile: {
      ...(nickname !== undefined && nickname !== existing.nickname && { nickname }),
      ...(avatar !== undefined && avatar !== existing.avatar && { avatar }),
    },
    isDisabled: user.isDisabled && !existing.isDisabled,
    passwordHash: isReplaced ? passwordHash : undefined,
    link: user.identities.filter((_, index) => owners[index] === undefined),
  }
}

function isNothing({ profile, isDisabled, passwordHash, link }: ImportChanges): boolean {
  return Object.keys(profile).length === 0 && !isDisabled && passwordHash === undefined && link.length === 0
}

function refused(reason: ImportRefusal): ImportVerdict {
  return { outcome: 'refused', reason }
}
