// survey-auth app: third-party applications and their secrets.
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import type { Command } from 'commander'
import type { App, AppSecret } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { asOperator, findIn, type Operator, pagesOfApps } from '../compose/operator.js'
import { CommandError, EXIT, WHERE_TO_LOOK } from '../exit.js'
import { dateOf, message, note, printJson, printPages, printRow, printRows } from '../output.js'
import { command, group, type Json } from './command.js'
import { readLogo } from './input.js'
import { repeatable, wholeNumber } from './options.js'
import { asksFirst, confirm, type Sure } from './terminal.js'

/** False: to be removed, or not to hold. */
interface AppOptions extends Json {
  readonly name?: string
  readonly redirectUri?: string[]
  readonly requireSecretOnRefresh?: boolean
  readonly requirePkce?: boolean
  readonly readsAnswers?: boolean
  readonly homePage?: string | false
  readonly description?: string | false
  readonly contact?: string | false
  readonly privacyLink?: string | false
  readonly logo?: string | false
}
interface SecretOptions extends Json {
  readonly name: string
  readonly expiresInDays?: number
}

const DAY_MS = 86_400_000

export function addAppCommands(program: Command): void {
  const app = group(program, 'app', {
    about: 'third-party applications and their secrets',
    examples: ['app list', 'app secret add app_k3J… --name 2027 --expires-in-days 365'],
  })

  const create = command(app, 'create', {
    about: 'register an app; its first secret is shown this once',
    examples: ['app create --name "Field Notes" --redirect-uri https://app.example.com/callback'],
  })
    .requiredOption('--name <name>', 'name shown to users')
    .requiredOption('--redirect-uri <address>', 'callback address, compared byte for byte; repeatable', repeatable)
    .option('--require-secret-on-refresh', 'refuse refreshes that do not carry a secret')
    .option('--require-pkce', 'refuse authorizations that do not carry a code_challenge')
    .option('--reads-answers', 'ask users to let it read the answers to their surveys')
  for (const [flags, about] of FACE) create.option(flags, about)
  create.action(createApp)

  command(app, 'list', { about: 'all apps', examples: ['app list', 'app list --json'] }).action(listApps)

  command(app, 'show <appid>', {
    about: 'one app with the names and dates of its secrets',
    examples: ['app show app_k3J…'],
  }).action(showApp)

  const update = command(app, 'update <appid>', {
    about: 'change what is given; callback addresses are replaced as a whole, and unused codes for those removed end',
    examples: [
      'app update app_k3J… --redirect-uri https://app.example.com/v2/callback',
      'app update app_k3J… --logo logo.svg --privacy-link https://app.example.com/privacy --no-contact',
    ],
  })
    .option('--name <name>', 'new name')
    .option('--redirect-uri <address>', 'new callback address; repeatable', repeatable)
    .option('--require-secret-on-refresh', 'refuse refreshes that do not carry a secret')
    .option('--no-require-secret-on-refresh', 'accept refreshes without a secret')
    .option('--require-pkce', 'refuse authorizations that do not carry a code_challenge')
    .option('--no-require-pkce', 'accept authorizations without one')
    .option('--reads-answers', 'ask users from now on to let it read the answers to their surveys')
    .option('--no-reads-answers', 'refuse it answers from the next request on, whoever has consented')
  for (const [flags, about] of FACE) {
    const [name = ''] = flags.slice(2).split(' ')
    update.option(flags, about).option(`--no-${name}`, 'remove it')
  }
  update.action(updateApp)

  command(app, 'disable <appid>', {
    about: 'refuse the app and all its tokens from the next request on',
    examples: ['app disable app_k3J…'],
  }).action((appid: string, options: Json) => setDisabled(appid, true, options))

  command(app, 'enable <appid>', {
    about: 'accept a disabled app again',
    examples: ['app enable app_k3J…'],
  }).action((appid: string, options: Json) => setDisabled(appid, false, options))

  asksFirst(
    command(app, 'delete <appid>', {
      about: 'delete an app that nobody uses',
      examples: ['app delete app_k3J…'],
      notes: DELETE_NOTES,
    }),
  ).action(deleteApp)

  addSecretCommands(app)
}

const DELETE_NOTES = `
Refused while it has a live grant, or a code that can still be exchanged: disable it, or end them with grant revoke --appid. Its
secrets are gone. Its appid is never given to another app, and the audit trail keeps its name.
`

/** How an app presents itself to users. */
const FACE = [
  ['--home-page <address>', 'address of its home page, https'],
  ['--description <text>', 'what it does, in a sentence'],
  ['--contact <text>', 'how to reach its owner'],
  ['--privacy-link <address>', 'address of its privacy policy, https'],
  ['--logo <file>', 'PNG, WebP or SVG, at most 48 KiB'],
] as const

function addSecretCommands(app: Command): void {
  const secret = group(app, 'secret', {
    about: 'secrets of an app: add the new one, deploy it, revoke the old one',
    examples: ['app secret list app_k3J…', 'app secret revoke secret_x7Q…'],
  })

  command(secret, 'add <appid>', {
    about: 'generate one more secret, shown this once',
    examples: ['app secret add app_k3J… --name 2027 --expires-in-days 365'],
  })
    .requiredOption('--name <name>', 'name by which you will recognize it')
    .option('--expires-in-days <days>', 'refuse it after so many days', wholeNumber(1, 36_500))
    .action(addSecret)

  command(secret, 'list <appid>', {
    about: 'names and dates of all secrets of an app, ended ones included',
    examples: ['app secret list app_k3J…'],
  }).action(listSecrets)

  asksFirst(
    command(secret, 'revoke', {
      about: 'end a secret at once; tokens that were given out stay good',
      examples: ['app secret revoke secret_x7Q…', 'app secret revoke app_k3J… secret_x7Q…'],
    }),
  )
    .argument('<id>', 'id of the secret, or of its app')
    .argument('[secret_id]', 'after the id of its app')
    .action(revokeSecret)
}

async function createApp(options: AppOptions): Promise<void> {
  const request = fieldsOf(options)
  const { json } = options
  const { app, secret, secretId } = await asOperator(({ admin }) => admin.createApp(request), { creates: true })
  printSecret(
    { appid: app?.appid, secret, secret_id: secretId, name: app?.name, redirect_uris: app?.redirectUris },
    json,
  )
}

async function listApps({ json }: Json): Promise<void> {
  const style = { json, whenEmpty: 'no apps yet; register one with: survey-auth app create' }
  const columns = ['appid', 'name', 'disabled', 'created_at', 'redirect_uris'] as const
  await asOperator(({ admin }) => printPages(pagesOfApps(admin), appRow, columns, style))
}

async function showApp(appid: string, options: Json): Promise<void> {
  const { app } = await asOperator(({ admin }) => admin.getApp({ appid }))
  if (!app) return
  if (options.json) return printJson({ ...appRow(app), secrets: app.secrets.map(secretRow) })
  printApp(app, options)
  process.stdout.write('\n')
  printSecrets(app, options)
}

async function updateApp(appid: string, options: AppOptions, command: Command): Promise<void> {
  const change = fieldsOf(options)
  if (Object.keys(change).length === 0)
    command.error('error: nothing to change: give --name, --redirect-uri, or another option that --help shows')
  const { app } = await asOperator(({ admin }) => admin.updateApp({ appid, ...change }))
  printApp(app, options)
}

/** The fields of a request that are given. */
function fieldsOf(options: AppOptions) {
  const { name, redirectUri, requireSecretOnRefresh, requirePkce, readsAnswers } = options
  const face = faceOf(options)
  return {
    ...(Object.keys(face).length > 0 && { face }),
    ...(name !== undefined && { name }),
    ...(redirectUri !== undefined && { redirectUris: redirectUri }),
    ...(requireSecretOnRefresh !== undefined && { requiresSecretOnRefresh: requireSecretOnRefresh }),
    ...(requirePkce !== undefined && { requiresPkce: requirePkce }),
    ...(readsAnswers !== undefined && { readsAnswers }),
  }
}

function faceOf({ homePage, description, contact, privacyLink, logo }: AppOptions) {
  return {
    ...(homePage !== undefined && { homePage: homePage || '' }),
    ...(description !== undefined && { description: description || '' }),
    ...(contact !== undefined && { contact: contact || '' }),
    ...(privacyLink !== undefined && { privacyLink: privacyLink || '' }),
    ...(logo !== undefined && { logo: logo === false ? new Uint8Array() : readLogo(logo) }),
  }
}

async function setDisabled(appid: string, disabled: boolean, options: Json): Promise<void> {
  const { app } = await asOperator(({ admin }) => admin.setAppDisabled({ appid, disabled }))
  printApp(app, options)
}

async function deleteApp(appid: string, options: Sure): Promise<void> {
  await confirm(`Delete ${appid} for good?`, options)
  const name = await asOperator(async ({ admin }) => {
    const { app } = await admin.getApp({ appid })
    await admin.deleteApp({ appid }).catch((error: unknown) => {
      if (!(error instanceof ConnectError && error.code === Code.InvalidArgument)) throw error
      const hint = `refuse it everywhere: survey-auth app disable ${appid}\nend its grants: survey-auth grant revoke --appid ${appid}`
      throw new CommandError(error.rawMessage, EXIT.failure, hint)
    })
    return app?.name
  })
  printRow({ appid, name }, options)
  note('deleted')
}

async function addSecret(appid: string, { name, expiresInDays, json }: SecretOptions): Promise<void> {
  const expires = expiresInDays && { expireTime: timestampFromMs(Date.now() + expiresInDays * DAY_MS) }
  const { secretId, secret } = await asOperator(({ admin }) => admin.addAppSecret({ appid, name, ...expires }))
  printSecret({ secret_id: secretId, secret }, json)
}

function printSecret(made: Parameters<typeof printRow>[0], json: Json['json']): void {
  printRow(made, { json })
  if (!json) note('keep the secret now: it is stored hashed and cannot be shown again')
}

async function listSecrets(appid: string, options: Json): Promise<void> {
  const { app } = await asOperator(({ admin }) => admin.getApp({ appid }))
  printSecrets(app, options)
}

async function revokeSecret(id: string, idBehindAppid: string | undefined, options: Sure): Promise<void> {
  await confirm('Revoke the secret? An app that still uses it is refused at once.', options)
  const secretId = idBehindAppid ?? id
  const { appid, alreadyRevoked, secrets } = await asOperator(async ({ admin }) => {
    const appid = idBehindAppid === undefined ? await appidOf(admin, secretId) : id
    const { alreadyRevoked } = await admin.revokeAppSecret({ appid, secretId })
    const { app } = await admin.getApp({ appid })
    return { appid, alreadyRevoked, secrets: app?.secrets ?? [] }
  })
  printRow({ appid, secret_id: secretId }, options)
  note(alreadyRevoked ? 'it had been revoked already' : 'revoked')
  if (!secrets.some(isLive)) message(`the app has no secret left: survey-auth app secret add ${appid} --name NAME`)
}

function isLive({ revokeTime, expireTime }: AppSecret): boolean {
  return !revokeTime && (!expireTime || timestampMs(expireTime) > Date.now())
}

/** The app that the secret belongs to. Fetches one app after the other: only GetApp lists secrets. */
async function appidOf(admin: Operator['admin'], secretId: string): Promise<string> {
  const found = await findIn(pagesOfApps(admin), async ({ appid }) => {
    const { app } = await admin.getApp({ appid })
    return app?.secrets.some((secret) => secret.secretId === secretId) === true
  })
  if (found) return found.appid
  // The id is not repeated: it may be the secret itself.
  throw new CommandError('no app has a secret of this id', EXIT.failure, WHERE_TO_LOOK.secret)
}

function appRow(app: App) {
  return {
    appid: app.appid,
    name: app.name,
    redirect_uris: app.redirectUris,
    disabled: app.disabled,
    requires_secret_on_refresh: app.requiresSecretOnRefresh,
    requires_pkce: app.requiresPkce,
    reads_answers: app.readsAnswers,
    home_page: app.face?.homePage ?? '',
    description: app.face?.description ?? '',
    contact: app.face?.contact ?? '',
    privacy_link: app.face?.privacyLink ?? '',
    logo_hash: app.face?.logoHash ?? '',
    created_at: dateOf(app.createTime),
  }
}

function secretRow(secret: AppSecret) {
  return {
    secret_id: secret.secretId,
    name: secret.name,
    created_at: dateOf(secret.createTime),
    expires_at: dateOf(secret.expireTime),
    revoked_at: dateOf(secret.revokeTime),
    last_used_at: dateOf(secret.lastUseTime),
  }
}

function printApp(app: App | undefined, options: Json): void {
  if (app) printRow(appRow(app), { json: options.json })
}

function printSecrets(app: App | undefined, { json }: Json): void {
  const columns = ['secret_id', 'name', 'created_at', 'expires_at', 'revoked_at', 'last_used_at'] as const
  const style = { json, whenEmpty: 'no secrets; add one with: survey-auth app secret add' }
  printRows(app?.secrets.map(secretRow) ?? [], columns, style)
}
