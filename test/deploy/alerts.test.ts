// Each alert rule fires when it should and not otherwise, by promtool. Skipped where there is none, which on CI is a failure.
import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { parse, stringify } from 'yaml'
import { temporaryDirectory } from '../store/temporary-directory.js'

const RULES = fileURLToPath(new URL('../../deploy/prometheus/alerts.yaml', import.meta.url))
const hasPromtool = spawnSync('promtool', ['--version']).status === 0

interface Rule {
  readonly alert: string
  readonly for?: string
  readonly labels: Readonly<Record<string, string>>
}

/** Series, each with a value for every minute in promtool's notation: `0+60x30` grows by 60 a minute for 30 minutes. */
type Series = Readonly<Record<string, string>>

/** What lets a rule fire after half an hour, and what is next to it and does not. */
interface Case {
  readonly fires: Series
  readonly quiet: Series
}

const of = (name: string, labels: Readonly<Record<string, string>> = {}) => {
  const all = Object.entries({ job: 'survey-auth', instance: 'a:9100', ...labels })
  return `${name}{${all.map(([label, value]) => `${label}="${value}"`).join(',')}}`
}
const requests = (outcome: string) => of('survey_auth_http_requests_total', { outcome })
const calls = (code: string, method = 'surveyauth.v1.TokenService/IssueCode') =>
  of('survey_auth_rpc_duration_seconds_count', { method, code })
const refused = (method: string, reason: string) => of('survey_auth_refused_total', { method, reason })
const EXCHANGE = 'surveyauth.v1.TokenService/ExchangeCode'
const VERIFY = 'surveyauth.v1.TokenService/VerifyAccessToken'
const HOUR = 3600
const DAY = 24 * HOUR

/** Of a histogram of which everything took longer than the first bound and less than the second. */
function between(name: string, labels: Readonly<Record<string, string>>, low: string, high: string): Series {
  const bucket = (le: string) => of(`${name}_bucket`, { ...labels, le })
  return { [bucket(low)]: '0+0x40', [bucket(high)]: '0+60x40', [bucket('+Inf')]: '0+60x40' }
}
const slow = (low: string, high: string, route = 'user') =>
  between('survey_auth_http_request_duration_seconds', { route }, low, high)
const commits = (low: string, high: string) =>
  between('survey_auth_commit_duration_seconds', { store: 'token' }, low, high)

const cases: Readonly<Record<string, Case>> = {
  SurveyAuthDown: { fires: { [of('up')]: '0x40' }, quiet: { [of('up')]: '1x40' } },
  SurveyAuthNotReady: {
    fires: { [of('survey_auth_not_ready', { reason: 'token database' })]: '1x40' },
    quiet: { [of('survey_auth_not_ready', { reason: 'shutting down' })]: '1x40' },
  },
  SurveyAuthDatabaseInDanger: {
    fires: { [of('survey_auth_ready_but', { reason: 'host db1:5432 of the token database' })]: '1x40' },
    quiet: { [of('survey_auth_ready_but', { reason: 'survey provider at https://surveys:9443' })]: '1x40' },
  },
  SurveyAuthServiceMissing: {
    fires: { [of('survey_auth_ready_but', { reason: 'token service at https://token2:9443' })]: '1x40' },
    quiet: {
      [of('survey_auth_ready_but', { reason: 'survey service at https://surveys:9443' })]: '1x15 0x25',
      [of('survey_auth_ready_but', { reason: 'survey provider at https://surveys:9443' })]: '1x40',
    },
  },
  SurveyAuthDefect: {
    fires: { [of('survey_auth_unexpected_errors_total')]: '0x27 1x13' },
    quiet: { [of('survey_auth_unexpected_errors_total')]: '0x10 1x30' },
  },
  SurveyAuthUnavailable: {
    fires: { [requests('remote_server_error')]: '0+2x40', [requests('ok')]: '0+98x40' },
    quiet: { [requests('remote_server_error')]: '0+1x40', [requests('ok')]: '0+999x40' },
  },
  SurveyAuthMethodUnavailable: {
    fires: { [calls('unavailable')]: '0+60x40', [calls('ok')]: '0+50x40' },
    quiet: {
      ...{ [calls('unavailable')]: '0+40x40', [calls('ok')]: '0+60x40' },
      [calls('unavailable', 'surveyauth.v1.AccountService/BeginSignIn')]: '0+1x40',
    },
  },
  SurveyAuthConnectionsDropped: {
    fires: { [of('survey_auth_http_connections_dropped_total')]: '0+1x40' },
    quiet: { [of('survey_auth_http_connections_dropped_total')]: '7x40' },
  },
  SurveyAuthFilesUsedUp: {
    fires: { [of('process_open_fds')]: '950x40', [of('process_max_fds')]: '1000x40' },
    quiet: { [of('process_open_fds')]: '800x40', [of('process_max_fds')]: '1000x40' },
  },
  SurveyAuthSlow: { fires: slow('0.5', '1'), quiet: { ...slow('0.25', '0.5'), ...slow('1', '2.5', 'sign_in') } },
  SurveyAuthEventLoopBlocked: {
    fires: { [of('nodejs_eventloop_lag_p99_seconds')]: '0.3x40' },
    quiet: { [of('nodejs_eventloop_lag_p99_seconds')]: '0.1x40' },
  },
  SurveyAuthSlowDisk: { fires: commits('0.25', '0.5'), quiet: commits('0.1', '0.25') },
  SurveyAuthDiskFails: {
    fires: { [of('survey_auth_disk_failures_total')]: '0x25 1x15' },
    quiet: { [of('survey_auth_disk_failures_total')]: '1x40' },
  },
  SurveyAuthDiskFull: {
    fires: { [of('survey_auth_disk_free_bytes', { store: 'token' })]: '1000000000x40' },
    quiet: { [of('survey_auth_disk_free_bytes', { store: 'token' })]: '2000000000x40' },
  },
  SurveyAuthConnectionsUsedUp: {
    fires: { [of('survey_auth_database_connections', { store: 'token', state: 'waiting' })]: '3x40' },
    quiet: { [of('survey_auth_database_connections', { store: 'token', state: 'in_use' })]: '10x40' },
  },
  SurveyAuthBackupOld: {
    fires: { [of('survey_auth_last_backup_timestamp_seconds', { store: 'token' })]: `${-2 * DAY - HOUR}x40` },
    quiet: { [of('survey_auth_last_backup_timestamp_seconds', { store: 'token' })]: `${-DAY}x40` },
  },
  SurveyAuthCleanUpWaits: {
    fires: { [of('survey_auth_clean_up_waits', { store: 'token' })]: '1x40' },
    quiet: { [of('survey_auth_clean_up_waits', { store: 'token' })]: '0x40' },
  },
  SurveyAuthClockSetBack: {
    fires: { [of('survey_auth_clock_set_back_total')]: '0x20 1x20' },
    quiet: { [of('survey_auth_clock_set_back_total')]: '0x40' },
  },
  SurveyAuthProviderFails: {
    fires: { [of('survey_auth_provider_total', { provider: 'corp', outcome: 'unavailable' })]: '0+1x40' },
    quiet: { [of('survey_auth_provider_total', { provider: 'corp', outcome: 'denied' })]: '0+9x40' },
  },
  SurveyAuthProviderMetadataOld: {
    fires: { [of('survey_auth_provider_metadata_age_seconds', { provider: 'corp' })]: `${13 * HOUR}x40` },
    quiet: { [of('survey_auth_provider_metadata_age_seconds', { provider: 'corp' })]: `${11 * HOUR}x40` },
  },
  SurveyAuthSurveyProviderDown: {
    fires: { [of('survey_auth_survey_provider_breaker_open')]: '1x40' },
    quiet: { [of('survey_auth_survey_provider_breaker_open')]: '0x40' },
  },
  SurveyAuthOwnershipViolation: {
    fires: { [of('survey_auth_survey_provider_calls_total', { outcome: 'ownership_violation' })]: '0x25 1x15' },
    quiet: { [of('survey_auth_survey_provider_calls_total', { outcome: 'ok' })]: '0+60x40' },
  },
  SurveyAuthTokensRefused: {
    fires: { [refused('VerifyAccessToken', 'invalid_token')]: '0+120x40', [calls('ok', VERIFY)]: '0+60x40' },
    quiet: { [refused('VerifyAccessToken', 'invalid_token')]: '0+50x40', [calls('ok', VERIFY)]: '0+60x40' },
  },
  SurveyAuthGuessing: {
    fires: { [refused('SignIn', 'invalid_credentials')]: '0+120x40' },
    quiet: { [refused('SignIn', 'invalid_credentials')]: '0+30x40' },
  },
  SurveyAuthCodeReplayed: {
    fires: { [of('survey_auth_replayed_codes_total', { effect: 'revoked_grant' })]: '0x25 1x15' },
    quiet: { [of('survey_auth_replayed_codes_total', { effect: 'forgiven' })]: '0x25 1x15' },
  },
  SurveyAuthCodesRefused: {
    fires: { [refused('ExchangeCode', 'invalid_secret')]: '0+120x40', [calls('ok', EXCHANGE)]: '0+30x40' },
    quiet: { [refused('ExchangeCode', 'invalid_code')]: '0+60x40', [calls('ok', EXCHANGE)]: '0+60x40' },
  },
  SurveyAuthCertificateEnds: {
    fires: { [of('survey_auth_tls_certificate_end_timestamp_seconds', { file: 'token.pem' })]: `${6 * DAY}x40` },
    quiet: { [of('survey_auth_tls_certificate_end_timestamp_seconds', { file: 'token.pem' })]: `${9 * DAY}x40` },
  },
}

const rules = (parse(readFileSync(RULES, 'utf8')) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  (group) => group.rules,
)

test('every rule has a case', () => {
  expect(Object.keys(cases).sort()).toEqual(rules.map(({ alert }) => alert).sort())
})

describe.skipIf(!hasPromtool)('promtool', () => {
  test('finds no fault in the rules', () => {
    expect(execFileSync('promtool', ['check', 'rules', RULES], { encoding: 'utf8' })).toContain(
      `SUCCESS: ${rules.length}`,
    )
  })

  test.each(Object.entries(cases))('%s fires when it should', (alert, { fires }) => {
    expect(firing(alert, fires)).toBe(true)
  })

  test.each(Object.entries(cases))('%s is quiet otherwise', (alert, { quiet }) => {
    expect(firing(alert, quiet)).toBe(false)
  })

  /** Of the last half hour only minutes 26 to 28 failed, and everything in them. */
  const ended = { failed: '0x25 60+60x2 180x2', succeeded: '0+60x25 1500x2 1560+60x2' }

  test.each([
    ['SurveyAuthUnavailable', { [requests('remote_server_error')]: ended.failed, [requests('ok')]: ended.succeeded }],
    ['SurveyAuthMethodUnavailable', { [calls('unavailable')]: ended.failed, [calls('ok')]: ended.succeeded }],
  ])('%s wakes nobody for an outage that is over', (alert, series) => {
    expect(firing(alert, series)).toBe(false)
  })
})

/** Whether the alert fires after half an hour of these series. promtool says so by failing where it is expected not to. */
function firing(alert: string, series: Series): boolean {
  const file = path.join(temporaryDirectory(), 'rules.test.yaml')
  const input_series = Object.entries(series).map(([name, values]) => ({ series: name, values }))
  const none = [{ eval_time: '30m', alertname: alert, exp_alerts: [] }]
  const suite = {
    rule_files: [RULES],
    evaluation_interval: '1m',
    tests: [{ interval: '1m', input_series, alert_rule_test: none }],
  }
  writeFileSync(file, stringify(suite))
  const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' })
  const said = stdout + stderr
  if (status !== 0 && !said.includes(`alertname: ${alert}`)) throw new Error(said)
  return status !== 0
}
