// The pages for people: what they link to exists, and what a process reports is explained.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { type Setting, settings } from '../bin/settings.js'
import { createMetrics } from '../bin/telemetry/metrics.js'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const FOLDERS = ['bench', 'bin', 'deploy', 'docs', 'examples', 'gateway', 'proto', 'services', 'test']
const TEXT = /\.(md|[jt]sx?|proto|ya?ml|conf|service|target|sh|eta|env)$/

const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8')
const files = [
  ...readdirSync(ROOT),
  ...FOLDERS.flatMap((folder) =>
    readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((name) => path.join(folder, name)),
  ),
].filter((file) => TEXT.test(file) && !file.startsWith('test/results') && statSync(path.join(ROOT, file)).isFile())
const pages = files.filter((file) => file.endsWith('.md'))

/** The anchors of a page, as GitHub makes them of its headings. */
function anchorsOf(page: string): string[] {
  const headings = read(page).matchAll(/^#+ (.+)$/gm)
  return [...headings].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_\- ]/gu, '')
      .replaceAll(' ', '-'),
  )
}

function isGood(page: string, link: string): boolean {
  const [name = '', anchor] = link.split('#')
  const target = name === '' ? page : path.join(path.dirname(page), name)
  if (!existsSync(path.join(ROOT, target))) return false
  return anchor === undefined || anchorsOf(target).includes(anchor)
}

describe('pages', () => {
  test.each(pages)('%s links only to files and headings that exist', (page) => {
    const links = [...read(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link)
    const ours = links.filter((link) => !/^[a-z]+:/.test(link))
    expect(ours.filter((link) => !isGood(page, link))).toEqual([])
  })

  test.each(pages.filter((page) => page.startsWith('docs/operators/')))(
    '%s links only to what a release has',
    (page) => {
      const { files: packed } = JSON.parse(read('package.json')) as { files: string[] }
      const isPacked = (file: string) => packed.some((name) => file === name || file.startsWith(`${name}/`))
      const isLeftOut = (file: string) => /^gateway\/pages\/[^/]+\.ts$/.test(file) && !packed.includes(file)
      const links = [...read(page).matchAll(/\]\(([^)\s#:]+)(?:#[^)\s]*)?\)/g)].map(([, link = '']) => link)
      const targets = links.map((link) => path.join(path.dirname(page), link))
      expect(targets.filter((file) => !isPacked(file) || isLeftOut(file))).toEqual([])
    },
  )

  test.each(pages.filter((page) => page.startsWith('docs/')))(
    '%s has at most 300 lines, and docs/README.md lists it',
    (page) => {
      expect(read(page).split('\n').length).toBeLessThanOrEqual(300)
      if (page !== 'docs/README.md') expect(read('docs/README.md')).toContain(`](${path.relative('docs', page)})`)
    },
  )

  test.each(pages)('%s names only files of the repository that exist', (page) => {
    const named = [...read(page).matchAll(/`([\w./-]+\.(?:[jt]s|proto|sql))`/g)].map(([, name = '']) => name)
    const isThere = (name: string) => files.some((file) => file === name || file.endsWith(`/${name}`))
    expect(named.filter((name) => !isThere(name))).toEqual([])
  })

  test.each(pages.filter((page) => page.startsWith('docs/operators/')))(
    '%s names only variables of the program',
    (page) => {
      const ours = Object.values(settings).map(({ variable }: Setting<unknown>) => variable)
      const named = [...read(page).matchAll(/`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=[^`]*)?`/g)].map(
        ([, name = '']) => name,
      )
      expect(named.filter((name) => !ours.includes(name) && !name.startsWith('NODE_'))).toEqual([])
    },
  )

  test('named in files exist', () => {
    const named = files.flatMap((file) =>
      [...read(file).matchAll(/(?<![\w/.])docs\/[\w/-]+\.(?:md|yaml|svg)\b/g)].map(([name]) => ({ file, name })),
    )
    expect(named.length).toBeGreaterThan(10)
    expect(named.filter(({ name }) => !existsSync(path.join(ROOT, name)))).toEqual([])
  })
})

test('the version is everywhere that of the package', () => {
  const { version } = JSON.parse(read('package.json')) as { version: string }
  const lock = JSON.parse(read('package-lock.json')) as { version: string; packages: { '': { version: string } } }
  const contract = parse(read('docs/api/openapi.yaml')) as { info: { version: string } }
  const [, newest] = /^## (\d\S+)/m.exec(read('CHANGELOG.md')) ?? []
  const tags = ['sqlite', 'postgres'].map((way) => {
    const { images } = parse(read(`deploy/kubernetes/${way}/kustomization.yaml`)) as { images: { newTag: string }[] }
    return images.map(({ newTag }) => newTag)
  })
  const promise = JSON.parse(read('test/released/promise.json')) as { version: string }
  const named = { lock: lock.version, packages: lock.packages[''].version, contract: contract.info.version, newest }
  expect({ ...named, tags, promise: promise.version }).toEqual({
    lock: version,
    packages: version,
    contract: version,
    newest: version,
    tags: [[version], [version]],
    promise: version,
  })
})

describe('docs/operators/monitor.md', () => {
  const text = read('docs/operators/monitor.md')

  test('explains every metric of ours, and no other', async () => {
    const described = (await createMetrics().text()).matchAll(/^# HELP (survey_auth_\w+)/gm)
    const ours = [...described].map(([, name]) => name)
    expect(ours.length).toBeGreaterThan(10)
    const table = text.split('\n## Which metrics are there?\n')[1]?.split('\n## ')[0] ?? ''
    expect([...new Set(table.match(/\bsurvey_auth_\w+/g))].sort()).toEqual(ours.sort())
  })

  test('has a row for every alert', () => {
    const rules = parse(read('deploy/prometheus/alerts.yaml')) as { groups: { rules: { alert: string }[] }[] }
    const alerts = rules.groups.flatMap((group) => group.rules.map(({ alert }) => alert))
    expect([...text.matchAll(/\| (SurveyAuth\w+) +\|/g)].map(([, alert]) => alert).sort()).toEqual(alerts.sort())
  })
})
