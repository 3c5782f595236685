// What the kit reports: lines for people, YAML in the shape of the Gateway API's reports, and JUnit for what shows test results.
import { escaped } from '../output.js'
import type { KitTest } from './kit-test.js'
import { gotInWords, sentInWords } from './probe.js'
import type { Outcome, ProfileResult } from './run-kit.js'

export const KIT_VERSION = '1.0'
const PAGE = 'docs/provider-conformance.md'

/** The provider under test, in its own words. */
export interface Implementation {
  readonly name: string
  readonly version: string
  readonly url: string
}

export type Verdict = 'conformant' | 'not conformant' | 'partial'

/** `partial`: nothing failed, and tests of what is claimed were left out. `demanded` profiles must be claimed. */
export function verdictOn(results: readonly ProfileResult[], demanded: readonly string[]): Verdict {
  const isUnmet = ({ profile, isClaimed }: ProfileResult) => !isClaimed && demanded.includes(profile)
  if (results.some((result) => failuresIn(result).length > 0 || isUnmet(result))) return 'not conformant'
  return results.some(({ isClaimed, skipped }) => isClaimed && skipped.length > 0) ? 'partial' : 'conformant'
}

function failuresIn({ outcomes }: ProfileResult): Outcome[] {
  return outcomes.filter(({ failure }) => failure !== undefined)
}

/** What is known of a test once it has run. */
export function outcomeInWords({ test, failure, callMs }: Outcome): string {
  const latency = `(p50 ${percentile(callMs, 50)} ms, p99 ${percentile(callMs, 99)} ms)`
  const line = `  ${failure ? 'FAIL' : 'ok  '} ${test.id} ${test.title} ${latency}`
  return failure ? [line, ...detailsOf(test, failure).map((detail) => `       ${detail}`)].join('\n') : line
}

function detailsOf({ id, why }: KitTest, { what, exchange }: NonNullable<Outcome['failure']>): string[] {
  const call = exchange ? [`sent   ${sentInWords(exchange)}`, `got    ${gotInWords(exchange)}`] : []
  return [...call, `wrong  ${what}`, `why    ${why}`, `see    ${PAGE}#${id.toLowerCase()}`]
}

function percentile(ascending: readonly number[], percent: number): string {
  const value = ascending[Math.ceil((ascending.length * percent) / 100) - 1]
  return value === undefined ? '-' : value.toFixed(1)
}

/** The last line. */
export function verdictInWords(results: readonly ProfileResult[], verdict: Verdict): string {
  return `${results.map(countsInWords).join(' · ')} → ${verdict.toUpperCase()}`
}

function countsInWords(result: ProfileResult): string {
  const { profile, isClaimed, outcomes, skipped } = result
  if (!isClaimed) return `${profile} not claimed`
  const passed = `${profile} ${outcomes.length - failuresIn(result).length}/${outcomes.length}`
  return skipped.length === 0 ? passed : `${passed}, ${skipped.length} left out`
}

export interface Report {
  readonly date: Date
  readonly implementation: Implementation
  readonly results: readonly ProfileResult[]
  readonly verdict: Verdict
}

/** As the YAML and --json have it. */
export function reportObject({ date, implementation, results, verdict }: Report) {
  return {
    apiVersion: 'surveyauth.provider.v1',
    kind: 'ConformanceReport',
    date: date.toISOString(),
    kit: KIT_VERSION,
    implementation,
    result: verdict,
    profiles: results.map((result) => ({
      name: result.profile,
      core: {
        result: resultOf(result),
        statistics: {
          Passed: result.outcomes.length - failuresIn(result).length,
          Failed: failuresIn(result).length,
          Skipped: result.skipped.length,
        },
        failedTests: failuresIn(result).map(({ test }) => test.id),
        skippedTests: result.skipped.map(({ id }) => id),
      },
      summary: countsInWords(result),
    })),
  }
}

function resultOf(result: ProfileResult): string {
  if (!result.isClaimed) return 'not claimed'
  if (failuresIn(result).length > 0) return 'failure'
  return result.skipped.length > 0 ? 'partial' : 'success'
}

export function toYaml(report: Report): string {
  return `${yamlLines(reportObject(report)).join('\n')}\n`
}

/** Texts as in JSON, which YAML reads too. */
function yamlLines(value: unknown): string[] {
  if (Array.isArray(value) && value.length > 0) {
    return value.flatMap((one) => yamlLines(one).map((line, at) => `${at === 0 ? '-' : ' '} ${line}`))
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [escaped(JSON.stringify(value))]
  return Object.entries(value).flatMap(([name, member]) => {
    const lines = yamlLines(member)
    const isInline = typeof member !== 'object' || lines[0] === '[]'
    return isInline ? [`${name}: ${lines[0]}`] : [`${name}:`, ...lines.map((line) => `  ${line}`)]
  })
}

export function toJUnit({ results }: Report): string {
  const suites = results.map((result) => {
    const { profile, isClaimed, outcomes, skipped } = result
    const cases = [
      ...outcomes.map(({ test, failure }) =>
        testCase(profile, test, failure && ['failure', failure.what, detailsOf(test, failure).join('\n')]),
      ),
      ...skipped.map((test) => testCase(profile, test, ['skipped', isClaimed ? 'left out' : 'not claimed', ''])),
    ]
    const counts = `tests="${cases.length}" failures="${failuresIn(result).length}" skipped="${skipped.length}"`
    return [`  <testsuite name="${profile}" ${counts}>`, ...cases, '  </testsuite>'].join('\n')
  })
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    '<testsuites name="survey provider">',
    ...suites,
    '</testsuites>',
    '',
  ].join('\n')
}

type Remark = readonly [element: 'failure' | 'skipped', message: string, text: string]

function testCase(profile: string, { id, title }: KitTest, remark: Remark | undefined): string {
  const opening = `    <testcase classname="provider.${profile}" name="${xml(`${id} ${title}`)}"`
  if (!remark) return `${opening}/>`
  const [element, message, text] = remark
  return `${opening}><${element} message="${xml(message)}">${xml(text)}</${element}></testcase>`
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** Of characters that XML cannot hold nothing is left. */
function xml(text: string): string {
  return text
    .replace(/[^\t\n\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '\ufffd')
    .replace(/[&<>"]/g, (one) => ENTITIES[one] ?? one)
}
