// `npm test`: builds, runs every suite, reports what was skipped and why, and ends with `N passed, N failed`.

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildIfNeeded } from '../bin/build-if-needed.js'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')
const report = path.join(root, 'test', 'results', 'report.json')
const isCi = process.env.CI === 'true' || process.env.CI === '1'

process.exitCode = main(process.argv.slice(2))

function main(filters) {
  buildIfNeeded()
  mkdirSync(path.dirname(report), { recursive: true })
  rmSync(report, { force: true })
  if (filters.length === 0) process.stdout.write('Every suite takes six to eight minutes on two cores.\n')
  const startedAtMs = performance.now()
  const vitest = path.join(root, 'node_modules', 'vitest', 'vitest.mjs')
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const { status } = spawnSync(process.execPath, [vitest, 'run', ...reporters, ...filters], {
    cwd: root,
    stdio: 'inherit',
  })
  process.stdout.write(`\nTook ${((performance.now() - startedAtMs) / 60_000).toFixed(1)} minutes.\n`)
  if (!existsSync(report)) return finish({ passed: 0, failed: 1, skipped: 0 }, status ?? 1)
  return finish(summarize(JSON.parse(readFileSync(report, 'utf8'))), status ?? 1)
}

/** Counts results; a file that could not be loaded is one failure. Skipped tests are reported by file, with the reason. */
function summarize(results) {
  const skippedByFile = new Map()
  let passed = 0
  let failed = 0
  for (const { name, status, assertionResults } of results.testResults) {
    const file = path.relative(root, name)
    if (status === 'failed' && !assertionResults.some((result) => result.status === 'failed')) failed += 1
    for (const result of assertionResults) {
      if (result.status === 'passed') passed += 1
      else if (result.status === 'failed') failed += 1
      else skippedByFile.set(file, (skippedByFile.get(file) ?? 0) + 1)
    }
  }
  for (const [file, count] of skippedByFile)
    process.stdout.write(`\nSKIPPED: ${count} tests of ${file}: ${reason(file)}\n`)
  const skipped = [...skippedByFile.values()].reduce((sum, count) => sum + count, 0)
  if (skipped === 0 || !isCi) return { passed, failed, skipped }
  process.stdout.write('\nOn CI everything must run: what was skipped counts as failed.\n')
  return { passed, failed: failed + skipped, skipped: 0 }
}

function reason(file) {
  if (file.includes('browser/firefox')) return 'no Firefox found; install one or set FIREFOX_PATH'
  if (file.includes('browser/webkit')) return 'no WebKitGTK found; install webkit2gtk-driver and xvfb'
  if (file.includes('browser')) return 'no Chromium found; install one or set CHROMIUM_PATH'
  if (file.includes('postgres')) return 'no PostgreSQL could be started on this machine'
  if (file.includes('examples')) return 'grpcio, grpc-go or grpc-java is missing; .ci/run names the packages of Debian'
  if (file.includes('full-disk')) return 'there is no prlimit'
  if (file.includes('power-cut')) return 'strace is not installed or may not trace'
  if (file.includes('terminal')) return 'there is no script, of util-linux'
  if (file.includes('completion')) return 'zsh, fish, groff or mandoc is not installed'
  return 'the file says why'
}

function finish({ passed, failed, skipped }, status) {
  const tail = skipped > 0 ? `, ${skipped} skipped` : ''
  process.stdout.write(`\n${passed} passed, ${failed} failed${tail}\n`)
  return failed > 0 || status !== 0 || passed === 0 ? 1 : 0
}
