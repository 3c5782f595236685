// survey-auth audit: what changed, and what was refused for a reason worth knowing.
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { type Command, Option } from 'commander'
import type { AuditEvent } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { AUDIT_KINDS } from '../../services/token/store/token-store.js'
import { asOperator, pagesOf } from '../compose/operator.js'
import { type Columns, isoTime, printPages, shortTime } from '../output.js'
import { examples, type Json, jsonOption, time, wholeNumber } from './options.js'
import { userFilter } from './usernames.js'

interface ListOptions extends Json {
  readonly username?: string
  readonly appid?: string
  readonly kind?: string
  readonly requestId?: string
  readonly since?: Date
  readonly limit?: number
}

/** As many as the service gives at a time. */
const PAGE_SIZE = 1000

export function addAuditCommands(program: Command): void {
  const audit = program.command('audit').description('the audit trail; docs/operations.md lists the kinds of events')

  audit
    .command('list')
    .description('audit events, newest first')
    .option('--username <name>', 'only those that concern this user; name, or user_id, of a deleted one too')
    .option('--appid <appid>', 'only those that concern this app')
    .addOption(new Option('--kind <kind>', 'only those of this kind').choices(AUDIT_KINDS))
    .option('--request-id <uuid>', 'only what this request did')
    .option('--since <time>', 'none from before; ISO 8601, such as 2027-01-31 or 2027-01-31T08:00:00Z', time)
    .option('--limit <number>', 'the newest so many; all, if not given', wholeNumber(1, 1_000_000))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      examples(
        'audit list --limit 50',
        'audit list --appid app_k3J… --json',
        'audit list --since 2027-01-31 --kind code.replayed',
      ),
    )
    .action(listEvents)
}

async function listEvents(options: ListOptions): Promise<void> {
  const { appid = '', kind, requestId, since, limit = Number.POSITIVE_INFINITY, json } = options
  const isSifted = kind !== undefined || requestId !== undefined
  const pageSize = isSifted ? PAGE_SIZE : Math.min(limit, PAGE_SIZE)
  await asOperator(async ({ admin }) => {
    const user = await userFilter(admin, options.username ?? '')
    let missing = limit
    const pages = pagesOf(async (pageToken) => {
      const page = await admin.listAuditEvents({ ...user, appid, pageSize, pageToken })
      const found = page.events.filter((event) => isWanted(event, options)).slice(0, missing)
      missing -= found.length
      const last = page.events.at(-1)
      const isOver = missing === 0 || (last !== undefined && isBefore(last, since))
      return { rows: found, nextPageToken: isOver ? '' : page.nextPageToken }
    })
    await printPages(pages, eventJson, columns, { json, whenEmpty: 'no events' })
  })
}

const columns: Columns<ReturnType<typeof eventJson>> = {
  created: (row) => shortTime(row.created_at),
  kind: (row) => row.kind,
  actor: (row) => row.actor,
  appid: (row) => row.appid,
  user_id: (row) => row.user_id,
  grant_id: (row) => row.grant_id,
  note: (row) => row.note,
  request_id: (row) => row.request_id,
}

function isWanted(event: AuditEvent, { kind, requestId, since }: ListOptions): boolean {
  if (kind !== undefined && event.kind !== kind) return false
  if (requestId !== undefined && event.requestId !== requestId) return false
  return !isBefore(event, since)
}

function isBefore({ createTime }: AuditEvent, time: Date | undefined): boolean {
  return time !== undefined && createTime !== undefined && timestampMs(createTime) < time.getTime()
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
