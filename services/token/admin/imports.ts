// Users as another system knew them.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import {
  type AdminService,
  type ImportedUser as ImportedUserMessage,
  ImportOutcome,
  type ImportResultSchema,
  OnExisting,
} from '../../../gen/surveyauth/v1/admin_service_pb.js'
import type { ImportedUser, ImportRefusal, ImportRules, ImportVerdict } from '../../protocol/imported-users.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { idOfRequest } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import { toStoredHash } from '../password/notations.js'
import { UnusableHash } from '../password/stored-hash.js'
import { passwordHashKinds } from '../password/time-floor.js'
import { placeholderName } from '../store/token-store.js'
import { byOperator } from './apps.js'

type ImportMethods = Pick<Handlers<typeof AdminService>, 'importUsers' | 'listPasswordHashes'>
type Result = MessageInitShape<typeof ImportResultSchema>

const ON_EXISTING: Readonly<Record<OnExisting, ImportRules['onExisting']>> = {
  [OnExisting.UNSPECIFIED]: 'fail',
  [OnExisting.SKIP]: 'skip',
  [OnExisting.UPDATE]: 'update',
}

const OUTCOMES = {
  created: ImportOutcome.CREATED,
  updated: ImportOutcome.UPDATED,
  unchanged: ImportOutcome.UNCHANGED,
  skipped: ImportOutcome.SKIPPED,
} as const

const REASONS: Readonly<Record<ImportRefusal, string>> = {
  deleted: 'the user was deleted here; user create with that external_id makes a new one',
  exists: 'the user is there already, and differs',
  username_taken: 'another user has this username',
  other_username: 'the user is there already, with another username',
  identity_taken: "an identity is another user's",
}

export function createImportMethods(deps: TokenDeps): ImportMethods {
  return {
    async importUsers({ users, onExisting, replacePasswords, dryRun, anyCost }, call) {
      const now = deps.now()
      const rules = {
        onExisting: ON_EXISTING[onExisting],
        replacesPasswords: replacePasswords,
        isDryRun: dryRun,
      }
      const known = new Set<string>()
      const read = await deps.passwords.inQueue(async ({ hash }) => {
        const all: (ImportedUser | string)[] = []
        for (const user of users) all.push(await readUser(deps, user, { known, hash, anyCost, now }))
        return all
      })
      const toStore = read.filter((user) => typeof user !== 'string')
      const verdicts = await deps.store.importUsers(toStore, rules, now, byOperator(call))
      const isNewHash = toStore.some(({ passwordHash }) => passwordHash !== '' && !deps.passwords.isOwn(passwordHash))
      // Too many sign-ins at once fail it, and not the import, which is committed: the janitor measures as well.
      if (isNewHash && !dryRun) await deps.timeFloor.measure().catch(() => undefined)
      const results = verdicts.map((verdict, index) => toResult(verdict, toStore[index] as ImportedUser, dryRun))
      return { results: read.map((user) => (typeof user === 'string' ? refused(user) : (results.shift() as Result))) }
    },

    async listPasswordHashes() {
      const hashes = []
      for await (const { kind, beginning, passwordHash } of passwordHashKinds(deps.store)) {
        const users = await deps.store.countPasswordHashes(beginning)
        hashes.push({ kind, users, own: deps.passwords.isOwn(passwordHash) })
      }
      return { hashes }
    },
  }
}

interface Reading {
  /** Names, ids and identities of the users before this one. */
  readonly known: Set<string>
  readonly hash: (text: string) => Promise<string>
  readonly anyCost: boolean
  readonly now: number
}

/** The user as they are stored, or why they cannot be. */
async function readUser(
  { randomBytes }: TokenDeps,
  user: ImportedUserMessage,
  { known, hash, anyCost, now }: Reading,
): Promise<ImportedUser | string> {
  const { username, externalId, nickname, avatar, passwordHash, disabled, identities, createTime } = user
  if (username === '' && externalId === '') return 'needs an external_id or a username'
  if (passwordHash !== '' && username === '') return 'a password needs a username to sign in with'
  const names = namesOf(user)
  if (names.some((name) => known.has(name)) || new Set(names).size < names.length)
    return 'is given twice in this import'
  const userId = idOfRequest('user', '', randomBytes)
  try {
    const stored = passwordHash === '' ? '' : await toStoredHash(passwordHash, hash, { anyCost })
    for (const name of names) known.add(name)
    return {
      userId,
      username: username || placeholderName(userId),
      externalId,
      nickname,
      avatar,
      passwordHash: stored,
      isDisabled: disabled,
      createdAtMs: createTime ? Math.min(timestampMs(createTime), now) : now,
      identities: identities.map(({ provider, subject }) => ({ provider, subject })),
    }
  } catch (error) {
    if (error instanceof UnusableHash) return error.message
    throw error
  }
}

function namesOf({ username, externalId, identities }: ImportedUserMessage): string[] {
  return [
    ...(username === '' ? [] : [JSON.stringify(['username', username])]),
    ...(externalId === '' ? [] : [JSON.stringify(['external_id', externalId])]),
    ...identities.map(({ provider, subject }) => JSON.stringify(['identity', provider, subject])),
  ]
}

function toResult(verdict: ImportVerdict, { userId }: ImportedUser, isDryRun: boolean): Result {
  if (verdict.outcome === 'refused') return refused(REASONS[verdict.reason])
  if (verdict.outcome === 'created') return { outcome: ImportOutcome.CREATED, userId: isDryRun ? '' : userId }
  return { outcome: OUTCOMES[verdict.outcome], userId: verdict.userId }
}

function refused(reason: string): Result {
  return { outcome: ImportOutcome.REFUSED, reason }
}
