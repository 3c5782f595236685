// survey-auth user: the built-in accounts.
import type { Command } from 'commander'
import type { Identity, User } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { asOperator, asSurveyOperator, type Operator, pagesOfUsers } from '../compose/operator.js'
import { CommandError, EXIT } from '../exit.js'
import { dateOf, message, note, printJson, printPages, printRow, printRows } from '../output.js'
import { asArgument } from '../shell.js'
import { command, group, type Json } from './command.js'
import { readPassword } from './input.js'
import { countOfSurveys, deleteSurveysOf } from './survey.js'
import { asksFirst, confirm, isAtTerminal, type Sure } from './terminal.js'
import { addUserImport } from './user-import.js'
import { EXTERNAL_ID, namedUser } from './usernames.js'

interface CreateOptions extends Json {
  readonly username?: string
  readonly externalId?: string
  readonly passwordStdin?: true
  readonly nickname?: string
  readonly avatar?: string
}

interface PasswordOptions extends Json {
  readonly passwordStdin?: true
}

interface IdentityOptions extends Json {
  readonly provider: string
  readonly subject: string
}

/** false: to remove it. */
interface UpdateOptions extends Json {
  readonly externalId?: string | false
  readonly nickname?: string | false
  readonly avatar?: string | false
}

const DELETE_NOTES = `
Name, profile, password and surveys are gone, all grants are revoked, and the name is free for somebody else. What stays: the
user_id with the openids that apps know, which nobody else is ever given; its external_id and its identities, so that nobody comes
back by signing in elsewhere, until they are given to another user; and the audit trail until it is removed, with the name.
`

const USER = `the user, by name, user_id or ${EXTERNAL_ID}ID`

export function addUserCommands(program: Command): void {
  const user = group(program, 'user', {
    about: 'accounts that sign in and authorize apps',
    examples: ['user create --username li.wei', 'user list'],
  })

  command(user, 'create', {
    about: 'create an account, or a user who signs in elsewhere',
    examples: [
      'user create --username li.wei --nickname 李伟',
      'user create --username li.wei --password-stdin < password.txt',
      'user create --external-id 4711',
    ],
  })
    .option('--username <name>', '1 to 64 of letters, digits and ._@+-')
    .option('--password-stdin', 'read the password, 8 characters or more, from standard input; a terminal asks for it')
    .option('--external-id <id>', "the platform's own id of the user, who then needs neither name nor password")
    .option('--nickname <text>', 'shown to apps the user authorizes')
    .option('--avatar <address>', 'address of a picture, shown to apps')
    .action(createUser)

  addUserImport(user)

  command(user, 'hashes', {
    about: 'how passwords are hashed: an imported hash is replaced when its user signs in',
    examples: ['user hashes'],
  }).action(listPasswordHashes)

  command(user, 'list', { about: 'all accounts', examples: ['user list', 'user list --json'] }).action(listUsers)

  command(user, 'show', { about: 'one account', examples: ['user show li.wei', `user show ${EXTERNAL_ID}4711`] })
    .argument('<username>', USER)
    .action(showUser)

  command(user, 'update', {
    about: 'change what is known of the user, from the next request on',
    examples: ['user update li.wei --nickname 小李 --no-avatar'],
  })
    .argument('<username>', USER)
    .option('--external-id <id>', 'new id of the user at the platform; apps are never told')
    .option('--no-external-id', 'no such id')
    .option('--nickname <text>', 'new nickname')
    .option('--no-nickname', 'no nickname')
    .option('--avatar <address>', 'new address of the picture')
    .option('--no-avatar', 'no picture')
    .action(updateUser)

  command(user, 'disable', {
    about: 'sign the user out everywhere and refuse all their tokens from the next request on',
    examples: ['user disable li.wei'],
  })
    .argument('<username>', USER)
    .action((nameOrId: string, options: Json) => setDisabled(nameOrId, true, options))

  command(user, 'enable', {
    about: 'accept a disabled user and their tokens again',
    examples: ['user enable li.wei'],
  })
    .argument('<username>', USER)
    .action((nameOrId: string, options: Json) => setDisabled(nameOrId, false, options))

  asksFirst(
    command(user, 'delete', {
      about: 'delete a disabled user for good, with their surveys',
      examples: ['user disable li.wei', 'user delete li.wei'],
      notes: DELETE_NOTES,
    }),
  )
    .argument('<username>', USER)
    .action(deleteUser)

  command(user, 'set-password', {
    about: 'replace the password and sign the user out everywhere',
    examples: ['user set-password li.wei', 'user set-password li.wei --password-stdin < password.txt'],
  })
    .argument('<username>', USER)
    .option('--password-stdin', 'read the new password from standard input; a terminal asks for it')
    .action(setPassword)

  addIdentityCommands(user)
}

function addIdentityCommands(user: Command): void {
  command(user, 'link', {
    about: 'let whoever signs in at a provider as this subject be the user',
    examples: ['user link li.wei --provider corp --subject 248289761001'],
  })
    .argument('<username>', USER)
    .requiredOption('--provider <id>', 'id of the provider in the configuration')
    .requiredOption(
      '--subject <id>',
      "the person's id there, `sub`; never a name or an e-mail address, which others can get",
    )
    .action(linkIdentity)

  command(user, 'unlink', {
    about: 'take an identity from its user; sessions go on',
    examples: ['user unlink --provider corp --subject 248289761001'],
  })
    .requiredOption('--provider <id>', 'id of the provider in the configuration')
    .requiredOption('--subject <id>', "the person's id there")
    .action(unlinkIdentity)

  command(user, 'sign-out', {
    about: 'end all sessions of the user; what apps may read stays',
    examples: ['user sign-out li.wei'],
  })
    .argument('<username>', USER)
    .action(signOut)
}

async function linkIdentity(nameOrId: string, { provider, subject, json }: IdentityOptions): Promise<void> {
  await asOperator(({ admin }) => admin.linkIdentity({ ...namedUser(nameOrId), provider, subject }))
  printRow({ provider, subject }, { json })
  note('linked')
}

async function unlinkIdentity({ provider, subject, json }: IdentityOptions): Promise<void> {
  const { userId } = await asOperator(({ admin }) => admin.unlinkIdentity({ provider, subject }))
  printRow({ provider, subject, user_id: userId }, { json })
  note('taken from its user')
}

async function signOut(nameOrId: string, { json }: Json): Promise<void> {
  const { sessions } = await asOperator(({ admin }) => admin.endUserSessions(namedUser(nameOrId)))
  printRow({ sessions }, { json })
  note(sessions === 1 ? 'one session has ended' : `${sessions} sessions have ended`)
}

async function listPasswordHashes(options: Json): Promise<void> {
  const { hashes } = await asOperator(({ admin }) => admin.listPasswordHashes({}))
  const rows = hashes.map(({ kind, users, own }) => ({ kind, users, own }))
  printRows(rows, ['kind', 'users', 'own'], { json: options.json, whenEmpty: 'no user has a password' })
}

async function deleteUser(nameOrId: string, options: Sure): Promise<void> {
  await confirm(`Delete ${nameOrId} for good, with their surveys?`, options)
  const deleted = await asSurveyOperator(async (operator) => {
    const { admin } = operator
    const { user } = await admin.getUser(namedUser(nameOrId))
    if (!user?.disabled) {
      const first = `first: survey-auth user disable ${asArgument(nameOrId)}`
      throw new CommandError(`${nameOrId} is not disabled`, EXIT.failure, first)
    }
    const { userId: user_id, username } = user
    const surveys = await deleteSurveysOf(operator, user_id)
    await deleteWithout(surveys, user, admin)
    return { user_id, username, surveys }
  })
  printRow(deleted, options)
  note(`${deleted.username} is deleted, with ${countOfSurveys(deleted.surveys)}; the name is free`)
}

/** Deletes a user whose surveys are deleted already, and says so if it fails. */
async function deleteWithout(surveys: number, { userId }: User, admin: Operator['admin']): Promise<void> {
  try {
    await admin.deleteUser({ userId })
  } catch (error) {
    if (surveys > 0) message(`${countOfSurveys(surveys)} of the user deleted, the user is not; run this again`)
    throw error
  }
}

async function createUser(options: CreateOptions, command: Command): Promise<void> {
  const { username = '', externalId = '', passwordStdin, nickname = '', avatar = '' } = options
  const takesPassword = passwordStdin ?? (externalId === '' && isAtTerminal())
  if (externalId === '' && (username === '' || !takesPassword)) {
    command.error('error: give --username and --password-stdin, or --external-id for a user who signs in elsewhere')
  }
  const password = takesPassword && { password: await readPassword() }
  const request = { username, externalId, nickname, avatar, ...password }
  const { user } = await asOperator(({ admin }) => admin.createUser(request), { creates: true })
  printUser(user, options)
}

async function listUsers({ json }: Json): Promise<void> {
  const style = { json, whenEmpty: 'no users yet; create one with: survey-auth user create' }
  const columns = ['username', 'user_id', 'external_id', 'nickname', 'disabled', 'created_at'] as const
  await asOperator(({ admin }) => printPages(pagesOfUsers(admin), userRow, columns, style))
}

async function showUser(nameOrId: string, { json }: Json): Promise<void> {
  const { user, identities } = await asOperator(async ({ admin }) => {
    const named = namedUser(nameOrId)
    return { ...(await admin.getUser(named)), ...(await admin.listIdentities(named)) }
  })
  if (!user) return
  if (json) printJson({ ...userRow(user), identities: identities.map(identityRow) })
  else
    printRow({ ...userRow(user), identities: identities.map(({ provider, subject }) => `${provider} ${subject}`) }, {})
}

async function updateUser(nameOrId: string, options: UpdateOptions, command: Command): Promise<void> {
  const { externalId, nickname, avatar } = options
  if (externalId === undefined && nickname === undefined && avatar === undefined) {
    command.error('error: nothing to change: give --nickname, --avatar or --external-id, or --no- of one of them')
  }
  const { user } = await asOperator(({ admin }) =>
    admin.updateUser({
      ...namedUser(nameOrId),
      ...(externalId !== undefined && { newExternalId: externalId || '' }),
      ...(nickname !== undefined && { nickname: nickname || '' }),
      ...(avatar !== undefined && { avatar: avatar || '' }),
    }),
  )
  printUser(user, options)
}

async function setDisabled(nameOrId: string, disabled: boolean, options: Json): Promise<void> {
  const { user } = await asOperator(({ admin }) => admin.setUserDisabled({ ...namedUser(nameOrId), disabled }))
  printUser(user, options)
}

async function setPassword(
  nameOrId: string,
  { passwordStdin, json }: PasswordOptions,
  command: Command,
): Promise<void> {
  if (!passwordStdin && !isAtTerminal()) command.error("error: required option '--password-stdin' not specified")
  const password = await readPassword()
  const user = await asOperator(async ({ admin }) => {
    const { user } = await admin.getUser(namedUser(nameOrId))
    await admin.setUserPassword({ userId: user?.userId ?? '', password })
    return user
  })
  printRow({ username: user?.username }, { json })
  note('password set; the user is signed out everywhere')
}

function userRow(user: User) {
  return {
    user_id: user.userId,
    username: user.username,
    external_id: user.externalId,
    nickname: user.nickname,
    avatar: user.avatar,
    has_password: user.hasPassword,
    disabled: user.disabled,
    created_at: dateOf(user.createTime),
  }
}

function identityRow(identity: Identity) {
  return {
    provider: identity.provider,
    subject: identity.subject,
    created_at: dateOf(identity.createTime),
    last_used_at: dateOf(identity.lastUseTime),
  }
}

function printUser(user: User | undefined, { json }: Json): void {
  if (user) printRow(userRow(user), { json })
}
