// The dashboard: its grid, its queries, and that it turns red where the rules fire. That what it asks for exists, see monitoring.test.ts.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse, stringify } from 'yaml'
import { temporaryDirectory } from '../store/temporary-directory.js'

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description?: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly fieldConfig?: {
    readonly defaults: { readonly unit: string; readonly thresholds?: { readonly steps: readonly Step[] } }
  }
  readonly targets?: readonly { readonly expr: string }[]
}

/** `value`: from which on; null for all below the first. */
interface Step {
  readonly color: string
  readonly value: number | null
}

const read = (name: string) => readFileSync(new URL(`../../deploy/${name}`, import.meta.url), 'utf8')
const { panels } = JSON.parse(read('grafana/survey-auth.json')) as { panels: readonly Panel[] }
const shown = panels.filter(({ type }) => type !== 'row')
const { groups } = parse(read('prometheus/alerts.yaml')) as {
  groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[]
}
const rules = new Map(groups.flatMap((group) => group.rules.map(({ alert, expr }) => [alert, expr])))
const hasPromtool = spawnSync('promtool', ['--version']).status === 0

const VARIABLES: Readonly<Record<string, string>> = {
  $__rate_interval: '1m',
  $__range: '24h',
  $job: 'survey-auth',
  $instance: '.*',
}

/** `7 * 86400` in `… < 7 * 86400`. */
function limitOf(expr: string): number {
  const factors = /[<>] ([\d.]+(?: \* [\d.]+)*)\s*$/.exec(expr)?.[1] ?? ''
  return factors.split(' * ').reduce((product, factor) => product * Number(factor), 1)
}

const limitsOf = (panel: Panel) =>
  (panel.fieldConfig?.defaults.thresholds?.steps ?? []).flatMap(({ value }) => (value === null ? [] : [value]))

function rulesNamedBy({ description = '' }: Panel): string[] {
  return [...description.matchAll(/SurveyAuth\w+/g)].map(([name]) => rules.get(name) ?? '')
}

test('no two panels overlap, none is wider than the grid, and each has an id of its own', () => {
  const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, n) => `${x + (n % w)},${y + Math.floor(n / w)}`),
  )
  expect(new Set(cells).size).toBe(cells.length)
  expect(panels.filter(({ gridPos: { x, w } }) => x + w > 24)).toEqual([])
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
})

describe.each(shown)('$title', (panel) => {
  test('says what it shows, and in which unit', () => {
    expect(panel.description).toMatch(/\.$/)
    expect(panel.fieldConfig?.defaults.unit).toMatch(/^(none|short|s|bytes|percentunit|reqps|ops)$/)
  })

  test('changes its colour where the rule fires that it names, or from the first one on', () => {
    const named = rulesNamedBy(panel)
    expect(named).not.toContain('')
    for (const limit of limitsOf(panel)) expect(named.length > 0 ? named.map(limitOf) : [1]).toContain(limit)
  })

  test('looks as far back as the rule that it names, unless it shows the day or each interval', () => {
    const windowsOf = (expr: string) => [...expr.matchAll(/\[(\w+)\]/g)].map(([, window]) => window)
    const windows = (panel.targets ?? []).flatMap(({ expr }) => windowsOf(expr))
    const named = rulesNamedBy(panel)
    if (named.length > 0) expect(named.flatMap(windowsOf)).toEqual(expect.arrayContaining(windows))
  })

  test('shows the processes that are chosen', () => {
    for (const { expr } of panel.targets ?? []) {
      const selectors = [...expr.matchAll(/\b(?:up|(?:survey_auth|nodejs|process)_\w+)\{([^}]*)\}/g)]
      const chosen = selectors.filter(([, labels]) => labels?.startsWith('job="$job",instance=~"$instance"'))
      expect(chosen.length).toBe(selectors.length)
      expect(selectors.length).toBe(expr.includes('ALERTS{') ? 0 : (expr.match(/\{/g) ?? []).length)
    }
  })
})

describe.skipIf(!hasPromtool)('promtool', () => {
  test('finds no fault in the queries', () => {
    const file = path.join(temporaryDirectory(), 'queries.yaml')
    const exprs = shown.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
    const recorded = exprs.map((expr, at) => ({
      record: `query_${at}`,
      expr: Object.entries(VARIABLES).reduce((text, [name, value]) => text.replaceAll(name, value), expr),
    }))
    writeFileSync(file, stringify({ groups: [{ name: 'queries', rules: recorded }] }))
    const { stdout, stderr } = spawnSync('promtool', ['check', 'rules', file], { encoding: 'utf8' })
    expect(stdout + stderr).toContain(`SUCCESS: ${exprs.length} rules found`)
    expect(recorded.filter(({ expr }) => /\$(?!1")/.test(expr))).toEqual([]) // "$1" is a group of label_replace
  })
})
