// survey-auth audit: what changed, and what was refused for a reason worth knowing.
import type { Command } from 'commander'
import type { AuditEvent } from '../../gen/surveyauth/v1/admin_service_pb.js'
import type { SurveyEvent } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { asAuditor, pagesOf } from '../compose/operator.js'
import { dateOf, printPages } from '../output.js'
import { command, group, type Json } from './command.js'
import { time, wholeNumber } from './options.js'
import { namedUser, userIdOf } from './usernames.js'

interface ListOptions extends Json {
  readonly username?: string
  readonly appid?: string
  readonly since?: Date
  readonly limit?: number
}

type Trail = AsyncIterable<readonly Event[]>

/** The most the service returns at a time. */
const PAGE_SIZE = 1000

export function addAuditCommands(program: Command): void {
  const audit = group(program, 'audit', {
    about: 'the audit trail; docs/operators/access.md lists the kinds of events',
    examples: ['audit list --username li.wei'],
  })

  command(audit, 'list', {
    about: 'audit events, newest first',
    examples: ['audit list --limit 50', 'audit list --since 2027-01-31', 'audit list --appid app_k3J… --json'],
  })
    .option(
      '--username <name>',
      'only those that concern this user; name, external_id:ID, or user_id, of a deleted one too',
    )
    .option('--appid <appid>', 'only those that concern this app')
    .option('--since <time>', 'only events since this time; ISO 8601, such as 2027-01-31 or 2027-01-31T08:00:00Z', time)
    .option('--limit <number>', 'at most this many; all unless given', wholeNumber(1, 1_000_000))
    .action(listEvents)
}

async function listEvents({ username = '', appid = '', since, limit, json }: ListOptions): Promise<void> {
  await asAuditor(async ({ admin, survey }) => {
    const trails: Trail[] = [
      pagesOf(async (pageToken) => {
        const filter = { ...namedUser(username), appid, pageSize: PAGE_SIZE, pageToken }
        const { events, nextPageToken } = await admin.listAuditEvents(filter)
        return { rows: events.map(ofTokens), nextPageToken }
      }),
    ]
    if (survey) {
      const ownerUserId = await userIdOf({ admin }, username)
      const trail = pagesOf(async (pageToken) => {
        const { events, nextPageToken } = await survey.listSurveyEvents({ ownerUserId, pageSize: PAGE_SIZE, pageToken })
        const concerned = events.filter((event) => appid === '' || event.appid === appid)
        return { rows: concerned.map(ofSurveys), nextPageToken }
      })
      trails.push(trail)
    }
    await printPages(newest(merged(trails), since, limit), (row) => row, columns, { json, whenEmpty: 'no events' })
  })
}

/** One list of several. What is older than the end of a page that others may still continue waits for their next one. */
async function* merged(trails: readonly Trail[]): Trail {
  const heads = trails.map((trail) => ({ pages: trail[Symbol.asyncIterator](), rows: [] as readonly Event[] }))
  for (;;) {
    for (const head of heads) {
      while (head.rows.length === 0) {
        const { value, done } = await head.pages.next()
        if (done) break
        head.rows = value
      }
    }
    const ends = heads.flatMap(({ rows }) => rows.at(-1)?.event_id ?? [])
    const [until] = ends.sort().reverse()
    if (until === undefined) return
    yield heads.flatMap(({ rows }) => rows.filter(({ event_id }) => event_id >= until)).sort(byAge)
    for (const head of heads) head.rows = head.rows.filter(({ event_id }) => event_id < until)
  }
}

function byAge(one: Event, other: Event): number {
  return one.event_id < other.event_id ? 1 : -1
}

/** Ends at a page that holds only older ones, so that a single event of a clock set back does not end it early. */
async function* newest(pages: Trail, since = new Date(0), limit = Number.POSITIVE_INFINITY): Trail {
  let missing = limit
  for await (const page of pages) {
    const found = page.filter(({ created_at }) => created_at >= since).slice(0, missing)
    yield found
    missing -= found.length
    if (missing === 0 || found.length === 0) return
  }
}

const columns = [
  'created_at',
  'kind',
  'actor',
  'actor_id',
  'appid',
  'user_id',
  'grant_id',
  'survey_id',
  'note',
  'request_id',
] as const

/** Of either database. The id sorts by time. */
type Event = ReturnType<typeof ofTokens>

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

function ofSurveys(event: SurveyEvent): Event {
  return {
    ...whatHappened(event),
    appid: event.appid,
    user_id: event.ownerUserId,
    grant_id: '',
    survey_id: Number(event.surveyId),
    request_id: event.requestId,
    note: event.lastAnswerId === 0n ? '' : `answers ${event.firstAnswerId} to ${event.lastAnswerId}`,
  }
}

function whatHappened({ eventId, createTime, kind, actor, actorId, actorSource }: AuditEvent | SurveyEvent) {
  return {
    event_id: eventId,
    created_at: dateOf(createTime) ?? new Date(0),
    kind,
    actor,
    actor_id: actorId,
    actor_source: actorSource,
  }
}
