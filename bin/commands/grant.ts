// survey-auth grant: what users gave to apps.
import type { Command } from 'commander'
import type { Grant } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import { asOperator, pagesOf } from '../compose/operator.js'
import { dateOf, message, printJson, printPages } from '../output.js'
import { command, group, type Json } from './command.js'
import { namedUser } from './usernames.js'

interface ListOptions extends Json {
  readonly username?: string
  readonly appid?: string
}

export function addGrantCommands(program: Command): void {
  const grant = group(program, 'grant', {
    about: 'what users gave to apps',
    examples: ['grant list --username li.wei', 'grant revoke grant_9fT…'],
  })

  command(grant, 'list', {
    about: 'grants, newest first; ended ones until they are cleaned away',
    examples: ['grant list --username li.wei', 'grant list --appid app_k3J… --json'],
  })
    .option('--username <name>', "only this user's; name, external_id:ID, or user_id, of a deleted one too")
    .option('--appid <appid>', "only this app's")
    .action(listGrants)

  command(grant, 'revoke <grant_id>', {
    about: 'refuse all tokens of a grant from the next request on',
    examples: ['grant revoke grant_9fT…'],
  }).action(revokeGrant)
}

async function listGrants({ username = '', appid = '', json }: ListOptions): Promise<void> {
  await asOperator(async ({ admin }) => {
    const pages = pagesOf(async (pageToken) => {
      const page = await admin.listGrants({ ...namedUser(username), appid, pageToken })
      return { rows: page.grants, nextPageToken: page.nextPageToken }
    })
    const columns = [
      'grant_id',
      'app_name',
      'username',
      'openid',
      'permissions',
      'created_at',
      'last_used_at',
      'expires_at',
    ] as const
    await printPages(pages, grantRow, [...columns, 'revoked_at'], { json, whenEmpty: 'no grants' })
  })
}

async function revokeGrant(grantId: string, { json }: Json): Promise<void> {
  const { alreadyRevoked } = await asOperator(({ admin }) => admin.revokeGrant({ grantId }))
  if (json) printJson({ grant_id: grantId })
  message(alreadyRevoked ? 'it had been revoked already' : 'revoked')
}

function grantRow(grant: Grant) {
  return {
    grant_id: grant.grantId,
    appid: grant.appid,
    app_name: grant.appName,
    user_id: grant.userId,
    username: grant.username,
    external_id: grant.externalId,
    openid: grant.openid,
    scope: grant.scope,
    permissions: grant.permissions.map((permission) => Permission[permission]?.toLowerCase()),
    consent_version: grant.consentVersion,
    created_at: dateOf(grant.createTime),
    last_used_at: dateOf(grant.lastUseTime),
    answers_read_at: dateOf(grant.answersReadTime),
    expires_at: dateOf(grant.expireTime),
    revoked_at: dateOf(grant.revokeTime),
  }
}
