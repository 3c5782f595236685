// survey-auth audit: what changed, and what was refused for a reason worth knowing.
import type { Command } from 'commander'
import type { AuditEvent } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { allPages, asOperator } from '../compose/operator.js'
import { isoTime, printRows, shortTime } from '../output.js'
import { examples, type Json, jsonOption } from './options.js'
import { usernameOf } from './usernames.js'

interface ListOptions extends Json {
  readonly username?: string
  readonly appid?: string
}

export function addAuditCommands(program: Command): void {
  const audit = program.command('audit').description('the audit trail; docs/operations.md lists the kinds of events')

  audit
    .command('list')
    .description('audit events, newest first')
    .option('--username <name>', 'only those that concern this user; name or user_id')
    .option('--appid <appid>', 'only those that concern this app')
    .addOption(jsonOption())
    .addHelpText('after', examples('audit list', 'audit list --appid app_k3J… --json'))
    .action(listEvents)
}

async function listEvents({ username: user = '', appid = '', json }: ListOptions): Promise<void> {
  const events = await asOperator(async ({ admin }) => {
    const username = await usernameOf(admin, user)
    return allPages(async (pageToken) => {
      const page = await admin.listAuditEvents({ username, appid, pageSize: 1000, pageToken })
      return { rows: page.events, nextPageToken: page.nextPageToken }
    })
  })
  const rows = events.map(eventJson)
  printRows(
    rows,
    {
      created: (row) => shortTime(row.created_at),
      kind: (row) => row.kind,
      actor: (row) => row.actor,
      appid: (row) => row.appid,
      user_id: (row) => row.user_id,
      grant_id: (row) => row.grant_id,
      note: (row) => row.note,
      request_id: (row) => row.request_id,
    },
    { json, whenEmpty: 'no events' },
  )
}

function eventJson(event: AuditEvent) {
  return {
    event_id: event.eventId,
    created_at: isoTime(event.createTime),
    kind: event.kind,
    actor: event.actor,
    appid: event.appid,
    user_id: event.userId,
    grant_id: event.grantId,
    request_id: event.requestId,
    note: event.note,
  }
}
