// survey-auth user: the built-in accounts.
import type { Command } from 'commander'
import type { Identity, User } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { asOperator, asSurveyOperator, type Operator } from '../compose/operator.js'
import { CommandError, EXIT } from '../exit.js'
import { type Columns, isoTime, message, printFields, printJson, printPages, shortTime } from '../output.js'
import { asArgument } from '../shell.js'
import { examples, type Json, jsonOption } from './options.js'
import { readPassword } from './stdin.js'
import { countOfSurveys, deleteSurveysOf } from './survey.js'
import { EXTERNAL_ID, namedUser, pagesOfUsers } from './usernames.js'

interface CreateOptions extends Json {
  readonly username?: string
  readonly externalId?: string
  readonly passwordStdin?: true
  readonly nickname?: string
  readonly avatar?: string
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
  const user = program
    .command('user')
    .description('accounts that sign in and authorize apps')
    .addHelpText('after', examples('user create --username li.wei --password-stdin < password.txt', 'user list'))

  user
    .command('create')
    .description('create an account, or a user who signs in elsewhere')
    .option('--username <name>', '1 to 64 of letters, digits and ._@+-')
    .option('--password-stdin', 'read the password, 8 characters or more, from standard input')
    .option('--external-id <id>', "the platform's own id of the user, who then needs neither name nor password")
    .option('--nickname <text>', 'shown to apps the user authorizes')
    .option('--avatar <address>', 'address of a picture, shown to apps')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      examples(
        'user create --username li.wei --nickname 李伟 --password-stdin < password.txt',
        'user create --external-id 4711',
      ),
    )
    .action(createUser)

  user
    .command('list')
    .description('all accounts')
    .addOption(jsonOption())
    .addHelpText('after', examples('user list', 'user list --json'))
    .action(listUsers)

  user
    .command('show')
    .argument('<username>', USER)
    .description('one account')
    .addOption(jsonOption())
    .addHelpText('after', examples('user show li.wei', `user show ${EXTERNAL_ID}4711`))
    .action(showUser)

  user
    .command('update')
    .argument('<username>', USER)
    .description('change what is known of the user, from the next request on')
    .option('--external-id <id>', 'new id of the user at the platform; apps are never told')
    .option('--no-external-id', 'no such id')
    .option('--nickname <text>', 'new nickname')
    .option('--no-nickname', 'no nickname')
    .option('--avatar <address>', 'new address of the picture')
    .option('--no-avatar', 'no picture')
    .addOption(jsonOption())
    .addHelpText('after', examples('user update li.wei --nickname 小李 --no-avatar'))
    .action(updateUser)

  for (const [verb, disabled] of [
    ['disable', true],
    ['enable', false],
  ] as const) {
    user
      .command(verb)
      .argument('<username>', USER)
      .description(
        disabled
          ? 'sign the user out everywhere and refuse all their tokens from the next request on'
          : 'accept a disabled user and their tokens again',
      )
      .addOption(jsonOption())
      .addHelpText('after', examples(`user ${verb} li.wei`))
      .action((nameOrId: string, options: Json) => setDisabled(nameOrId, disabled, options))
  }

  user
    .command('delete')
    .argument('<username>', USER)
    .description('delete a disabled user for good, with their surveys')
    .addOption(jsonOption())
    .addHelpText('after', DELETE_NOTES + examples('user disable li.wei', 'user delete li.wei'))
    .action(deleteUser)

  user
    .command('set-password')
    .argument('<username>', USER)
    .description('replace the password and sign the user out everywhere')
    .requiredOption('--password-stdin', 'read the new password from standard input')
    .addOption(jsonOption())
    .addHelpText('after', examples('user set-password li.wei --password-stdin < password.txt'))
    .action(setPassword)

  addIdentityCommands(user)
}

function addIdentityCommands(user: Command): void {
  user
    .command('link')
    .argument('<username>', USER)
    .description('let whoever signs in at a provider as this subject be the user')
    .requiredOption('--provider <id>', 'id of the provider in the configuration')
    .requiredOption(
      '--subject <id>',
      "the person's id there, `sub`; never a name or an e-mail address, which others can get",
    )
    .addOption(jsonOption())
    .addHelpText('after', examples('user link li.wei --provider corp --subject 248289761001'))
    .action(linkIdentity)

  user
    .command('unlink')
    .description('take an identity from its user; sessions go on')
    .requiredOption('--provider <id>', 'id of the provider in the configuration')
    .requiredOption('--subject <id>', "the person's id there")
    .addOption(jsonOption())
    .addHelpText('after', examples('user unlink --provider corp --subject 248289761001'))
    .action(unlinkIdentity)

  user
    .command('sign-out')
    .argument('<username>', USER)
    .description('end all sessions of the user; what apps may read stays')
    .addOption(jsonOption())
    .addHelpText('after', examples('user sign-out li.wei'))
    .action(signOut)
}

async function linkIdentity(nameOrId: string, { provider, subject, json }: IdentityOptions): Promise<void> {
  await asOperator(async ({ admin }) =>
    admin.linkIdentity({ ...(await namedUser(admin, nameOrId)), provider, subject }),
  )
  if (json) printJson({ provider, subject })
  message('linked')
}

async function unlinkIdentity({ provider, subject, json }: IdentityOptions): Promise<void> {
  const { userId } = await asOperator(({ admin }) => admin.unlinkIdentity({ provider, subject }))
  if (json) printJson({ provider, subject, user_id: userId })
  message(`taken from ${userId}`)
}

async function signOut(nameOrId: string, { json }: Json): Promise<void> {
  const { sessions } = await asOperator(async ({ admin }) => admin.endUserSessions(await namedUser(admin, nameOrId)))
  if (json) printJson({ sessions })
  message(sessions === 1 ? 'one session has ended' : `${sessions} sessions have ended`)
}

async function deleteUser(nameOrId: string, { json }: Json): Promise<void> {
  const deleted = await asSurveyOperator(async (operator) => {
    const { admin } = operator
    const { user } = await admin.getUser(await namedUser(admin, nameOrId))
    if (!user?.disabled) {
      const first = `first: survey-auth user disable ${asArgument(nameOrId)}`
      throw new CommandError(`${nameOrId} is not disabled`, EXIT.failure, first)
    }
    const { userId: user_id, username } = user
    const surveys = await deleteSurveysOf(operator, username)
    await deleteWithout(surveys, user, admin)
    return { user_id, username, surveys }
  })
  if (json) printJson(deleted)
  else printFields(deleted)
  message(`${deleted.username} is deleted, with ${countOfSurveys(deleted.surveys)}; the name is free`)
}

/** Deletes a user whose surveys are deleted already, and says so if it fails. */
async function deleteWithout(surveys: number, { userId, username }: User, admin: Operator['admin']): Promise<void> {
  try {
    await admin.deleteUser({ userId })
  } catch (error) {
    const gone = surveys === 1 ? `the survey of ${username} is` : `the ${surveys} surveys of ${username} are`
    if (surveys > 0) message(`${gone} deleted, the user is not; run this again`)
    throw error
  }
}

async function createUser(options: CreateOptions, command: Command): Promise<void> {
  const { username = '', externalId = '', passwordStdin, nickname = '', avatar = '' } = options
  if (externalId === '' && (username === '' || !passwordStdin)) {
    command.error('error: give --username and --password-stdin, or --external-id for a user who signs in elsewhere')
  }
  const password = passwordStdin && { password: await readPassword() }
  const request = { username, externalId, nickname, avatar, ...password }
  const { user } = await asOperator(({ admin }) => admin.createUser(request), { creates: true })
  printUser(user, options)
}

async function listUsers(options: Json): Promise<void> {
  const style = { json: options.json, whenEmpty: 'no users yet; create one with: survey-auth user create' }
  await asOperator(({ admin }) => printPages(pagesOfUsers(admin), userJson, columns, style))
}

const columns: Columns<ReturnType<typeof userJson>> = {
  username: (row) => row.username,
  user_id: (row) => row.user_id,
  external_id: (row) => row.external_id,
  nickname: (row) => row.nickname,
  disabled: (row) => row.disabled,
  created: (row) => shortTime(row.created_at),
}

async function showUser(nameOrId: string, options: Json): Promise<void> {
  const { user, identities } = await asOperator(async ({ admin }) => {
    const named = await namedUser(admin, nameOrId)
    return { ...(await admin.getUser(named)), ...(await admin.listIdentities(named)) }
  })
  if (!user) return
  const fields = userJson(user)
  if (options.json) {
    printJson({ ...fields, identities: identities.map(identityJson) })
    return
  }
  const linked = identities.map(({ provider, subject }) => `${provider} ${subject}`).join(', ')
  printFields({ ...fields, created_at: shortTime(fields.created_at), identities: linked })
}

async function updateUser(nameOrId: string, options: UpdateOptions, command: Command): Promise<void> {
  const { externalId, nickname, avatar } = options
  if (externalId === undefined && nickname === undefined && avatar === undefined) {
    command.error('error: nothing to change: give --nickname, --avatar or --external-id, or --no- of one of them')
  }
  const { user } = await asOperator(async ({ admin }) =>
    admin.updateUser({
      ...(await namedUser(admin, nameOrId)),
      ...(externalId !== undefined && { newExternalId: externalId || '' }),
      ...(nickname !== undefined && { nickname: nickname || '' }),
      ...(avatar !== undefined && { avatar: avatar || '' }),
    }),
  )
  printUser(user, options)
}

async function setDisabled(nameOrId: string, disabled: boolean, options: Json): Promise<void> {
  const { user } = await asOperator(async ({ admin }) =>
    admin.setUserDisabled({ ...(await namedUser(admin, nameOrId)), disabled }),
  )
  printUser(user, options)
}

async function setPassword(nameOrId: string, { json }: Json): Promise<void> {
  const password = await readPassword()
  const user = await asOperator(async ({ admin }) => {
    const { user } = await admin.getUser(await namedUser(admin, nameOrId))
    await admin.setUserPassword({ userId: user?.userId ?? '', password })
    return user
  })
  if (json) printJson({ username: user?.username })
  message('password set; the user is signed out everywhere')
}

function userJson(user: User) {
  return {
    user_id: user.userId,
    username: user.username,
    external_id: user.externalId,
    nickname: user.nickname,
    avatar: user.avatar,
    has_password: user.hasPassword,
    disabled: user.disabled,
    created_at: isoTime(user.createTime),
  }
}

function identityJson(identity: Identity) {
  return {
    provider: identity.provider,
    subject: identity.subject,
    created_at: isoTime(identity.createTime),
    last_used_at: isoTime(identity.lastUseTime),
  }
}

function printUser(user: User | undefined, options: Json): void {
  if (!user) return
  const fields = userJson(user)
  if (options.json) printJson(fields)
  else printFields({ ...fields, created_at: shortTime(fields.created_at) })
}
