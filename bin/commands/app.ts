// survey-auth app: third-party applications and their secrets.
import { timestampFromDate, timestampMs } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import type { App, AppSecret } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { asOperator, findIn, type Operator, pagesOfApps } from '../compose/operator.js'
import { CommandError, EXIT, WHERE_TO_LOOK } from '../exit.js'
import { type Columns, isoTime, message, printFields, printJson, printPages, printRows, shortTime } from '../output.js'
import { examples, type Json, jsonOption, repeatable, wholeNumber } from './options.js'

interface CreateOptions extends Json {
  readonly name: string
  readonly redirectUri: string[]
  readonly requireSecretOnRefresh?: true
}
interface UpdateOptions extends Json {
  readonly name?: string
  readonly redirectUri?: string[]
  readonly requireSecretOnRefresh?: boolean
}
interface SecretOptions extends Json {
  readonly name: string
  readonly expiresInDays?: number
}

export function addAppCommands(program: Command): void {
  const app = program
    .command('app')
    .description('third-party applications and their secrets')
    .addHelpText('after', examples('app list', 'app secret add app_k3J… --name 2027 --expires-in-days 365'))

  app
    .command('create')
    .description('register an app; its first secret is shown this once')
    .requiredOption('--name <name>', 'name shown to users')
    .requiredOption('--redirect-uri <address>', 'callback address, compared byte for byte; repeatable', repeatable)
    .option('--require-secret-on-refresh', 'refuse refreshes that do not carry a secret')
    .addOption(jsonOption())
    .addHelpText('after', examples('app create --name "Field Notes" --redirect-uri https://app.example.com/callback'))
    .action(createApp)

  app
    .command('list')
    .description('all apps')
    .addOption(jsonOption())
    .addHelpText('after', examples('app list', 'app list --json'))
    .action(listApps)

  app
    .command('show <appid>')
    .description('one app with the names and dates of its secrets')
    .addOption(jsonOption())
    .addHelpText('after', examples('app show app_k3J…'))
    .action(showApp)

  app
    .command('update <appid>')
    .description(
      'change what is given; callback addresses are replaced as a whole, and unused codes for those removed end',
    )
    .option('--name <name>', 'new name')
    .option('--redirect-uri <address>', 'new callback address; repeatable', repeatable)
    .option('--require-secret-on-refresh', 'refuse refreshes that do not carry a secret')
    .option('--no-require-secret-on-refresh', 'accept refreshes without a secret')
    .addOption(jsonOption())
    .addHelpText('after', examples('app update app_k3J… --redirect-uri https://app.example.com/v2/callback'))
    .action(updateApp)

  for (const [verb, disabled] of [
    ['disable', true],
    ['enable', false],
  ] as const) {
    app
      .command(`${verb} <appid>`)
      .description(
        disabled ? 'refuse the app and all its tokens from the next request on' : 'accept a disabled app again',
      )
      .addOption(jsonOption())
      .addHelpText('after', examples(`app ${verb} app_k3J…`))
      .action((appid: string, options: Json) => setDisabled(appid, disabled, options))
  }

  addSecretCommands(
    app
      .command('secret')
      .description('secrets of an app: add the new one, deploy it, revoke the old one')
      .addHelpText('after', examples('app secret list app_k3J…', 'app secret revoke secret_x7Q…')),
  )
}

function addSecretCommands(secret: Command): void {
  secret
    .command('add <appid>')
    .description('generate one more secret, shown this once')
    .requiredOption('--name <name>', 'name by which you will recognize it')
    .option('--expires-in-days <days>', 'refuse it after so many days', wholeNumber(1, 36_500))
    .addOption(jsonOption())
    .addHelpText('after', examples('app secret add app_k3J… --name 2027 --expires-in-days 365'))
    .action(addSecret)

  secret
    .command('list <appid>')
    .description('names and dates of all secrets of an app, ended ones included')
    .addOption(jsonOption())
    .addHelpText('after', examples('app secret list app_k3J…'))
    .action(listSecrets)

  secret
    .command('revoke')
    .argument('<id>', 'id of the secret, or of its app')
    .argument('[secret_id]', 'after the id of its app')
    .description('end a secret at once; tokens that were given out stay good')
    .addOption(jsonOption())
    .addHelpText('after', examples('app secret revoke secret_x7Q…', 'app secret revoke app_k3J… secret_x7Q…'))
    .action(revokeSecret)
}

async function createApp(options: CreateOptions): Promise<void> {
  const request = {
    name: options.name,
    redirectUris: options.redirectUri,
    requiresSecretOnRefresh: options.requireSecretOnRefresh ?? false,
  }
  const { app, secret, secretId } = await asOperator(({ admin }) => admin.createApp(request), { creates: true })
  const created = { appid: app?.appid, secret, secret_id: secretId, name: app?.name, redirect_uris: app?.redirectUris }
  if (options.json) return printJson(created)
  printFields({ ...created, redirect_uris: created.redirect_uris?.join(' ') })
  message('keep the secret now: it is stored hashed and cannot be shown again')
}

async function listApps(options: Json): Promise<void> {
  const style = { json: options.json, whenEmpty: 'no apps yet; register one with: survey-auth app create' }
  await asOperator(({ admin }) => printPages(pagesOfApps(admin), appJson, columns, style))
}

const columns: Columns<ReturnType<typeof appJson>> = {
  appid: (row) => row.appid,
  name: (row) => row.name,
  disabled: (row) => row.disabled,
  created: (row) => shortTime(row.created_at),
  redirect_uris: (row) => row.redirect_uris.join(' '),
}

async function showApp(appid: string, options: Json): Promise<void> {
  const { app } = await asOperator(({ admin }) => admin.getApp({ appid }))
  if (!app) return
  const secrets = app.secrets.map(secretJson)
  if (options.json) return printJson({ ...appJson(app), secrets })
  printApp(app)
  process.stdout.write('\n')
  printSecrets(secrets, options)
}

async function updateApp(appid: string, options: UpdateOptions, command: Command): Promise<void> {
  const { name, redirectUri, requireSecretOnRefresh } = options
  if (name === undefined && redirectUri === undefined && requireSecretOnRefresh === undefined) {
    command.error(
      'error: nothing to change: give --name, --redirect-uri, --require-secret-on-refresh or --no-require-secret-on-refresh',
    )
  }
  const { app } = await asOperator(({ admin }) =>
    admin.updateApp({
      appid,
      redirectUris: redirectUri ?? [],
      ...(name !== undefined && { name }),
      ...(requireSecretOnRefresh !== undefined && { requiresSecretOnRefresh: requireSecretOnRefresh }),
    }),
  )
  printChanged(app, options)
}

async function setDisabled(appid: string, disabled: boolean, options: Json): Promise<void> {
  const { app } = await asOperator(({ admin }) => admin.setAppDisabled({ appid, disabled }))
  printChanged(app, options)
}

async function addSecret(appid: string, options: SecretOptions): Promise<void> {
  const expires = inDays(options.expiresInDays)
  const { secretId, secret } = await asOperator(({ admin }) =>
    admin.addAppSecret({ appid, name: options.name, ...(expires && { expireTime: timestampFromDate(expires) }) }),
  )
  const added = { secret_id: secretId, secret }
  if (options.json) return printJson(added)
  printFields(added)
  message('keep the secret now: it is stored hashed and cannot be shown again')
}

async function listSecrets(appid: string, options: Json): Promise<void> {
  const { app } = await asOperator(({ admin }) => admin.getApp({ appid }))
  const secrets = app?.secrets.map(secretJson) ?? []
  printSecrets(secrets, options)
}

async function revokeSecret(id: string, idBehindAppid: string | undefined, { json }: Json): Promise<void> {
  const secretId = idBehindAppid ?? id
  const { appid, alreadyRevoked, secrets } = await asOperator(async ({ admin }) => {
    const appid = idBehindAppid === undefined ? await appidOf(admin, secretId) : id
    const { alreadyRevoked } = await admin.revokeAppSecret({ appid, secretId })
    const { app } = await admin.getApp({ appid })
    return { appid, alreadyRevoked, secrets: app?.secrets ?? [] }
  })
  if (json) printJson({ appid, secret_id: secretId })
  message(alreadyRevoked ? 'it had been revoked already' : 'revoked')
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

function inDays(days: number | undefined): Date | undefined {
  return days === undefined ? undefined : new Date(Date.now() + days * 86_400_000)
}

function appJson(app: App) {
  return {
    appid: app.appid,
    name: app.name,
    redirect_uris: app.redirectUris,
    disabled: app.disabled,
    requires_secret_on_refresh: app.requiresSecretOnRefresh,
    created_at: isoTime(app.createTime),
  }
}

function secretJson(secret: AppSecret) {
  return {
    secret_id: secret.secretId,
    name: secret.name,
    created_at: isoTime(secret.createTime),
    expires_at: isoTime(secret.expireTime),
    revoked_at: isoTime(secret.revokeTime),
    last_used_at: isoTime(secret.lastUseTime),
  }
}

function printChanged(app: App | undefined, options: Json): void {
  if (!app) return
  if (options.json) printJson(appJson(app))
  else printApp(app)
}

function printApp(app: App): void {
  const { redirect_uris, created_at, ...fields } = appJson(app)
  printFields({ ...fields, redirect_uris: redirect_uris.join(' '), created_at: shortTime(created_at) })
}

function printSecrets(secrets: readonly ReturnType<typeof secretJson>[], { json }: Json): void {
  printRows(
    secrets,
    {
      secret_id: (row) => row.secret_id,
      name: (row) => row.name,
      created: (row) => shortTime(row.created_at),
      expires: (row) => shortTime(row.expires_at),
      revoked: (row) => shortTime(row.revoked_at),
      last_used: (row) => shortTime(row.last_used_at),
    },
    { json, whenEmpty: 'no secrets; add one with: survey-auth app secret add' },
  )
}
