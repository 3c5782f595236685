// survey-auth audit: what changed, and what was refused for a reason worth knowing.
import { Code, ConnectError } from '@connectrpc/connect'
import { type Command, Option } from 'commander'
import type { AuditEvent } from '../../gen/surveyauth/v1/admin_service_pb.js'
import type { SurveyEvent } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { SURVEY_EVENT_KINDS } from '../../services/survey/store/survey-store.js'
import { AUDIT_KINDS } from '../../services/token/store/token-store.js'
import { type Auditor, asAuditor, pagesOf } from '../compose/operator.js'
import { CommandError, EXIT, report } from '../exit.js'
import { type Columns, isoTime, message, printPages, shortTime } from '../output.js'
import { examples, type Json, jsonOption, time, wholeNumber } from './options.js'
import { begun, merged, since, type Trail } from './trails.js'
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

const WHERE_SURVEYS_ARE = 'SURVEY_SERVICE_URL names the service that has them'
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

async function listEvents(options: ListOptions, command: Command): Promise<void> {
  const { username = '', appid = '', surveyId, kind, requestId, limit = PAGE_SIZE, json } = options
  const isOfSurveys = SURVEY_EVENT_KINDS.some((one) => one === kind)
  const wantsTokens = surveyId === undefined && !isOfSurveys
  const wantsSurveys = appid === '' && (kind === undefined || isOfSurveys)
  if (!wantsTokens && !wantsSurveys) command.error('error: no event is of a survey and of something else')
  const isSifted = kind !== undefined || requestId !== undefined
  const pageSize = isSifted ? PAGE_SIZE : Math.min(limit, PAGE_SIZE)
  await asAuditor({ wantsSurveys }, async ({ admin, surveys }) => {
    const user = await userFilter(admin, username)
    const trails: Trail<Row>[] = []
    if (wantsTokens) {
      const trail = pagesOf(async (pageToken) => {
        const { events, nextPageToken } = await admin.listAuditEvents({ ...user, appid, pageSize, pageToken })
        return { rows: events.map(ofTokens), nextPageToken }
      })
      trails.push(await begun(trail))
    }
    if (wantsSurveys) {
      const filter = { ownerUserId: await userIdOfFilter(admin, user), surveyId: BigInt(surveyId ?? 0), pageSize }
      const trail = begun(surveyEvents(surveys, filter, !wantsTokens))
      trails.push(await (wantsTokens ? trail.catch(withoutSurveys) : trail))
    }
    const list = merged(
      trails.map((trail) => since(trail, options.since)),
      pageSize,
    )
    await printPages(wanted(list, options), (row) => row, columns, { json, whenEmpty: 'no events' })
  })
}

async function* surveyEvents(
  surveys: Auditor['surveys'],
  filter: { readonly ownerUserId: string; readonly surveyId: bigint; readonly pageSize: number },
  isAlone: boolean,
): Trail<Row> {
  const survey = await surveys()
  if (!survey && isAlone)
    throw new CommandError('there is no database of surveys here', EXIT.failure, WHERE_SURVEYS_ARE)
  if (!survey) {
    message(`without surveys: there is no database of them here; ${WHERE_SURVEYS_ARE}`)
    return
  }
  yield* pagesOf(async (pageToken) => {
    const { events, nextPageToken } = await survey.listSurveyEvents({ ...filter, pageToken })
    return { rows: events.map(ofSurveys), nextPageToken }
  })
}

/** The other trail is worth reading without this one, most of all when something is broken; a script can tell by the exit code. */
function withoutSurveys(error: unknown): Trail<Row> {
  message('without surveys:')
  const exitCode = report(error)
  const isElsewhere = error instanceof ConnectError && error.code === Code.Unimplemented
  if (!isElsewhere) process.exitCode = exitCode
  return pagesOf(async () => ({ rows: [], nextPageToken: '' }))
}

/** What the options leave of a list. What follows the last of it is not asked for. */
async function* wanted(
  pages: Trail<Row>,
  { kind, requestId, limit = Number.POSITIVE_INFINITY }: ListOptions,
): AsyncGenerator<readonly Row[]> {
  let missing = limit
  for await (const page of pages) {
    const found = page
      .filter((row) => kind === undefined || row.kind === kind)
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
