// Metrics in Prometheus form. Labels come from closed sets: route names, statuses, RPC names, codes, reasons.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { RequestRecord } from '../../gateway/app.js'
import { SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { REPLAY_EFFECTS, type ReplayEffect } from '../../services/protocol/codes.js'
import type { CallRecord } from '../../services/rpc/dispatcher.js'
import type { Connections } from '../../services/storage/connections.js'
import type { ProviderCall, ProviderClient } from '../../services/survey/provider/provider-client.js'
import { PROVIDER_FAULTS } from '../../services/survey/provider/provider-failure.js'
import type { Provider } from '../../services/token/oidc/provider.js'
import { PROVIDER_OUTCOMES, PROVIDER_STEPS, type ProviderEvent } from '../../services/token/sign-in-methods.js'
import { buildInfo } from '../build-info.js'
import { codeName, outcomeName, reasonName } from './log.js'

/** Of calls to a survey provider. */
const ALERTED_OUTCOMES = ['ok', ...PROVIDER_FAULTS]

export interface Metrics {
  readonly contentType: string
  request(record: RequestRecord): void
  call(record: CallRecord): void
  /** A used code that was sent again. */
  replayed(effect: ReplayEffect): void
  /** The OpenID Providers at which users sign in. */
  providers(providers: Iterable<Provider>): void
  /** A step of a sign-in at one of them. */
  provider(event: ProviderEvent): void
  /** The provider of a platform's surveys. */
  surveyProvider(client: Pick<ProviderClient, 'isBreakerOpen'>): void
  surveyProviderCall(call: ProviderCall): void
  /** A commit of SQLite and the writes that shared it. */
  commit(store: string, writes: number, durationMs: number): void
  /** A failure nobody expected: an alert is due. */
  unexpected(): void
  /** A connection to the public port beyond HTTP_MAX_CONNECTIONS. */
  dropped(): void
  /** Whether the janitor of a database waits for the clock to be believed. */
  cleanUpWaits(store: string, waits: boolean): void
  /** What this process is asked for at each scrape. */
  follow(process: Followed): void
  /** The system's clock was set back. */
  clockSetBack(): void
  /** SQLite's log or a checkpoint could not be flushed. */
  diskFailed(): void
  /** The certificate that identifies this process to others. */
  certificate(file: string, endsAtMs: number): void
  text(): Promise<string>
}

/** A process as its metrics see it. */
export interface Followed {
  /** Why it should get no requests; empty when it is ready. */
  notReady(): readonly string[]
  /** What is wrong although it is ready. */
  readyBut(): readonly string[]
  /** To the database of each store, if that is a server. */
  connections(): ReadonlyMap<string, Connections | undefined>
  /** Free bytes on the disk of each SQLite database, by store. */
  diskFree(): Promise<ReadonlyMap<string, number>>
  /** When the last backup ended or, before the first, the database was made, in ms since 1970, of each SQLite database. */
  lastBackup(): Promise<ReadonlyMap<string, number>>
}

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

export function createMetrics(): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const registers = [registry]
  const build = new Gauge({
    name: 'survey_auth_build_info',
    help: 'always 1; the labels name what runs',
    labelNames: ['version', 'commit', 'node'],
    registers,
  })
  build.set({ ...buildInfo(), node: process.version }, 1)
  let followed: Followed | undefined
  new Gauge({
    name: 'survey_auth_not_ready',
    help: 'reasons for which /readyz is 503: 1 each',
    labelNames: ['reason'],
    registers,
    collect() {
      this.reset()
      for (const reason of followed?.notReady() ?? []) this.set({ reason }, 1)
    },
  })
  new Gauge({
    name: 'survey_auth_ready_but',
    help: 'what /readyz names although it is 200: 1 each',
    labelNames: ['reason'],
    registers,
    collect() {
      this.reset()
      for (const reason of followed?.readyBut() ?? []) this.set({ reason }, 1)
    },
  })
  new Gauge({
    name: 'survey_auth_database_connections',
    help: 'connections to PostgreSQL that are in_use or idle, and callers that are waiting for one',
    labelNames: ['store', 'state'],
    registers,
    collect() {
      for (const [store, connections] of followed?.connections() ?? []) {
        if (!connections) continue
        this.set({ store, state: 'in_use' }, connections.inUse)
        this.set({ store, state: 'idle' }, connections.idle)
        this.set({ store, state: 'waiting' }, connections.waiting)
      }
    },
  })
  new Gauge({
    name: 'survey_auth_disk_free_bytes',
    help: 'what is free on the disk of a SQLite database',
    labelNames: ['store'],
    registers,
    async collect() {
      for (const [store, bytes] of (await followed?.diskFree()) ?? []) this.set({ store }, bytes)
    },
  })
  new Gauge({
    name: 'survey_auth_last_backup_timestamp_seconds',
    help: 'when the last survey-auth backup of the SQLite databases ended, or, before the first, when they were made',
    labelNames: ['store'],
    registers,
    async collect() {
      for (const [store, atMs] of (await followed?.lastBackup()) ?? []) this.set({ store }, atMs / 1000)
    },
  })
  const clockSetBacks = new Counter({
    name: 'survey_auth_clock_set_back_total',
    help: 'times that the clock of the system was set back by a second or more',
    registers,
  })
  const diskFailures = new Counter({
    name: 'survey_auth_disk_failures_total',
    help: 'flushes and checkpoints of SQLite that failed; each is on stderr',
    registers,
  })
  const requests = new Counter({
    name: 'survey_auth_http_requests_total',
    help: 'answered requests',
    labelNames: ['route', 'status', 'outcome'],
    registers,
  })
  const requestSeconds = new Histogram({
    name: 'survey_auth_http_request_duration_seconds',
    help: 'time from the request line to the end of the answer',
    labelNames: ['route'],
    buckets: SECONDS,
    registers,
  })
  const callSeconds = new Histogram({
    name: 'survey_auth_rpc_duration_seconds',
    help: 'time in the dispatcher, handler and database included',
    labelNames: ['method', 'code'],
    buckets: SECONDS,
    registers,
  })
  const refused = new Counter({
    name: 'survey_auth_refused_total',
    help: 'RPCs that failed, by reason',
    labelNames: ['method', 'reason'],
    registers,
  })
  const replayedCodes = new Counter({
    name: 'survey_auth_replayed_codes_total',
    help: 'used codes that were sent again with the secret of their app, by what that did',
    labelNames: ['effect'],
    registers,
  })
  // Present from the start, at 0: for Prometheus, a series that first appears when something happens has not grown, and alerts
  // on it stay silent.
  for (const effect of REPLAY_EFFECTS) replayedCodes.inc({ effect }, 0)
  const providerSteps = new Counter({
    name: 'survey_auth_provider_total',
    help: 'steps of sign-ins at OpenID Providers, by what came of them',
    labelNames: ['provider', 'step', 'outcome'],
    registers,
  })
  const asked: Provider[] = []
  new Gauge({
    name: 'survey_auth_provider_metadata_age_seconds',
    help: 'time since an OpenID Provider last answered what it publishes about itself; absent before it has',
    labelNames: ['provider'],
    registers,
    collect() {
      for (const { settings, metadata } of asked) {
        const { ageMs } = metadata()
        if (ageMs !== undefined) this.set({ provider: settings.id }, ageMs / 1000)
      }
    },
  })
  const surveyProviderCalls = new Counter({
    name: 'survey_auth_survey_provider_calls_total',
    help: 'calls to the provider of surveys, with their retries, by what came of them',
    labelNames: ['method', 'outcome'],
    registers,
  })
  let surveyProvider: Pick<ProviderClient, 'isBreakerOpen'> | undefined
  new Gauge({
    name: 'survey_auth_survey_provider_breaker_open',
    help: 'whether the provider of surveys is asked only now and then, because it did not answer: 1 or 0',
    registers,
    collect() {
      if (surveyProvider) this.set(Number(surveyProvider.isBreakerOpen))
    },
  })
  const commitSeconds = new Histogram({
    name: 'survey_auth_commit_duration_seconds',
    help: 'time of a SQLite commit from BEGIN until it is flushed, which includes the flush before it',
    labelNames: ['store'],
    buckets: SECONDS,
    registers,
  })
  const commitWrites = new Histogram({
    name: 'survey_auth_commit_writes',
    help: 'writes that share one SQLite commit',
    labelNames: ['store'],
    buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256],
    registers,
  })
  const cleanUpWaits = new Gauge({
    name: 'survey_auth_clean_up_waits',
    help: 'whether the janitor waits because the clock is far from its last round: 1 or 0',
    labelNames: ['store'],
    registers,
  })
  const dropped = new Counter({
    name: 'survey_auth_http_connections_dropped_total',
    help: 'connections closed because there were HTTP_MAX_CONNECTIONS, or because too much waited to be read',
    registers,
  })
  const unexpected = new Counter({
    name: 'survey_auth_unexpected_errors_total',
    help: 'failures that nobody expected; each is in the log',
    registers,
  })
  const certificateEnd = new Gauge({
    name: 'survey_auth_tls_certificate_end_timestamp_seconds',
    help: 'when the certificate in use for RPCs over TLS ends',
    labelNames: ['file'],
    registers,
  })

  return {
    contentType: registry.contentType,
    request({ route, status, outcome, durationMs }) {
      requests.inc({ route, status, outcome })
      requestSeconds.observe({ route }, durationMs / 1000)
    },
    call({ rpc, method, code, reason, durationMs }) {
      callSeconds.observe({ method: rpc, code: codeName(code) }, durationMs / 1000)
      if (code !== undefined) refused.inc({ method, reason: reasonName(reason) ?? codeName(code) })
    },
    replayed: (effect) => replayedCodes.inc({ effect }),
    providers(providers) {
      asked.push(...providers)
      for (const { settings } of asked) {
        for (const step of PROVIDER_STEPS) {
          for (const outcome of PROVIDER_OUTCOMES) providerSteps.inc({ provider: settings.id, step, outcome }, 0)
        }
      }
    },
    provider: ({ provider, step, outcome }) => providerSteps.inc({ provider, step, outcome }),
    surveyProvider(client) {
      surveyProvider = client
      for (const { name } of SurveyProvider.methods) {
        for (const outcome of ALERTED_OUTCOMES) surveyProviderCalls.inc({ method: name, outcome }, 0)
      }
    },
    surveyProviderCall: ({ method, failure }) => {
      surveyProviderCalls.inc({ method, outcome: outcomeName(failure?.outcome) })
    },
    commit(store, writes, durationMs) {
      commitWrites.observe({ store }, writes)
      commitSeconds.observe({ store }, durationMs / 1000)
    },
    unexpected: () => unexpected.inc(),
    dropped: () => dropped.inc(),
    cleanUpWaits: (store, waits) => cleanUpWaits.set({ store }, Number(waits)),
    follow(process) {
      followed = process
    },
    clockSetBack: () => clockSetBacks.inc(),
    diskFailed: () => diskFailures.inc(),
    certificate: (file, endsAtMs) => certificateEnd.set({ file }, endsAtMs / 1000),
    text: () => registry.metrics(),
  }
}
