// survey-auth audit: what changed, and what was refused for a reason worth knowing.
import { type Command, Option } from 'commander'
import type { AuditEvent } from '../../gen/surveyauth/v1/admin_service_pb.js'
import type { SurveyEvent } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { SURVEY_EVENT_KINDS } from '../../services/survey/store/survey-store.js'
import { AUDIT_KINDS } from '../../services/token/store/token-store.js'
import { type Auditor, asAuditor, pagesOf } from '../compose/operator.js'
import { report } from '../exit.js'
import { type Columns, isoTime, message, printPages, shortTime } from '../output.js'
import { examples, type Json, jsonOption, requestId, surveyId, time, wholeNumber } from './options.js'
import { merged, since, type Trail } from './trails.js'
import { userFilter, userIdOfFilter } from './usernames.js'

interface ListOptions extends Json {
  readonly username?: string
  readonly appid?: string
  readonly surveyId?: number
  readonly kind?: readonly string[]
  readonly requestId?: string
  readonly since?: Date
  readonly limit?: number
}

/** The most the service returns at a time. */
const PAGE_SIZE = 1000

const KINDS = [...AUDIT_KINDS, ...SURVEY_EVENT_KINDS]

export function addAuditCommands(program: Command): void {
  const audit = program
    .command('audit')
    .description('the audit trail; docs/operators/access.md lists the kinds of events')
    .addHelpText('after', examples('audit list --username li.wei'))

  audit
    .command('list')
    .description('audit events, newest first')
    .option(
      '--username <name>',
      'only those that concern this user; name, external_id:ID, or user_id, of a deleted one too',
    )
    .option('--appid <appid>', 'only those that concern this app')
    .option('--survey-id <id>', 'only those that concern this survey', surveyId)
    .addOption(new Option('--kind <kind...>', 'only those of this kind; several may be given').choices(KINDS))
    .option('--request-id <id>', 'only what this request did', requestId)
    .option('--since <time>', 'only events since this time; ISO 8601, such as 2027-01-31 or 2027-01-31T08:00:00Z', time)
    .option('--limit <number>', 'at most this many, newest first; all unless given', wholeNumber(1, 1_000_000))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      examples(
        'audit list --limit 50',
        'audit list --appid app_k3J… --json',
        'audit list --since 2027-01-31 --kind code.replayed grant.revoked',
        'audit list --survey-id 7',
      ),
    )
    .action(listEvents)
}

/** An event of either database, as it is printed. */
type Row = ReturnType<typeof ofTokens>

async function listEvents(options: ListOptions, command: Command): Promise<void> {
  const { username = '', appid = '', surveyId, kind = KINDS, json } = options
  const wantsTokens = surveyId === undefined && AUDIT_KINDS.some((one) => kind.includes(one))
  const wantsSurveys = appid === '' && SURVEY_EVENT_KINDS.some((one) => kind.includes(one))
  if (!wantsTokens && !wantsSurveys)
    command.error('error: these filters match no event: --survey-id is for events of surveys, --appid for all others')
  await asAuditor({ wantsSurveys }, async (auditor) => {
    const { admin } = auditor
    const user = await userFilter(admin, username)
    const trails: Trail<Row>[] = []
    if (wantsTokens) {
      const trail = pagesOf(async (pageToken) => {
        const filter = { ...user, appid, pageSize: PAGE_SIZE, pageToken }
        const { events, nextPageToken } = await admin.listAuditEvents(filter)
        return { rows: events.map(ofTokens), nextPageToken }
      })
      trails.push(trail)
    }
    if (wantsSurveys) {
      const trail = surveyEvents(auditor, await userIdOfFilter(admin, user), surveyId)
      trails.push(wantsTokens ? asFarAsItGoes(trail, auditor) : trail)
    }
    const list = merged(
      trails.map((trail) => since(trail, options.since)),
      PAGE_SIZE,
    )
    await printPages(wanted(list, options), (row) => row, columns, { json, whenEmpty: 'no events' })
  })
}

/** None, with a message, where there is no database of surveys. */
async function* surveyEvents({ surveys }: Auditor, ownerUserId: string, surveyId = 0): Trail<Row> {
  const survey = await surveys()
  if (!survey) {
    message('listing without surveys: there is no survey database here; if it is elsewhere, set SURVEY_SERVICE_URL')
    return
  }
  yield* pagesOf(async (pageToken) => {
    const filter = { ownerUserId, surveyId: BigInt(surveyId), pageSize: PAGE_SIZE, pageToken }
    const { events, nextPageToken } = await survey.listSurveyEvents(filter)
    return { rows: events.map(ofSurveys), nextPageToken }
  })
}

/**
 * The other trail is worth reading without this one, most of all when something is broken. A message says that the list is
 * incomplete, and a script can tell by the exit code.
 */
async function* asFarAsItGoes(trail: Trail<Row>, { explained }: Auditor): Trail<Row> {
  let hasBegun = false
  try {
    for await (const page of trail) {
      yield page
      hasBegun = true
    }
  } catch (error) {
    message(hasBegun ? 'listing without older events of surveys:' : 'listing without surveys:')
    process.exitCode = report(await explained(error))
  }
}

/** The events of a list that match the options. Once `limit` are found, no further page is fetched. */
async function* wanted(
  pages: Trail<Row>,
  { kind, requestId, limit = Number.POSITIVE_INFINITY }: ListOptions,
): AsyncGenerator<readonly Row[]> {
  let missing = limit
  for await (const page of pages) {
    const found = page
      .filter((row) => kind === undefined || kind.includes(row.kind))
      .filter((row) => requestId === undefined || row.request_id === requestId)
      .slice(0, missing)
    missing -= found.length
    yield found
    if (missing === 0) return
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
