// What `npm run check` refuses in a lockfile.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'

type Entry = Record<string, unknown>
type Packages = Record<string, Entry>

/** What the check says of the lockfile after `change`. */
function saidOf(change: (packages: Packages) => void): string[] {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-lockfile-'))
  try {
    const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { packages: Packages }
    change(lock.packages)
    const file = path.join(folder, 'package-lock.json')
    writeFileSync(file, JSON.stringify(lock))
    const { stdout } = spawnSync(process.execPath, ['test/lockfile.js', '--check', file], { encoding: 'utf8' })
    return stdout.trim().split('\n')
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

test('the lockfile as it is is whole', () => {
  expect(saidOf(() => {})).toEqual([''])
})

test.each([
  ['an entry without integrity', (entry: Entry) => delete entry.integrity, 'has no integrity'],
  ['an entry with an empty integrity', (entry: Entry) => (entry.integrity = ''), 'has no integrity'],
  [
    'the address of a registry',
    (entry: Entry) => (entry.resolved = 'https://npm.example/zod.tgz'),
    'names the registry',
  ],
])('%s is refused', (_what, change, said) => {
  expect(saidOf((packages) => change(packages['node_modules/zod'] ?? {}))).toEqual([
    expect.stringMatching(`^node_modules/zod ${said}`),
    'run `npm run lock`',
  ])
})

test.each([
  ['node_modules/better-sqlite3', 'gypfile'],
  ['node_modules/better-sqlite3-node20', 'engines'],
])('%s without what keeps npm from compiling (%s) is refused', (name, member) => {
  expect(saidOf((packages) => delete packages[name]?.[member])).toContainEqual(
    expect.stringMatching(`^${name} lacks {"${member}"`),
  )
})
