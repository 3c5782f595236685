// survey-auth audit: what changed, and what was refused for a reason worth knowing.
import { Code, ConnectError } from '@connectrpc/connect'
import { type Command, Option } from 'commander'
import type { AuditEvent } from '../../gen/surveyauth/v1/admin_service_pb.js'
import type { SurveyEvent } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { SURVEY_EVENT_KINDS } from '../../services/survey/store/survey-store.js'
import { AUDIT_KINDS } from '../../services/token/store/token-store.js'
import { asAuditor, pagesOf, type SurveyOperator } from '../compose/operator.js'
import { type Columns, isoTime, message, printPages, shortTime } from '../output.js'
import { examples, type Json, jsonOption, time, wholeNumber } from './options.js'
import { userFilter, userIdOfFilter } from './usernames.js'

interface ListOptions extends Json {
  readonly username?: string
  readonly appid?: string
  readonly surveyId?: number
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
    .option('--survey-id <id>', 'only those that concern this survey', wholeNumber(1, Number.MAX_SAFE_INTEGER))
    .addOption(new Option('--kind <kind>', 'only those of this kind').choices([...AUDIT_KINDS, ...SURVEY_EVENT_KINDS]))
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
        'audit list --survey-id 7',
      ),
    )
    .action(listEvents)
}

/** An event of either database, as it is printed. */
type Row = ReturnType<typeof ofTokens>

async function listEvents(options: ListOptions): Promise<void> {
  const { username = '', appid = '', surveyId, kind, requestId, limit = PAGE_SIZE, json } = options
  const isSifted = kind !== undefined || requestId !== undefined
  const pageSize = isSifted ? PAGE_SIZE : Math.min(limit, PAGE_SIZE)
  const isOfSurveys = SURVEY_EVENT_KINDS.some((one) => one === kind)
  await asAuditor(async ({ admin, survey }) => {
    const user = await userFilter(admin, username)
    const trails: AsyncIterable<readonly Row[]>[] = []
    if (surveyId === undefined && !isOfSurveys) {
      const trail = pagesOf(async (pageToken) => {
        const { events, nextPageToken } = await admin.listAuditEvents({ ...user, appid, pageSize, pageToken })
        return { rows: events.map(ofTokens), nextPageToken }
      })
      trails.push(trail)
    }
    if (survey && appid === '' && (kind === undefined || isOfSurveys)) {
      const ownerUserId = await userIdOfFilter(admin, user)
      const filter = { ownerUserId, surveyId: BigInt(surveyId ?? 0), pageSize }
      trails.push(pagesOf((pageToken) => surveyEvents(survey, { ...filter, pageToken })))
    }
    await printPages(wanted(newestFirst(trails), options), (row) => row, columns, { json, whenEmpty: 'no events' })
  })
}

/** None where it is not served, which is said: `--url` is for both services, and there may be the one for tokens alone. */
async function surveyEvents(
  survey: SurveyOperator['survey'],
  request: Parameters<SurveyOperator['survey']['listSurveyEvents']>[0],
): Promise<{ readonly rows: readonly Row[]; readonly nextPageToken: string }> {
  try {
    const { events, nextPageToken } = await survey.listSurveyEvents(request)
    return { rows: events.map(ofSurveys), nextPageToken }
  } catch (error) {
    if (!(error instanceof ConnectError) || error.code !== Code.Unimplemented) throw error
    message('without surveys, of which this service tells no events; SURVEY_SERVICE_URL names the one that does')
    return { rows: [], nextPageToken: '' }
  }
}

/** One list of several, in which each is as it was; the ids of events sort by time. */
async function* newestFirst(lists: readonly AsyncIterable<readonly Row[]>[]): AsyncGenerator<readonly Row[]> {
  const trails = lists.map((list) => ({ pages: list[Symbol.asyncIterator](), rows: [] as Row[], isOver: false }))
  for (;;) {
    for (const trail of trails) {
      while (trail.rows.length === 0 && !trail.isOver) {
        const { value, done } = await trail.pages.next()
        trail.isOver = done === true
        trail.rows = [...(value ?? [])].reverse() // the newest is the last
      }
    }
    const known = trails.map(({ rows }) => rows).filter((rows) => rows.length > 0)
    if (known.length === 0) return
    const merged: Row[] = []
    while (known.every((rows) => rows.length > 0)) {
      const newest = known.reduce((one, other) => (idOfLast(other) > idOfLast(one) ? other : one))
      merged.push(...newest.splice(-1))
    }
    yield merged
  }
}

const idOfLast = (rows: readonly Row[]) => rows.at(-1)?.event_id ?? ''

/** What the options leave of a list. What follows the last of it is not asked for. */
async function* wanted(
  pages: AsyncIterable<readonly Row[]>,
  { kind, requestId, since, limit = Number.POSITIVE_INFINITY }: ListOptions,
): AsyncGenerator<readonly Row[]> {
  const isEarly = (row: Row) => since !== undefined && Date.parse(row.created_at) < since.getTime()
  let missing = limit
  for await (const page of pages) {
    const found = page
      .filter((row) => !isEarly(row))
      .filter((row) => kind === undefined || row.kind === kind)
      .filter((row) => requestId === undefined || row.request_id === requestId)
      .slice(0, missing)
    missing -= found.length
    yield found
    if (missing === 0 || page.some(isEarly)) return
  }
}

const columns: Columns<Row> = {
  created: (row) => shortTime(row.created_at),
  kind: (row) => row.kind,
  actor: (row) => row.actor,
  appid: (row) => row.appid,
  user_id: (row) => row.user_id,
  grant_id: (row) => row.grant_id,
  survey_id: (row) => row.survey_id,
  note: (row) => row.note,
  request_id: (row) => row.request_id,
}

function ofTokens(event: AuditEvent) {
  return {
    ...whatHappened(event),
    appid: event.appid,
    user_id: event.userId,
    grant_id: event.grantId,
    survey_id: null as number | null,
    request_id: event.requestId,
    note: event.note,
  }
}

function ofSurveys(event: SurveyEvent): Row {
  return {
    ...whatHappened(event),
    appid: '',
    user_id: event.ownerUserId,
    grant_id: '',
    survey_id: Number(event.surveyId),
    request_id: event.requestId,
    note: '',
  }
}

function whatHappened({ eventId, createTime, kind, actor }: AuditEvent | SurveyEvent) {
  return { event_id: eventId, created_at: isoTime(createTime) ?? '', kind, actor }
}
