// survey-auth grant: what users gave to apps.
import type { Command } from 'commander'
import type { Grant } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import { inParts } from '../../services/storage/in-parts.js'
import { asOperator, type Operator, pagesOf, unlessMissing } from '../compose/operator.js'
import { dateOf, message, note, printPages, printRow } from '../output.js'
import { command, group, type Json } from './command.js'
import { asksFirst, confirm, type Sure } from './terminal.js'
import { namedUser } from './usernames.js'

interface Filter {
  readonly username?: string
  readonly appid?: string
}
type ListOptions = Filter & Json
interface RevokeOptions extends Filter, Sure {
  readonly dryRun?: true
}

/** How many revocations are under way at the same time. */
const AT_A_TIME = 50

const REVOKE_NOTES = `
With --appid, --username or both, all such grants are revoked, also those that are made while it runs. A code that somebody holds
already can become a grant afterwards: where that matters, begin with app disable or user disable. If it is interrupted, run it
again.
`

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

  asksFirst(
    command(grant, 'revoke', {
      about: 'refuse all tokens of a grant, or of many, from the next request on',
      examples: [
        'grant revoke grant_9fT…',
        'grant revoke --appid app_k3J… --dry-run',
        'grant revoke --appid app_k3J… --username li.wei',
      ],
      notes: REVOKE_NOTES,
    }),
  )
    .argument('[grant_id]', 'a single grant')
    .option('--username <name>', "all of this user's; name, external_id:ID, or user_id")
    .option('--appid <appid>', 'all to this app')
    .option('--dry-run', 'of many: revoke nothing, say how many there are')
    .action(revoke)
}

async function listGrants({ json, ...filter }: ListOptions): Promise<void> {
  await asOperator(async ({ admin }) => {
    const pages = pagesOfGrants(admin, filter)
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

function pagesOfGrants(
  admin: Operator['admin'],
  { username = '', appid = '' }: Filter,
): AsyncIterable<readonly Grant[]> {
  return pagesOf(async (pageToken) => {
    const page = await admin.listGrants({ ...namedUser(username), appid, pageSize: 1000, pageToken })
    return { rows: page.grants, nextPageToken: page.nextPageToken }
  })
}

async function revoke(grantId: string | undefined, options: RevokeOptions, command: Command): Promise<void> {
  const isMany = options.appid !== undefined || options.username !== undefined
  if (grantId === undefined ? !isMany : isMany || options.dryRun) {
    command.error('error: give a grant_id, or --appid or --username or both')
  }
  await (grantId === undefined ? revokeAll(options) : revokeOne(grantId, options))
}

async function revokeOne(grantId: string, { json }: Json): Promise<void> {
  const { alreadyRevoked } = await asOperator(({ admin }) => admin.revokeGrant({ grantId }))
  printRow({ grant_id: grantId }, { json })
  note(alreadyRevoked ? 'it had been revoked already' : 'revoked')
}

async function revokeAll(options: RevokeOptions): Promise<void> {
  const { username, appid, dryRun, json } = options
  const whose = [username && `of ${username}`, appid && `to ${appid}`].filter(Boolean).join(' ')
  if (!dryRun) await confirm(`Revoke all grants ${whose}?`, options)
  const count = { found: 0, revoked: 0 }
  try {
    await asOperator(({ admin }) => (dryRun ? look(admin, options, count) : revokeUntilNone(admin, options, count)))
  } catch (error) {
    if (count.revoked > 0) message(`${countOfGrants(count.revoked)} revoked so far; run this again`)
    throw error
  }
  printRow({ ...count }, { json })
  note(dryRun ? `${countOfGrants(count.found)} would be revoked` : `${countOfGrants(count.revoked)} revoked`)
}

interface Count {
  /** Not revoked when they were listed. */
  found: number
  revoked: number
}

async function look(admin: Operator['admin'], filter: Filter, count: Count): Promise<void> {
  for await (const page of pagesOfGrants(admin, filter)) count.found += page.filter(isLeft).length
}

/** Lists them again after each round that revoked some: grants that were made meanwhile are on a page that was fetched already. */
export async function revokeUntilNone(admin: Operator['admin'], filter: Filter, count: Count): Promise<void> {
  let before: number
  do {
    before = count.revoked
    for await (const page of pagesOfGrants(admin, filter)) {
      for (const part of inParts(page.filter(isLeft), AT_A_TIME)) {
        count.found += part.length
        const answers = await Promise.all(part.map(({ grantId }) => unlessMissing(admin.revokeGrant({ grantId }))))
        count.revoked += answers.filter((answer) => answer?.alreadyRevoked === false).length
      }
    }
  } while (count.revoked > before)
}

function isLeft({ revokeTime }: Grant): boolean {
  return revokeTime === undefined
}

function countOfGrants(count: number): string {
  return `${count} ${count === 1 ? 'grant' : 'grants'}`
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
