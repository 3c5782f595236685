// The alert rules and the dashboard name metrics, labels and values; these tests check that a process exposes them.
import { readFileSync } from 'node:fs'
import type { DescService } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createMetrics, type Metrics } from '../bin/telemetry/metrics.js'
import { problemKinds } from '../gateway/errors.js'
import { routes } from '../gateway/routes.js'
import { AccountService } from '../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../gen/surveyauth/v1/error_pb.js'
import { SurveyService } from '../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../gen/surveyauth/v1/token_service_pb.js'
import { pathOf } from '../services/rpc/dispatcher.js'
import { PROVIDER_FAULTS } from '../services/survey/provider/provider-failure.js'
import { PROVIDER_OUTCOMES } from '../services/token/sign-in-methods.js'
import { exposed, knownProvider } from './harness/exposed-metrics.js'

interface Rules {
  readonly groups: { readonly rules: { alert: string; expr: string; annotations: Record<string, string> }[] }[]
}
interface Dashboard {
  readonly panels: { readonly title: string; readonly targets?: { expr: string; legendFormat: string }[] }[]
}

const read = (name: string) => readFileSync(new URL(`../deploy/${name}`, import.meta.url), 'utf8')
const alerts = (parse(read('prometheus/alerts.yaml')) as Rules).groups.flatMap(({ rules }) => rules)
const panels = (JSON.parse(read('grafana/survey-auth.json')) as Dashboard).panels
const expressions = [
  ...alerts.map(({ alert, expr }) => ({ where: `alert ${alert}`, expr })),
  ...panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ where: `panel ${title}`, expr }))),
]

function namesOfMethods({ methods }: DescService): string[] {
  return methods.flatMap((method) => [pathOf(method).slice(1), method.name])
}

/** The alerts that fire or are about to. */
const OF_PROMETHEUS = ['ALERTS', new Set(['alertname', 'alertstate', 'severity'])] as const
const ADDED_BY_PROMETHEUS = ['job', 'instance']

describe('alerts and panels', () => {
  test.each(expressions)('$where asks for series and labels that exist', async ({ expr }) => {
    const series = new Map([...(await exposed()), OF_PROMETHEUS])
    const names = expr.match(/\b(up|ALERTS|survey_auth_\w+|nodejs_\w+|process_\w+)\b/g) ?? []
    expect(names.length).toBeGreaterThan(0)
    expect(names.filter((name) => !series.has(name))).toEqual([])
    const labels = new Set([...names.flatMap((name) => [...(series.get(name) ?? [])]), ...ADDED_BY_PROMETHEUS])
    const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/,\s*/))
    const selected = [...expr.matchAll(/(\w+)(?:=|!=|=~|!~)"/g)].map(([, label = '']) => label)
    expect([...grouped, ...selected].filter((label) => !labels.has(label))).toEqual([])
  })

  test.each([
    ['route', routes.map(({ name }) => name)],
    ['outcome', ['ok', ...Object.keys(problemKinds), ...PROVIDER_FAULTS, ...PROVIDER_OUTCOMES]],
    ['method', [TokenService, AccountService, SurveyService].flatMap(namesOfMethods)],
    ['alertname', alerts.map(({ alert }) => alert)],
  ])('select by %s what exists', (label, known) => {
    const selectors = expressions.flatMap(({ expr }) => [
      ...expr.matchAll(new RegExp(`\\b${label}(?:=|!=|=~|!~)"([^"]*)"`, 'g')),
    ])
    const values = selectors.flatMap(([, value = '']) => (value.includes('(') ? value : value.split('|')))
    expect(values.length).toBeGreaterThan(0)
    expect(values.filter((value) => !known.some((name) => new RegExp(`^${value}$`).test(name)))).toEqual([])
  })

  test('name series that are 0 before anything has happened: Prometheus sees no growth in a new series', async () => {
    const metrics = createMetrics()
    metrics.providers([knownProvider('corp', undefined)])
    const text = await metrics.text()
    expect(text).toContain('survey_auth_provider_total{provider="corp",step="complete",outcome="misconfigured"} 0\n')
    expect(text).not.toContain('survey_auth_provider_metadata_age_seconds{')
    const named = alerts.flatMap(({ expr }) =>
      [...expr.matchAll(/survey_auth_\w+_total\{effect="\w+"\}/g)].map(([series]) => series),
    )
    expect(named.length).toBeGreaterThan(0)
    expect(named.filter((series) => !text.includes(`\n${series} 0\n`))).toEqual([])
  })

  test('say what to do', () => {
    for (const { alert, annotations } of alerts) {
      expect({ alert, summary: annotations.summary ?? '', toDo: annotations.what_to_do ?? '' }).toEqual({
        alert,
        summary: expect.stringMatching(/\S/),
        toDo: expect.stringMatching(/\S{3}/),
      })
    }
  })
})

/** Values by series, with labels in the order of the text. */
function valuesOf(text: string): Record<string, number> {
  return Object.fromEntries([...text.matchAll(/^(\S+) (\S+)$/gm)].map(([, series, value]) => [series, Number(value)]))
}

/** Some of each kind, of 250 and 500 ms. */
function measure(metrics: Metrics): void {
  for (const durationMs of [250, 500]) {
    metrics.request({ route: 'user', method: 'GET', status: 200, outcome: 'ok', durationMs, requestId: 'r' })
  }
  metrics.commit('token', 7, 500)
  const call = { rpc: 's/SignIn', method: 'SignIn', caller: 'gateway', requestId: 'r', durationMs: 500 } as const
  metrics.call({ ...call, code: undefined, reason: undefined })
  metrics.call({ ...call, code: Code.Unauthenticated, reason: ErrorReason.INVALID_CREDENTIALS })
  metrics.call({ ...call, code: Code.DeadlineExceeded, reason: undefined })
  metrics.call({ ...call, rpc: 's/ListApps', method: 'ListApps', code: Code.Internal, reason: undefined })
  metrics.request({ route: 'list', method: 'GET', status: 429, outcome: 'o', durationMs: 5, requestId: 'r' })
  metrics.replayed('revoked_grant')
  metrics.unexpected()
  metrics.dropped()
}

describe('metrics', () => {
  test('count each event by its kind, and its time in seconds in the bucket whose bound it does not exceed', async () => {
    const metrics = createMetrics()
    measure(metrics)
    metrics.certificate('token.pem', 1_800_000_000_000)
    metrics.providers([knownProvider('corp', 90_000)])
    const requestId = 'r'
    metrics.provider({ provider: 'corp', step: 'begin', outcome: 'ok', failure: undefined, requestId })
    const values = valuesOf(await metrics.text())
    const seconds = 'survey_auth_http_request_duration_seconds'
    expect(values).toMatchObject({
      'survey_auth_http_requests_total{route="user",status="200",outcome="ok"}': 2,
      'survey_auth_http_requests_total{route="list",status="429",outcome="o"}': 1,
      [`${seconds}_bucket{le="0.1",route="user"}`]: 0,
      [`${seconds}_bucket{le="0.25",route="user"}`]: 1,
      [`${seconds}_bucket{le="0.5",route="user"}`]: 2,
      [`${seconds}_bucket{le="+Inf",route="user"}`]: 2,
      [`${seconds}_sum{route="user"}`]: 0.75,
      [`${seconds}_count{route="user"}`]: 2,
      'survey_auth_replayed_codes_total{effect="revoked_grant"}': 1,
      survey_auth_unexpected_errors_total: 1,
      survey_auth_http_connections_dropped_total: 1,
      'survey_auth_provider_total{provider="corp",step="begin",outcome="ok"}': 1,
      'survey_auth_provider_metadata_age_seconds{provider="corp"}': 90,
      'survey_auth_commit_writes_sum{store="token"}': 7,
      'survey_auth_commit_duration_seconds_sum{store="token"}': 0.5,
      'survey_auth_rpc_duration_seconds_sum{method="s/ListApps",code="internal"}': 0.5,
      'survey_auth_rpc_duration_seconds_count{method="s/SignIn",code="ok"}': 1,
      'survey_auth_rpc_duration_seconds_count{method="s/SignIn",code="unauthenticated"}': 1,
      'survey_auth_refused_total{method="ListApps",reason="internal"}': 1,
      'survey_auth_refused_total{method="SignIn",reason="invalid_credentials"}': 1,
      'survey_auth_refused_total{method="SignIn",reason="deadline_exceeded"}': 1,
      'survey_auth_tls_certificate_end_timestamp_seconds{file="token.pem"}': 1_800_000_000,
    })
  })
})
