// survey-auth grant: what users gave to apps.
import type { Command } from 'commander'
import type { Grant } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { asOperator, pagesOf } from '../compose/operator.js'
import { type Columns, isoTime, message, printJson, printPages, shortTime } from '../output.js'
import { examples, type Json, jsonOption } from './options.js'
import { userFilter } from './usernames.js'

interface ListOptions extends Json {
  readonly username?: string
  readonly appid?: string
}

export function addGrantCommands(program: Command): void {
  const grant = program
    .command('grant')
    .description('what users gave to apps')
    .addHelpText('after', examples('grant list --username li.wei', 'grant revoke grant_9fT…'))

  grant
    .command('list')
    .description('grants, newest first; ended ones until they are cleaned away')
    .option('--username <name>', "only this user's; name, external_id:ID, or user_id, of a deleted one too")
    .option('--appid <appid>', "only this app's")
    .addOption(jsonOption())
    .addHelpText('after', examples('grant list --username li.wei', 'grant list --appid app_k3J… --json'))
    .action(listGrants)

  grant
    .command('revoke <grant_id>')
    .description('refuse all tokens of a grant from the next request on')
    .addOption(jsonOption())
    .addHelpText('after', examples('grant revoke grant_9fT…'))
    .action(async (grantId: string, { json }: Json) => {
      const { alreadyRevoked } = await asOperator(({ admin }) => admin.revokeGrant({ grantId }))
      if (json) printJson({ grant_id: grantId })
      message(alreadyRevoked ? 'it had been revoked already' : 'revoked')
    })
}

async function listGrants({ username = '', appid = '', json }: ListOptions): Promise<void> {
  await asOperator(async ({ admin }) => {
    const user = await userFilter(admin, username)
    const pages = pagesOf(async (pageToken) => {
      const page = await admin.listGrants({ ...user, appid, pageToken })
      return { rows: page.grants, nextPageToken: page.nextPageToken }
    })
    await printPages(pages, grantJson, columns, { json, whenEmpty: 'no grants' })
  })
}

const columns: Columns<ReturnType<typeof grantJson>> = {
  grant_id: (row) => row.grant_id,
  app: (row) => row.app_name,
  user: (row) => row.username,
  openid: (row) => row.openid,
  created: (row) => shortTime(row.created_at),
  last_used: (row) => shortTime(row.last_used_at),
  expires: (row) => shortTime(row.expires_at),
  revoked: (row) => shortTime(row.revoked_at),
}

function grantJson(grant: Grant) {
  return {
    grant_id: grant.grantId,
    appid: grant.appid,
    app_name: grant.appName,
    user_id: grant.userId,
    username: grant.username,
    external_id: grant.externalId,
    openid: grant.openid,
    scope: grant.scope,
    created_at: isoTime(grant.createTime),
    last_used_at: isoTime(grant.lastUseTime),
    expires_at: isoTime(grant.expireTime),
    revoked_at: isoTime(grant.revokeTime),
  }
}
